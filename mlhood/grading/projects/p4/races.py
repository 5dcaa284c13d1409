"""What the table of P4.5 claims, as calls that can be timed from outside: slices that are too small against others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.problem import ORDERS, Order
from mlhood.grading.checks.timing import Race, Timed
from mlhood.grading.projects.p3.races import REFERENCE, check_some, layer_call
from mlhood.grading.projects.p4.reference import Triple
from mlhood.kernels.layers import Layer
from mlhood.measure.ratio import Ratio

CONVOLUTIONS = 12  # in one call, so that it takes longer than the way there and back
SLICED = "mlhood.grading.projects.p4.probes:sliced"


def slicings(
    layer: Layer, small: Mapping[Order, Triple], analysed: Mapping[Order, Triple], told: Mapping[str, Ratio]
) -> list[Race]:
    """The race of each order that the table has measured.

    Args:
        layer: The one that the notebook has chosen.
        small: Tiles that are too small.
        analysed: Tiles that should be faster.
        told: "too small" over "analysed" as the table has it.
    """
    reference = layer_call(REFERENCE, layer)
    return [
        Race(
            f"too small over analysed, {order}",
            _call(reference, order, small[order]),
            _call(reference, order, analysed[order]),
            reference,
            told[order],
        )
        for order in ORDERS
        if order in told
    ]


def _call(plain: Timed, order: Order, tiles: Triple) -> Timed:
    """The convolution of `plain` in slices, many times."""

    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        x, w, bias, *_ = plain.make(rng)
        return x, w, bias, rng.uniform(0.1, 0.2, CONVOLUTIONS).astype(np.float32), order, list(tiles)

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        x, w, bias, factors, *_ = arguments
        same = x * factors.sum(), w, bias * len(factors), 1, 1
        check_some(same, result, rng, f"what slices of {tiles} compute, {order}")

    return Timed(SLICED, make, check)
