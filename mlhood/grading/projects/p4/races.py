"""The claims of P4's tables as calls that can be timed from outside: too small slices against analysed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.problem import ORDERS, Order
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing_verdict import Course, Prepared, TimedCall, TimingClaim
from mlhood.grading.projects.p3.races import Arrays, check_channels, draw, draw_channels
from mlhood.grading.projects.p4 import probes
from mlhood.grading.projects.p4.kernels import Triple
from mlhood.grading.rpc.codec import Remote
from mlhood.kernels.conv import CONV2D
from mlhood.kernels.layers import Layer
from mlhood.measure.ratio import Ratio

CALLS = 16  # of a convolution in one message: they take several times as long as the round trip
MOST = 3.0
"""How many times as long slices may take in the student's process as the same slices here. Both run the course's code,
so the factor is 1, apart from the load of the machine."""
PROBES = "mlhood.grading.projects.p4.probes:"
PLACE, SLICED = PROBES + "place", PROBES + "sliced"
NETWORK = (Layer(64, 56, 64, 3), Layer(64, 56, 128, 3, 2), Layer(128, 28, 128, 3), Layer(128, 28, 256, 3, 2))
"""The grader's network: C1 and C2 of ResNet-18, and the convolutions of stride 2 after them."""
NETWORK_CALLS = 4
EVERY_LAYER: dict[str, list[Any]] = {"sizes": [(3,)], "strides": [(1, 2)], "windows": [1]}
"""What `sliced_kernel` is also called with to run all of this network in slices, by the parameter `sliced_by`."""


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


def every_layer(submission: Submission) -> list[Any]:
    """Return what `sliced_kernel` is also called with, to run all of the network in slices."""
    return EVERY_LAYER.get(submission.parameters.sliced_by, [])


def _same_slices(layer: Layer, order: Order, tiles: Triple) -> Course:
    """Return the same slices, run here."""

    @cache
    def placed() -> probes.PlacedConvolution:
        return probes.place(*draw(layer, np.random.default_rng(0)), order, list(tiles))

    def run() -> None:
        probes.sliced(placed(), [0.1] * CALLS, [0])

    return Course(f"convolution in slices of {tiles}", run, MOST, CALLS)


def networks(
    small: Mapping[Order, Triple],
    analysed: Mapping[Order, Triple],
    claimed: Mapping[Order, Ratio],
    solution: Callable[..., Callable],
) -> list[TimingClaim]:
    """Return one timed comparison of whole networks for each order.

    Args:
        small: As of `slicings`.
        analysed: As of `slicings`.
        claimed: As of `slicings`.
        solution: The course's own `sliced_kernel`, with all of its arguments but the first two.
    """
    return [
        TimingClaim(
            f"the network, too small over analysed, {order}",
            _network_call(order, small[order]),
            _network_call(order, analysed[order]),
            claimed[order],
            _same_network(order, small[order], solution),
        )
        for order in ORDERS
    ]


def _draw_network(rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray], list[int]]:
    """Draw an image, and the weights and strides of the grader's network."""
    first = NETWORK[0]
    x = rng.standard_normal((1, first.channels, first.size, first.size)).astype(np.float32)
    shapes = [(layer.filters, layer.channels, 3, 3) for layer in NETWORK]
    weights = [(rng.standard_normal(shape) / np.sqrt(shape[1] * 9)).astype(np.float32) for shape in shapes]
    return x, weights, [layer.stride for layer in NETWORK]


def _network_call(order: Order, tiles: Triple) -> TimedCall:
    """Return a timed call of the grader's network with the student's `sliced_kernel`, on another image each time."""
    sent: list[tuple[Remote, np.ndarray]] = []

    def prepare(submission: Submission, calls: int) -> Prepared:
        rng = submission.rng
        if not sent:
            drawn = _draw_network(rng)
            function, asked = submission.value("sliced_kernel"), every_layer(submission)
            placed = submission.call(PROBES + "place_network", function, order, list(tiles), *drawn, *asked)
            sent.append((placed, probes.PlacedNetwork(_direct, *drawn)(1.0)))
        placed, output = sent[0]
        factors, channels = rng.uniform(0.1, 0.2, calls).tolist(), draw_channels(output.shape[1], rng)

        def check(result: Any) -> None:
            want = output[:, channels] * np.float32(sum(factors))  # without a bias, a positive factor passes through
            what = f"what a network computes by `sliced_kernel({order!r}, {tiles})`"
            expect.close(result, want, what, rtol=2e-3, atol=2e-3 * float(np.abs(want).max()))

        return Prepared((placed, factors, channels), check)

    return TimedCall(PROBES + "networked", prepare, NETWORK_CALLS)


def _direct(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
    return CONV2D["direct"](np.ascontiguousarray(x), w, bias, stride, padding)


def _same_network(order: Order, tiles: Triple, solution: Callable[..., Callable]) -> Course:
    """Return the same network, run here by the course's own `sliced_kernel`."""

    @cache
    def placed() -> probes.PlacedNetwork:
        return probes.place_network(solution, order, list(tiles), *_draw_network(np.random.default_rng(0)))

    def run() -> None:
        probes.networked(placed(), [0.1] * NETWORK_CALLS, [0])

    return Course(f"network in slices of {tiles}", run, MOST, NETWORK_CALLS)
