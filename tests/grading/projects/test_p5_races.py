"""Timed comparisons of P5's operators and of ResNet-18."""

from __future__ import annotations

import numpy as np
import pytest

from mlhood.grading.checks import timing
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.projects.p5 import probes_race, races, reference, table
from mlhood.grading.projects.p5.table import NETWORK_OPERATORS
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.operators.cases import FUSED, NETWORK, resnet18
from mlhood.jaxlab.operators.network import tree
from mlhood.jaxlab.tables import JAX, NO_JAX, operators_table
from mlhood.measure import Measurement

NOW = [0.0]


@pytest.fixture(autouse=True)
def external_clock(monkeypatch):
    """A simulated clock: a round trip takes 4 ms, and nothing else takes time."""
    send = LocalTransport.send

    def timed_send(self, request, seconds):
        NOW[0] += 0.004
        return send(self, request, seconds)

    monkeypatch.setattr(LocalTransport, "send", timed_send)
    monkeypatch.setitem(timing.measure_claim.__kwdefaults__, "clock", lambda: NOW[0])


def slowed(function, seconds: float = 0.05):
    def slow(*arguments, **options):
        NOW[0] += seconds
        return function(*arguments, **options)

    return slow


@pytest.mark.parametrize("name", ["reference", "compiled", "own"])
def test_timed_operators_compute_the_same(name, tmp_path):
    names = {"conv2d": reference.conv2d, "batch_norm": reference.batch_norm, "relu": lambda x: np.maximum(x, 0)}
    submission = Submission(Session(LocalTransport(names), tmp_path, tmp_path))
    first = [submission.value(operator) for operator in names] if name == "own" else []
    if name == "compiled":
        first = [submission.call(races.PROBES + "block_program")]
    call = races._call(name, *first)
    arguments = call.draw_arguments(submission.rng)
    call.check(arguments, submission.call(call.target, *arguments), submission.rng)


NAMES = {name: getattr(no_jax, name) for name in NETWORK_OPERATORS}


def with_table(jax: dict[str, float], tmp_path) -> Submission:
    """A notebook whose table has 40 ms for No-JAX in every row, and these seconds for JAX; 30 ms in other rows."""
    filled = operators_table()
    for row in filled.rows:
        for column, seconds in ((NO_JAX, 0.04), (JAX, jax.get(row, 0.03))):
            times = tuple(seconds * (1 + 0.01 * i) for i in range(21))
            filled[row, column] = Measurement(times, None, row, True)
    session = Session(LocalTransport({"table": filled, **NAMES}), tmp_path, tmp_path)
    return Submission(session, CheckContext(np.random.default_rng(3)))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(races, "IMAGE", 32)
    monkeypatch.setattr(races, "SIZE", 8)


@pytest.mark.parametrize("row", [FUSED, NETWORK])
def test_invented_times_are_refuted_by_the_external_clock(row, tmp_path, monkeypatch, small):
    other = FUSED if row == NETWORK else NETWORK
    name = "compiled" if row == FUSED else "compiled_network"
    as_slow = (
        probes_race.reference_network if row == NETWORK else lambda program, *arrays: probes_race.reference(*arrays)
    )
    monkeypatch.setattr(probes_race, name, slowed(as_slow))
    submission = with_table({row: 0.001, other: 0.05}, tmp_path)
    monkeypatch.setattr(table, "_shown_here", lambda *_: False)  # for the other row, in which JAX is not ahead
    with pytest.raises(CheckFailed, match="JAX is not as much faster as the table claims") as caught:
        table.jax_is_faster_where_it_fuses.function(submission)
    assert row in caught.value.parts["got"]


@pytest.mark.parametrize("name", ["own_network", "compiled_network", "reference_network"])
def test_timed_networks_compute_the_same(name, tmp_path, monkeypatch, small):
    monkeypatch.setattr(races, "CHECKED_SHARE", 1.0)
    submission = Submission(Session(LocalTransport(NAMES), tmp_path, tmp_path))
    operators = [{operator: submission.value(operator) for operator in NAMES}] if name == "own_network" else []
    prepared = submission.call(races.PROBES + "prepared_network", 5)
    call = races._network_call(name, tree(resnet18(5)), prepared, *operators)
    arguments = call.draw_arguments(submission.rng)
    result = submission.call(call.target, *arguments)
    call.check(arguments, result, submission.rng)
    with pytest.raises(CheckFailed, match="wrong values"):
        call.check(arguments, np.roll(result, 1), submission.rng)


@pytest.mark.parametrize(("shown", "count"), [(True, 2), (False, 1)])
def test_a_row_of_noise_is_timed_if_the_machine_shows_the_claim(shown, count, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_shown_here", lambda *_: shown)
    submission = with_table({}, tmp_path)
    filled = table._table(submission)
    noise = tuple(0.04 * (1 + 0.3 * (-1) ** i) for i in range(21))
    filled[FUSED, JAX] = Measurement(noise, None, FUSED, True)
    assert len(table._races(submission, filled)) == count


@pytest.mark.parametrize(
    ("jax", "count"), [({}, 2), ({FUSED: 0.05}, 1), ({NETWORK: 0.05}, 1), ({FUSED: 0.05, NETWORK: 0.05}, 0)]
)
def test_claims_of_the_table_are_timed(jax, count, tmp_path):
    submission = with_table(jax, tmp_path)
    assert len(table._races(submission, table._table(submission))) == count
