"""The claims of P3.5's table as calls that can be timed from outside: a layer by loops against im2col and BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.timing import TimedCall, TimingClaim
from mlhood.grading.projects.p3.reference import convolution
from mlhood.grading.rpc.codec import Remote
from mlhood.kernels.layers import Layer
from mlhood.kernels.tables import RESNET18
from mlhood.measure.ratio import Ratio

CHECKED_CHANNELS = 16  # of a result
REPEATS = 8  # of a convolution by BLAS in one call, since one takes less time than the round trip
REPEATED = "mlhood.grading.projects.p3.probes:repeated"
REFERENCE = "mlhood.kernels.conv:im2col_blas"


def convolutions(direct: Remote, blas: Remote, reference: Remote, claimed: dict[str, Ratio]) -> list[TimingClaim]:
    """Return one timed comparison for each of these rows.

    Args:
        direct: The notebook's convolution by loops.
        blas: The notebook's convolution by im2col and BLAS.
        reference: The package's, `REFERENCE`.
        claimed: Ratio no-BLAS / BLAS in the table, by row.
    """
    races = []
    for row, ratio in claimed.items():
        layer = RESNET18[row]
        slow = repeated_call("conv_direct", direct, layer, 1)
        fast = repeated_call("conv_blas", blas, layer, REPEATS)
        ours = repeated_call("im2col_blas", reference, layer, REPEATS)
        races.append(TimingClaim(f"{row}, no-BLAS over BLAS", slow, fast, ours, ratio))
    return races


def layer_call(target: str, layer: Layer) -> TimedCall:
    """Return a timed call of a convolution (x, w, bias, stride, padding) on newly drawn data of a layer.

    Args:
        target: The function, also named in the message if its result is wrong.
        layer: The sizes.
    """
    shape = (1, layer.channels, layer.size, layer.size)

    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        x, bias = (rng.standard_normal(size, np.float32) for size in (shape, layer.filters))
        w = 0.05 * rng.standard_normal((layer.filters, layer.channels, layer.kernel, layer.kernel), np.float32)
        return x, w, bias, layer.stride, layer.padding

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        check_some(arguments, result, rng, f"what `{target.rpartition(':')[2]}` returns while it is timed")

    return TimedCall(target, make, check)


def check_some(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator, what: str) -> None:
    """Check randomly chosen channels of a convolution's result.

    Args:
        arguments: x, w, bias, stride and padding.
        result: The result to check.
        rng: Chooses the channels.
        what: The result in words.

    Raises:
        CheckFailed: The channels or the shape are wrong.
    """
    x, w, bias, *steps = arguments
    chosen = rng.choice(len(w), min(len(w), CHECKED_CHANNELS), replace=False)
    want = convolution(x, w[chosen], bias[chosen], *steps)
    given = f"x={x.shape}, w={w.shape}"
    got = expect.array(result, (len(x), len(w), *want.shape[2:]), what, given=given)
    expect.close(got[:, chosen], want, what, rtol=1e-3, atol=1e-3, given=given)


def repeated_call(name: str, function: Remote, layer: Layer, times: int) -> TimedCall:
    """Return a timed call of a convolution on newly drawn data, repeated on a different image each time.

    Args:
        name: Names the function in the message if its result is wrong.
        function: The convolution.
        layer: The sizes.
        times: Number of repetitions.
    """
    single = layer_call(name, layer)

    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        return function, *single.draw_arguments(rng), rng.uniform(0.5, 2, times).astype(np.float32)

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        _, x, w, bias, stride, padding, shares = arguments
        # convolution is linear: the sum of the results is the result of the sum
        total = sum(share * np.roll(x, shift, axis=1) for shift, share in enumerate(shares))
        single.check((total, w, bias * shares.sum(), stride, padding), result, rng)

    return TimedCall(REPEATED, make, check, times)
