"""The claims of P4.5's table as calls that can be timed from outside: too small slices against analysed ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.problem import ORDERS, Order
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing_claim import Course, Prepared, TimedCall, TimingClaim
from mlhood.grading.projects.p3.races import Arrays, check_channels, draw, draw_channels
from mlhood.grading.projects.p4 import probes
from mlhood.grading.projects.p4.reference import Triple
from mlhood.grading.rpc.codec import Remote
from mlhood.kernels.layers import Layer
from mlhood.measure.ratio import Ratio

CALLS = 16  # of a convolution in one message: they take several times as long as the round trip
MOST = 3.0
"""How many times as long slices may take in the student's process as the same slices here. Both run the course's code,
so the factor is 1, apart from the load of the machine."""
ALLOWANCE = 2.0
"""By how much a ratio of the judge may be smaller than the table's beyond both errors: its rows are measured one
after another, so what else the machine does in the meantime is part of their ratio, and of no interval. Measured with
four kinds of small tiles in C1 to C4: 0.84 to 1.08 times, and once, while the machine was disturbed, 0.66."""
PLACE, SLICED = (f"mlhood.grading.projects.p4.probes:{name}" for name in ("place", "sliced"))


def slicings(
    layer: Layer, small: Mapping[Order, Triple], analysed: Mapping[Order, Triple], claimed: Mapping[Order, Ratio]
) -> list[TimingClaim]:
    """Return one timed comparison for each order.

    Args:
        layer: The layer chosen in the notebook.
        small: Tiles that are too small.
        analysed: Tiles that should be faster.
        claimed: Ratio "too small" / "analysed" in the table, by order.
    """
    return [
        TimingClaim(
            f"too small over analysed, {order}",
            _call(layer, order, small[order]),
            _call(layer, order, analysed[order]),
            claimed[order],
            _same_slices(layer, order, small[order]),
            ALLOWANCE,
        )
        for order in ORDERS
    ]


def _call(layer: Layer, order: Order, tiles: Triple) -> TimedCall:
    """Return a timed call of the layer in slices, on an image times another factor in each call."""
    sent: list[tuple[Remote, Arrays]] = []

    def prepare(submission: Submission, calls: int) -> Prepared:
        rng = submission.rng
        if not sent:
            drawn = draw(layer, rng)
            sent.append((submission.call(PLACE, *drawn, order, list(tiles)), drawn))
        placed, (x, w, bias) = sent[0]
        factors, channels = rng.uniform(0.1, 0.2, calls).tolist(), draw_channels(len(w), rng)

        def check(result: Any) -> None:
            summed = x * sum(factors), w, bias * calls, 1, 1
            check_channels(summed, channels, result, f"what slices of {tiles} compute, {order}")

        return Prepared((placed, factors, channels), check)

    return TimedCall(SLICED, prepare, CALLS)


def _same_slices(layer: Layer, order: Order, tiles: Triple) -> Course:
    """Return the same slices, run here."""

    @cache
    def placed() -> probes.PlacedConvolution:
        return probes.place(*draw(layer, np.random.default_rng(0)), order, list(tiles))

    def run() -> None:
        probes.sliced(placed(), [0.1] * CALLS, [0])

    return Course(f"convolution in slices of {tiles}", run, MOST, CALLS)
