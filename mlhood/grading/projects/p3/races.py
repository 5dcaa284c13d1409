"""The claims of P3.5's table as calls that can be timed from outside: a layer by loops against im2col and BLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing import KEEP
from mlhood.grading.checks.timing_verdict import Course, Prepared, TimedCall, TimingClaim
from mlhood.grading.projects.convolve import convolve
from mlhood.grading.rpc.codec import Remote
from mlhood.kernels.layers import Layer
from mlhood.kernels.tables import RESNET18
from mlhood.measure.ratio import Ratio

CHECKED_CHANNELS = 16  # of a result
CALLS = 4  # by BLAS they take several times as long as the round trip
MOST = 8.0
"""How many times as long `conv_direct` may take as the course's compiled loops. Measured: compiled loops in the worst
order with tests for the padding inside take 1.5 times as long, `einsum` on all windows 1.2, a product per pixel 2.7."""
REPEATED = "mlhood.grading.projects.p3.probes:repeated"
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
Operands = Callable[[Submission], tuple[Remote, Arrays]]


def convolutions(direct: Remote, blas: Remote, claimed: dict[str, Ratio]) -> list[TimingClaim]:
    """Return one timed comparison for each of these rows.

    Args:
        direct: The notebook's convolution by loops.
        blas: The notebook's convolution by im2col and BLAS.
        claimed: Ratio no-BLAS / BLAS in the table, by row.
    """
    races = []
    for row, ratio in claimed.items():
        layer = RESNET18[row]
        operands = kept_operands(layer)
        slow = repeated_call("conv_direct", direct, layer, operands)
        fast = repeated_call("conv_blas", blas, layer, operands)
        races.append(TimingClaim(f"{row}, no-BLAS over BLAS", slow, fast, ratio, definition(layer)))
    return races


def definition(layer: Layer) -> Course:
    """Return the course's convolution by compiled loops, which is what P3.2 asks for."""
    operands = draw(layer, np.random.default_rng(0))

    def run() -> None:
        from mlhood.kernels.conv import naive

        naive(*operands, layer.stride, layer.padding, threads=1)

    return Course("no-BLAS convolution", run, MOST)


def draw(layer: Layer, rng: np.random.Generator) -> Arrays:
    """Draw an image, weights and biases for a layer."""
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    w = 0.05 * rng.standard_normal((layer.filters, layer.channels, layer.kernel, layer.kernel), np.float32)
    return x, w, rng.standard_normal(layer.filters, np.float32)


def kept_operands(layer: Layer) -> Operands:
    """Return a function that sends new operands of a layer when it is first called, and returns them every time."""
    sent: list[tuple[Remote, Arrays]] = []

    def operands(submission: Submission) -> tuple[Remote, Arrays]:
        if not sent:
            drawn = draw(layer, submission.rng)
            sent.append((submission.call(KEEP, *drawn), drawn))
        return sent[0]

    return operands


def repeated_call(name: str, function: Remote, layer: Layer, operands: Operands) -> TimedCall:
    """Return a timed call of a convolution, each time on another image.

    Args:
        name: Names the function in the message if its result is wrong.
        function: The convolution.
        layer: The sizes.
        operands: Of the layer.
    """
    steps = [layer.stride, layer.padding]

    def prepare(submission: Submission, calls: int) -> Prepared:
        remote, (x, w, bias) = operands(submission)
        rng = submission.rng
        shifts, shares = rng.integers(x.size, size=calls).tolist(), rng.uniform(0.5, 2, calls).tolist()
        channels = draw_channels(len(w), rng)

        def check(result: Any) -> None:
            # convolution is linear: the sum of the results is the result of the sum
            total = sum(share * np.roll(x, shift) for shift, share in zip(shifts, shares, strict=True))
            check_channels((total, w, bias * sum(shares), *steps), channels, result, what)

        return Prepared((function, remote, shifts, shares, channels, steps), check)

    what = f"what `{name}` returns while it is timed"
    return TimedCall(REPEATED, prepare, CALLS)


def draw_channels(filters: int, rng: np.random.Generator) -> list[int]:
    """Draw the channels of a result that are returned and checked."""
    return rng.choice(filters, min(filters, CHECKED_CHANNELS), replace=False).tolist()


def check_channels(arguments: tuple[Any, ...], channels: list[int], result: Any, what: str) -> None:
    """Check channels of a convolution's result.

    Args:
        arguments: x, w, bias, stride and padding.
        channels: Which ones they are.
        result: Of these channels.
        what: The result in words.

    Raises:
        CheckFailed: The channels or the shape are wrong.
    """
    x, w, bias, *steps = arguments
    want = convolution(x, w[channels], bias[channels], *steps)
    given = f"x={x.shape}, w={w.shape}"
    expect.close(result, want, what, rtol=1e-3, atol=1e-3, given=given)


def convolution(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """Return the convolution of a batch, in float64.

    Args:
        x: [N, C, H, W].
        w: [F, C, KH, KW].
        bias: [F].
        stride: Step in both directions.
        padding: Zeros on all four sides.
    """
    x, w, bias = (array.astype(np.float64) for array in (x, w, bias))
    return convolve(x, w, bias, stride=stride, padding=padding)
