from __future__ import annotations

import numpy as np
import pytest

from mlhood.grading.checks import timing
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import LocalTransport, Submission
from mlhood.grading.projects.p5 import probes_race, races, reference, table
from mlhood.grading.projects.p5.table import NETWORK_OPERATORS
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.operators.cases import resnet18
from mlhood.jaxlab.operators.network import tree
from mlhood.jaxlab.tables import FUSED, JAX, NETWORK, NO_JAX, operators_table
from mlhood.measure import Measurement

NOW = [0.0]


@pytest.fixture(autouse=True)
def hands(monkeypatch):
    """The clock outside stands still, but for 4 ms on the way there and back."""
    ask = LocalTransport.ask

    def slowly(self, request, seconds):
        NOW[0] += 0.004
        return ask(self, request, seconds)

    monkeypatch.setattr(LocalTransport, "ask", slowly)
    monkeypatch.setitem(timing.race.__kwdefaults__, "clock", lambda: NOW[0])


def lasting(function, seconds: float = 0.05):
    def slow(*arguments, **named):
        NOW[0] += seconds
        return function(*arguments, **named)

    return slow


@pytest.mark.parametrize("name", ["reference", "compiled", "own"])
def test_operators_that_race_compute_the_same(name, tmp_path):
    names = {"conv2d": reference.conv2d, "batch_norm": reference.batch_norm, "relu": lambda x: np.maximum(x, 0)}
    submission = Submission(LocalTransport(names), tmp_path, tmp_path)
    operators = [submission.value(one) for one in names] if name == "own" else []
    one = races._call(name, *operators)
    arguments = one.make(submission.rng)
    one.check(arguments, submission.call(one.target, *arguments), submission.rng)


NAMES = {one: getattr(no_jax, one) for one in NETWORK_OPERATORS}


def in_table(jax: dict[str, float], tmp_path) -> Submission:
    """A notebook whose table has No-JAX take 40 ms in every row, and JAX as many as told; else 30 ms."""
    filled = operators_table()
    for row in filled.rows:
        for column, seconds in ((NO_JAX, 0.04), (JAX, jax.get(row, 0.03))):
            times = tuple(seconds * (1 + 0.01 * number) for number in range(21))
            filled[row, column] = Measurement(times, None, row, True)
    submission = Submission(LocalTransport({"table": filled, **NAMES}), tmp_path, tmp_path)
    submission.rng = np.random.default_rng(3)
    return submission


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(races, "IMAGE", 32)
    monkeypatch.setattr(races, "SIZE", 8)


@pytest.mark.parametrize("row", [FUSED, NETWORK])
def test_times_that_were_invented_fail_by_the_clock(row, tmp_path, monkeypatch, small):
    other = FUSED if row == NETWORK else NETWORK
    name = "compiled" if row == FUSED else "compiled_network"
    monkeypatch.setattr(probes_race, name, lasting(getattr(probes_race, name.replace("compiled", "reference"))))
    submission = in_table({row: 0.001, other: 0.05}, tmp_path)
    monkeypatch.setattr(table, "_shown_here", lambda *_: False)  # for the other one, of which JAX is not ahead
    with pytest.raises(CheckFailed, match="JAX is not faster as the table has it") as caught:
        table.jax_is_faster_where_it_fuses.function(submission)
    assert row in caught.value.parts["got"]


@pytest.mark.parametrize("name", ["own_network", "compiled_network", "reference_network"])
def test_networks_that_race_compute_the_same(name, tmp_path, monkeypatch, small):
    monkeypatch.setattr(races, "LOOKED_AT", 1.0)
    submission = Submission(LocalTransport(NAMES), tmp_path, tmp_path)
    operators = [{one: submission.value(one) for one in NAMES}] if name == "own_network" else []
    one = races._network_call(name, 5, tree(resnet18(5)), *operators)
    arguments = one.make(submission.rng)
    result = submission.call(one.target, *arguments)
    one.check(arguments, result, submission.rng)
    with pytest.raises(CheckFailed, match="wrong values"):
        one.check(arguments, np.roll(result, 1), submission.rng)


@pytest.mark.parametrize(("shown", "found"), [(True, 2), (False, 1)])
def test_a_row_that_tells_noise_races_where_the_machine_shows_what_is_claimed(shown, found, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_shown_here", lambda *_: shown)
    submission = in_table({}, tmp_path)
    filled = table._table(submission)
    noise = tuple(0.04 * (1 + 0.3 * (-1) ** number) for number in range(21))
    filled[FUSED, JAX] = Measurement(noise, None, FUSED, True)
    assert len(table._races(submission, filled)) == found


@pytest.mark.parametrize(
    ("jax", "found"), [({}, 2), ({FUSED: 0.05}, 1), ({NETWORK: 0.05}, 1), ({FUSED: 0.05, NETWORK: 0.05}, 0)]
)
def test_what_the_table_claims_races(jax, found, tmp_path):
    submission = in_table(jax, tmp_path)
    assert len(table._races(submission, table._table(submission))) == found
