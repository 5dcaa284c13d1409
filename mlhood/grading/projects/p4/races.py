"""The claims of P4.5's table as calls that can be timed from outside: too small slices against analysed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.problem import ORDERS, Order
from mlhood.grading.checks.timing import TimedCall, TimingClaim
from mlhood.grading.projects.p3.races import REFERENCE, check_some, layer_call
from mlhood.grading.projects.p4.reference import Triple
from mlhood.kernels.layers import Layer
from mlhood.measure.ratio import Ratio

REPEATS = 12  # of a convolution in one call, so that it takes longer than the round trip
SLICED = "mlhood.grading.projects.p4.probes:sliced"


def slicings(
    layer: Layer, small: Mapping[Order, Triple], analysed: Mapping[Order, Triple], claimed: Mapping[str, Ratio]
) -> list[TimingClaim]:
    """Return one timed comparison for each order that the table has measured.

    Args:
        layer: The layer chosen in the notebook.
        small: Tiles that are too small.
        analysed: Tiles that should be faster.
        claimed: Ratio "too small" / "analysed" in the table, by order.
    """
    reference = layer_call(REFERENCE, layer)
    return [
        TimingClaim(
            f"too small over analysed, {order}",
            _call(reference, order, small[order]),
            _call(reference, order, analysed[order]),
            reference,
            claimed[order],
        )
        for order in ORDERS
        if order in claimed
    ]


def _call(unsliced: TimedCall, order: Order, tiles: Triple) -> TimedCall:
    """Return a timed call of the convolution of `unsliced` in slices, repeated many times."""

    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        x, w, bias, *_ = unsliced.draw_arguments(rng)
        return x, w, bias, rng.uniform(0.1, 0.2, REPEATS).astype(np.float32), order, list(tiles)

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        x, w, bias, factors, *_ = arguments
        summed = x * factors.sum(), w, bias * len(factors), 1, 1
        check_some(summed, result, rng, f"what slices of {tiles} compute, {order}")

    return TimedCall(SLICED, make, check)
