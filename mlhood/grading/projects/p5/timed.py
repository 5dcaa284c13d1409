"""The claims of P5.3's table about what JAX can fuse, as calls that can be timed from outside.

The side without JAX is the student's code. The other side is the course's program, compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timed_images import Placed, course_on_images, timed_on_images
from mlhood.grading.checks.timing_verdict import TimedCall, TimingClaim
from mlhood.grading.rpc.codec import Remote
from mlhood.jaxlab.operators import network, no_jax
from mlhood.jaxlab.operators.cases import FUSED, NETWORK, resnet18
from mlhood.jaxlab.operators.layouts import Layout
from mlhood.measure.ratio import Ratio

PROBES = "mlhood.grading.projects.p5.probes_timed:"
CHANNELS, SIZE, CLASSES, IMAGE = 64, 56, 1000, (1, 3, 224, 224)  # as in the table
BLOCKS = 8  # calls of the block in one message: they take longer than the round trip
CHECKED_SHARE = 0.3  # of the network's results: checking one takes longer than the network itself
MOST = 80.0
"""How many times as long the notebook's operators may take as the course's. NumPy's natural styles are far apart: next
to one matrix product, a product per position of the kernel takes 7 times as long and `einsum` on all windows, which
does not call BLAS, 55 times. Being slow gains nothing here, since the faster side is the course's."""


ALLOWANCE = 2.0
"""As of `TimingClaim`. In the table both sides use all cores, and here one: XLA's threads and BLAS's do not gain alike,
and beside other programs threads wait for each other. ResNet-18 with JAX over without, on two cores: 1.24 in the table,
and here 1.16 with one core, 1.38 with both; on a busy machine 0.81 in the table and 1.03 here."""


def claims(operators: dict[str, Remote], layout: Layout, claimed: dict[str, Ratio], seed: int) -> list[TimingClaim]:
    """Return a timed comparison of both columns for each of the rows `FUSED` and `NETWORK`.

    The claim is that the column which the table has ahead is as much faster; being ahead is no task.

    Args:
        operators: The notebook's, by name.
        layout: That they compute in.
        claimed: Ratio No-JAX / JAX in the table, by row.
        seed: Of the network's weights, which are not known beforehand.
    """
    x, *weights = draw_block(np.random.default_rng(0))
    forward = partial(network.forward, no_jax, network.tree(resnet18(seed)))
    versions = {FUSED: (partial(_block, weights=weights), x), NETWORK: (forward, np.ones(IMAGE, np.float32))}
    notebook, found = {"operators": operators, "layout": [*layout]}, []
    for row, version in versions.items():
        plain, compiled = (_timed(row, side, forward, seed) for side in (notebook, None))
        if (ratio := claimed[row]).value >= 1:
            course = course_on_images(row, lambda version=version: version, MOST)
            found.append(TimingClaim(f"{row}, No-JAX over JAX", plain, compiled, ratio, course, ALLOWANCE, False))
        else:
            ratio = Ratio(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
            found.append(TimingClaim(f"{row}, JAX over No-JAX", compiled, plain, ratio, None, ALLOWANCE, False))
    return found


def _timed(row: str, notebook: dict[str, Any] | None, forward: Callable[..., Any], seed: int) -> TimedCall:
    """Return a timed call of a row's computation with the notebook's operators, or with JAX."""

    def place(submission: Submission) -> Placed:
        if row == FUSED:
            x, *weights = draw_block(submission.rng)
            placed = submission.call(PROBES + "timed_block", notebook, *weights)
            return Placed(placed, x, CHANNELS, lambda image, channels: _block(image, weights, channels))
        placed, image = submission.call(PROBES + "timed_network", notebook, seed), submission.normal(*IMAGE)
        return Placed(placed, image, CLASSES, lambda image, channels: forward(image)[:, channels])

    calls, checked = (BLOCKS, 1.0) if row == FUSED else (1, CHECKED_SHARE)
    return timed_on_images(place, f"what {row} computes while it is timed", calls=calls, atol=1e-2, checked=checked)


def draw_block(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Draw an image, weights, mean, variance, scale and offset of a block."""
    x = rng.standard_normal((1, CHANNELS, SIZE, SIZE), np.float32)
    w = 0.05 * rng.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32)
    mean, bias = (rng.standard_normal(CHANNELS, np.float32) for _ in range(2))
    var, weight = (rng.uniform(0.5, 2, CHANNELS).astype(np.float32) for _ in range(2))
    return x, w, mean, var, weight, bias


def _block(image: np.ndarray, weights: Sequence[np.ndarray], channels: slice | list[int] = slice(None)) -> np.ndarray:
    w, mean, var, weight, bias = (array[channels] for array in weights)
    return no_jax.relu(no_jax.batch_norm(no_jax.conv2d(image, w, padding=1), mean, var, weight, bias))
