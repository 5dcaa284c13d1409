"""The claims of P4's tables as calls that can be timed from outside: too small slices against analysed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.problem import Order
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timed_images import Placed, course_on_images, timed_on_images
from mlhood.grading.checks.timing_verdict import CourseVersion, TimedCall
from mlhood.grading.projects.p3.timed import draw
from mlhood.grading.projects.p4 import probes
from mlhood.grading.projects.p4.kernels import Triple
from mlhood.jaxlab.operators import no_jax
from mlhood.kernels.conv import CONV2D
from mlhood.kernels.layers import Layer

CALLS, NETWORK_CALLS = 16, 4  # in one message: they take several times as long as the round trip
MOST = 3.0
"""How many times as long slices may take in the student's process as the same slices here. Both run the course's code,
so the factor is 1, apart from the load of the machine."""
PROBES = "mlhood.grading.projects.p4.probes:"
NETWORK = (Layer(64, 56, 64, 3), Layer(64, 56, 128, 3, 2), Layer(128, 28, 128, 3), Layer(128, 28, 256, 3, 2))
"""The grader's network: C1 and C2 of ResNet-18, and the convolutions of stride 2 after them."""
EVERY_LAYER: dict[str, list[Any]] = {"sizes": [(3,)], "strides": [(1, 2)], "windows": [1]}
"""What `sliced_kernel` is also called with to run all of this network in slices, by the parameter `sliced_by`."""


def timed_slices(layer: Layer, order: Order, tiles: Triple) -> TimedCall:
    """Return a timed call of a layer in slices."""

    def place(submission: Submission) -> Placed:
        x, w, bias = draw(layer, submission.rng)
        function = submission.call(PROBES + "sliced_convolution", w, bias, layer.size, order, list(tiles))
        right = lambda image, channels: no_jax.conv2d(image, w[channels], bias[channels], padding=1)  # noqa: E731
        return Placed(function, x, len(w), right)

    return timed_on_images(place, f"what slices of {tiles} compute, {order}", calls=CALLS)


def same_slices(layer: Layer, order: Order, tiles: Triple) -> CourseVersion:
    """Return the same slices, run here."""

    def make() -> tuple[Callable[..., Any], np.ndarray]:
        x, w, bias = draw(layer, np.random.default_rng(0))
        return probes.sliced_convolution(w, bias, layer.size, order, list(tiles)), x

    return course_on_images(f"convolution in slices of {tiles}", make, MOST, CALLS)


def every_layer(submission: Submission) -> list[Any]:
    """Return what `sliced_kernel` is also called with, to run all of the network in slices."""
    return EVERY_LAYER.get(submission.parameters.sliced_by, [])


def _draw_network(rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray], list[int]]:
    """Draw an image, and the weights and strides of the grader's network."""
    first = NETWORK[0]
    x = rng.standard_normal((1, first.channels, first.size, first.size)).astype(np.float32)
    shapes = [(layer.filters, layer.channels, 3, 3) for layer in NETWORK]
    weights = [(rng.standard_normal(shape) / np.sqrt(shape[1] * 9)).astype(np.float32) for shape in shapes]
    return x, weights, [layer.stride for layer in NETWORK]


def timed_network(order: Order, tiles: Triple) -> TimedCall:
    """Return a timed call of the grader's network with the student's `sliced_kernel`."""

    def place(submission: Submission) -> Placed:
        x, weights, strides = _draw_network(submission.rng)
        direct = probes.network(lambda *_: CONV2D["direct"], order, list(tiles), weights, strides)

        arguments = submission.value("sliced_kernel"), order, list(tiles), weights, strides, *every_layer(submission)
        placed = submission.call(PROBES + "network", *arguments)
        return Placed(placed, x, NETWORK[-1].filters, lambda image, channels: direct(image)[:, channels])

    what = f"what a network computes by `sliced_kernel({order!r}, {tiles})`"
    return timed_on_images(place, what, calls=NETWORK_CALLS)


def same_network(solution: Callable[..., Callable], order: Order, tiles: Triple) -> CourseVersion:
    """Return the same network, run here by the course's own `sliced_kernel` with all arguments but order and tiles."""

    def make() -> tuple[Callable[..., Any], np.ndarray]:
        x, weights, strides = _draw_network(np.random.default_rng(0))
        return probes.network(solution, order, list(tiles), weights, strides), x

    return course_on_images(f"network in slices of {tiles}", make, MOST, NETWORK_CALLS)
