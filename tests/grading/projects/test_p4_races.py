from __future__ import annotations

import numpy as np
import pytest

from mlhood.dataflow.slicing.problem import ORDERS
from mlhood.grading.checks import timing
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import LocalTransport, Submission
from mlhood.grading.projects.p4 import probes, races
from mlhood.kernels.layers import Layer
from mlhood.measure.ratio import Ratio

SMALL, LARGE = (1, 2, 3), (16, 99, 99)
TOLD = Ratio(1.3, 1.2, 1.4)


def calls() -> list:
    layer = Layer(16, 14, 24, 3)
    found = races.slicings(
        layer, dict.fromkeys(ORDERS, SMALL), dict.fromkeys(ORDERS, LARGE), dict.fromkeys(ORDERS, TOLD)
    )
    return [call for one in found for call in (one.slow, one.fast, one.reference)]


@pytest.mark.parametrize("number", range(6))
def test_slices_that_race_compute_the_layer(number, tmp_path):
    submission, call = Submission(LocalTransport({}), tmp_path, tmp_path), calls()[number]
    arguments = call.make(submission.rng)
    result = submission.call(call.target, *arguments)
    call.check(arguments, result, submission.rng)
    with pytest.raises(CheckFailed, match="wrong values"):
        call.check(arguments, np.roll(result, 1), submission.rng)


def test_only_what_the_table_has_measured_races():
    one = races.slicings(Layer(16, 14, 24, 3), {"WS": SMALL}, {"WS": LARGE}, {"WS": TOLD})
    assert [race.name for race in one] == ["too small over analysed, WS"]


@pytest.mark.parametrize(
    ("factor", "exchanged", "state"),
    [(1, False, "holds"), (3, False, "holds"), (10, False, "fails"), (1, True, "fails")],
)
def test_forged_tables_fail_by_the_clock(factor, exchanged, state, tmp_path, monkeypatch):
    """Too small takes 1.3 times as long; with `exchanged` rows it is what the table has as analysed."""
    now, plain, ask = [0.0], probes.sliced, LocalTransport.ask

    def sliced(x, w, bias, factors, order, tiles):
        now[0] += 0.013 if tuple(tiles) == SMALL else 0.010
        return plain(x, w, bias, factors, order, tiles)

    def slowly(self, request, seconds):
        now[0] += 0.004
        return ask(self, request, seconds)

    monkeypatch.setattr(probes, "sliced", sliced)
    monkeypatch.setattr(LocalTransport, "ask", slowly)
    told = Ratio(1.3 * factor, 1.2 * factor, 1.4 * factor)
    small, analysed = (LARGE, SMALL) if exchanged else (SMALL, LARGE)
    (one,) = races.slicings(Layer(16, 14, 24, 3), {"IS": small}, {"IS": analysed}, {"IS": told})
    submission = Submission(LocalTransport({}), tmp_path, tmp_path)
    assert timing.race(submission, one, clock=lambda: now[0]).state == state
