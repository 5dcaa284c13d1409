"""Timed comparisons of P5's operators and of ResNet-18."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mlhood.grading.checks import timing
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.probes import keep
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.projects.p5 import P5, probes_race, races, table
from mlhood.grading.projects.p5.table import NETWORK_OPERATORS
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.operators.cases import FUSED, NETWORK
from mlhood.jaxlab.operators.layouts import STANDARD
from mlhood.jaxlab.tables import JAX, NO_JAX, operators_table
from mlhood.measure import Measurement
from mlhood.measure.ratio import Ratio

NOW, CLAIMED = [0.0], Ratio(2.0, 1.9, 2.1)


@pytest.fixture(autouse=True)
def external_clock(monkeypatch):
    """A simulated clock: a round trip takes 4 ms, and nothing else takes time."""
    send = LocalTransport.send

    def timed_send(self, request, seconds):
        NOW[0] += 0.004
        return send(self, request, seconds)

    monkeypatch.setattr(timing, "wait_until_quiet", lambda: None)
    monkeypatch.setattr(LocalTransport, "send", timed_send)
    monkeypatch.setitem(timing.measure_claim.__kwdefaults__, "clocks", timing.Clocks(lambda: NOW[0], lambda: NOW[0]))


def slowed(function, seconds: float = 0.05):
    def slow(*arguments, **options):
        NOW[0] += seconds
        return function(*arguments, **options)

    return slow


NAMES = {name: getattr(no_jax, name) for name in NETWORK_OPERATORS}


def with_table(jax: dict[str, float], tmp_path) -> Submission:
    """A notebook whose table has 40 ms for No-JAX in every row, and these seconds for JAX; 30 ms in other rows."""
    filled = operators_table()
    for row in filled.rows:
        for column, seconds in ((NO_JAX, 0.04), (JAX, jax.get(row, 0.03))):
            times = tuple(seconds * (1 + 0.01 * i) for i in range(21))
            filled[row, column] = Measurement(times, None, row, True)
    session = Session(LocalTransport({"table": filled, **NAMES}), tmp_path, tmp_path)
    return Submission(session, CheckContext(np.random.default_rng(3), parameters=SimpleNamespace(**P5.parameters)))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(races, "IMAGE", 32)
    monkeypatch.setattr(races, "SIZE", 8)


def test_invented_times_are_refuted_by_the_external_clock(tmp_path, monkeypatch, small):
    monkeypatch.setattr(probes_race, "compiled", slowed(probes_race.compiled))
    submission = with_table({FUSED: 0.001, NETWORK: 0.05}, tmp_path)
    claims = table._races
    monkeypatch.setattr(table, "_races", lambda *arguments: claims(*arguments)[:1])
    monkeypatch.setattr(timing, "_time_course", lambda *_: 1.0)
    for check in (table.rows_are_comparisons, table.columns_agree, table.ratios_are_measured_again):
        with pytest.raises(CheckFailed, match="ahead is not as much faster as it says"):
            check.function(submission)


def both_sides(submission: Submission) -> dict:
    """Both sides of both claims by the row and the side."""
    operators = {name: submission.value(name) for name in NAMES}
    block = {name: operators[name] for name in table.OPERATORS}
    program, prepared = (
        submission.call(races.PROBES + "block_program"),
        submission.call(races.PROBES + "prepared_network", 5),
    )
    claims = {
        FUSED: races.fused_block(program, block, CLAIMED, STANDARD),
        NETWORK: races.network_forward(prepared, operators, CLAIMED, 5, STANDARD),
    }
    return {(row, side): getattr(claim, side) for row, claim in claims.items() for side in ("slow", "fast")}


def test_timed_calls_compute_the_same_and_jax_is_compiled_once(tmp_path, monkeypatch, small):
    monkeypatch.setattr(races, "CHECKED_SHARE", 1.0)
    submission = Submission(Session(LocalTransport(NAMES), tmp_path, tmp_path))
    for (_, side), call in both_sides(submission).items():
        for calls in (1, call.calls, call.calls):
            prepared = call.prepare(submission, calls)
            answer = submission.call(call.target, *prepared.arguments)
            prepared.check(answer)
        rolled = np.roll(answer["result"], 1) if side == "fast" else np.roll(answer, 1)
        with pytest.raises(CheckFailed, match="wrong values"):
            prepared.check({**answer, "result": rolled} if side == "fast" else rolled)


@pytest.mark.parametrize(
    ("row", "report", "reason"),
    [
        (FUSED, {"traces": 9}, "not compiled once"),
        (FUSED, {"traces": 0}, "not compiled once"),
        (FUSED, {"on_device": False}, "not on its"),
        (NETWORK, {"traces": 9}, "not compiled once"),
    ],
)
def test_a_side_that_is_traced_again_or_fed_from_numpy_fails(row, report, reason, tmp_path, small):
    submission = Submission(Session(LocalTransport(NAMES), tmp_path, tmp_path))
    call = both_sides(submission)[row, "fast"]
    prepared = call.prepare(submission, 1)
    answer = submission.call(call.target, *prepared.arguments)
    if report.get("traces"):
        prepared.check(answer)
    with pytest.raises(CheckFailed, match=reason):
        prepared.check({**answer, **report})


def test_traces_and_devices_are_seen():
    """A compiled function is traced once for the same shapes, and its arrays are JAX's."""
    kept = probes_race.on_device(np.ones(3, np.float32))
    program = probes_race.Program(lambda x: 2 * x)
    for _ in range(3):
        program.run(*kept.arrays)
    assert probes_race._report(program, np.ones(3), kept) | {"result": 0} == {
        "result": 0,
        "traces": 1,
        "on_device": True,
    }
    assert not probes_race._report(program, np.ones(3), keep(np.ones(3)))["on_device"]
    program._counted(*kept.arrays)  # not compiled
    assert program.traces == 2


@pytest.mark.parametrize(("row", "jax"), [(FUSED, 0.02), (FUSED, 0.04), (FUSED, 0.08), (NETWORK, 0.08)])
def test_the_column_that_the_table_has_ahead_is_timed_as_the_faster_one(row, jax, tmp_path):
    submission = with_table({row: jax}, tmp_path)
    claim = table._races(submission, table._table(submission))[row == NETWORK]
    assert ("compiled" in claim.fast.target) == (jax <= 0.04)
    assert claim.claimed.value == pytest.approx(max(0.04 / jax, jax / 0.04))
    assert (claim.course is None) == (jax > 0.04)
    assert not claim.directed
