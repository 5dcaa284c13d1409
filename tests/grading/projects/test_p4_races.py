"""Timed comparisons of P4's slices."""

from __future__ import annotations

import numpy as np
import pytest

from mlhood.dataflow.slicing.problem import ORDERS
from mlhood.grading.checks import timing
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import Session, Submission
from mlhood.grading.projects.p4 import probes, races
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.kernels.layers import Layer
from mlhood.measure.ratio import Ratio

SMALL, LARGE = (1, 2, 3), (16, 99, 99)
CLAIMED = Ratio(1.3, 1.2, 1.4)


def calls() -> list:
    layer = Layer(16, 14, 24, 3)
    small, large, claimed = (dict.fromkeys(ORDERS, value) for value in (SMALL, LARGE, CLAIMED))
    comparisons = races.slicings(layer, small, large, claimed)
    return [call for race in comparisons for call in (race.slow, race.fast, race.reference)]


@pytest.mark.parametrize("index", range(6))
def test_timed_slices_compute_the_layer(index, tmp_path):
    submission, call = Submission(Session(LocalTransport({}), tmp_path, tmp_path)), calls()[index]
    arguments = call.draw_arguments(submission.rng)
    result = submission.call(call.target, *arguments)
    call.check(arguments, result, submission.rng)
    with pytest.raises(CheckFailed, match="wrong values"):
        call.check(arguments, np.roll(result, 1), submission.rng)


def test_only_measured_orders_are_timed():
    comparisons = races.slicings(Layer(16, 14, 24, 3), {"WS": SMALL}, {"WS": LARGE}, {"WS": CLAIMED})
    assert [race.name for race in comparisons] == ["too small over analysed, WS"]


@pytest.mark.parametrize(
    ("factor", "swapped", "state"), [(1, False, "holds"), (3, False, "holds"), (10, False, "fails"), (1, True, "fails")]
)
def test_forged_tables_are_refuted_by_the_external_clock(factor, swapped, state, tmp_path, monkeypatch):
    """Too small tiles take 1.3 times as long; with `swapped` rows the table presents them as analysed."""
    now, original, send = [0.0], probes.sliced, LocalTransport.send

    def sliced(x, w, bias, factors, order, tiles):
        now[0] += 0.013 if tuple(tiles) == SMALL else 0.010
        return original(x, w, bias, factors, order, tiles)

    def timed_send(self, request, seconds):
        now[0] += 0.004
        return send(self, request, seconds)

    monkeypatch.setattr(probes, "sliced", sliced)
    monkeypatch.setattr(LocalTransport, "send", timed_send)
    claimed = Ratio(1.3 * factor, 1.2 * factor, 1.4 * factor)
    small, analysed = (LARGE, SMALL) if swapped else (SMALL, LARGE)
    (race,) = races.slicings(Layer(16, 14, 24, 3), {"IS": small}, {"IS": analysed}, {"IS": claimed})
    submission = Submission(Session(LocalTransport({}), tmp_path, tmp_path))
    assert timing.measure_claim(submission, race, clock=lambda: now[0]).state == state
