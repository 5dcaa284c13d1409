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

TILES = [(order, tiles) for order in ORDERS for tiles in (SMALL, LARGE)]


@pytest.mark.parametrize(("order", "tiles"), TILES)
def test_timed_slices_compute_the_layer(order, tiles, tmp_path):
    submission = Submission(Session(LocalTransport({}), tmp_path, tmp_path))
    call = races._call(Layer(16, 14, 24, 3), order, tiles)
    for calls in (1, call.calls):
        prepared = call.prepare(submission, calls)
        result = submission.call(call.target, *prepared.arguments)
        prepared.check(result)
        with pytest.raises(CheckFailed, match="wrong values"):
            prepared.check(np.roll(result, 1))


@pytest.mark.parametrize(
    ("factor", "swapped", "seconds", "state"),
    [
        pytest.param(1, False, 0, "holds", id="honest"),
        pytest.param(1.9, False, 0, "fails", id="almost twice the ratio"),
        pytest.param(1, True, 0, "fails", id="rows swapped"),
        pytest.param(1, False, 0.1, "fails", id="slower than the same slices in the grader"),
    ],
)
def test_forged_tables_are_refuted_by_the_external_clock(factor, swapped, seconds, state, tmp_path, monkeypatch):
    """Too small tiles take 1.3 times as long; with `swapped` rows the table presents them as analysed."""
    now, original, send = [0.0], probes.sliced, LocalTransport.send

    def sliced(placed, factors, channels):
        now[0] += len(factors) * placed.seconds
        return original(placed, factors, channels)

    class Placed(probes.PlacedConvolution):
        def __init__(self, x, w, bias, order, tiles):
            super().__init__(x, w, bias, order, tiles)
            self.seconds = 0.0013 if tuple(tiles) == SMALL else 0.0010

    def timed_send(self, request, limit):
        now[0] += 0.004 + seconds
        return send(self, request, limit)

    monkeypatch.setattr(timing, "wait_until_quiet", lambda: None)
    monkeypatch.setattr(probes, "sliced", sliced)
    monkeypatch.setattr(probes, "PlacedConvolution", Placed)
    monkeypatch.setattr(LocalTransport, "send", timed_send)
    claimed = Ratio(1.3 * factor, 1.29 * factor, 1.31 * factor)
    small, analysed = (LARGE, SMALL) if swapped else (SMALL, LARGE)
    small, analysed = dict.fromkeys(ORDERS, small), dict.fromkeys(ORDERS, analysed)
    race = races.slicings(Layer(16, 14, 24, 3), small, analysed, dict.fromkeys(ORDERS, claimed))[0]
    submission = Submission(Session(LocalTransport({}), tmp_path, tmp_path))
    verdict = timing.measure_claim(submission, race, clocks=timing.Clocks(lambda: now[0], lambda: now[0]))
    assert verdict.state == state
    assert bool(verdict.what) == (seconds > 0)
