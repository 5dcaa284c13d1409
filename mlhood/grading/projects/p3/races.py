"""What the table of P3.5 claims, as calls that can be timed from outside: a layer by loops against im2col and BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.timing import Race, Timed
from mlhood.grading.projects.p3.reference import convolution
from mlhood.grading.rpc.codec import Remote
from mlhood.kernels.layers import Layer
from mlhood.kernels.tables import RESNET18
from mlhood.measure.ratio import Ratio

CHANNELS = 16  # of a result that are looked at
TIMES = 8  # in one call by BLAS, which takes less time than the way there and back
REPEATED = "mlhood.grading.projects.p3.probes:repeated"
REFERENCE = "mlhood.kernels.conv:im2col_blas"


def convolutions(direct: Remote, blas: Remote, reference: Remote, told: dict[str, Ratio]) -> list[Race]:
    """The races of some of C1 to C4.

    Args:
        direct: The notebook's convolution by loops.
        blas: The notebook's by im2col and BLAS.
        reference: The package's, `REFERENCE`.
        told: No-BLAS over BLAS as the table has it, by row.
    """
    return [_race(row, RESNET18[row], direct, blas, reference, ratio) for row, ratio in told.items()]


def layer_call(target: str, layer: Layer) -> Timed:
    """A call of a convolution (x, w, bias, stride, padding) on a layer whose numbers are drawn anew.

    Args:
        target: The function; said of it where its result is wrong.
        layer: The sizes.
    """
    shape = (1, layer.channels, layer.size, layer.size)

    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        x, bias = (rng.standard_normal(size, np.float32) for size in (shape, layer.filters))
        w = 0.05 * rng.standard_normal((layer.filters, layer.channels, layer.kernel, layer.kernel), np.float32)
        return x, w, bias, layer.stride, layer.padding

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        check_some(arguments, result, rng, f"what `{target.rpartition(':')[2]}` returns while it is timed")

    return Timed(target, make, check)


def check_some(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator, what: str) -> None:
    """Check some channels of a convolution's result, which nobody can know before.

    Args:
        arguments: x, w, bias, stride and padding.
        result: What came.
        rng: Draws the channels.
        what: What came, in words.

    Raises:
        CheckFailed: They are wrong, or the result has another shape.
    """
    x, w, bias, *steps = arguments
    drawn = rng.choice(len(w), min(len(w), CHANNELS), replace=False)
    want = convolution(x, w[drawn], bias[drawn], *steps)
    given = f"x={x.shape}, w={w.shape}"
    got = expect.array(result, (len(x), len(w), *want.shape[2:]), what, given=given)
    expect.close(got[:, drawn], want, what, rtol=1e-3, atol=1e-3, given=given)


def repeated_call(name: str, function: Remote, layer: Layer, times: int) -> Timed:
    """A call of a convolution on a layer whose numbers are drawn anew, several times, each on another image.

    Args:
        name: Said of it where its result is wrong.
        function: The convolution.
        layer: The sizes.
        times: How often.
    """
    plain = layer_call(name, layer)

    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        return function, *plain.make(rng), rng.uniform(0.5, 2, times).astype(np.float32)

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        _, x, w, bias, stride, padding, shares = arguments
        # a convolution of a sum is the sum of the convolutions
        whole = sum(share * np.roll(x, number, axis=1) for number, share in enumerate(shares))
        plain.check((whole, w, bias * shares.sum(), stride, padding), result, rng)

    return Timed(REPEATED, make, check, times)


def _race(row: str, layer: Layer, direct: Remote, blas: Remote, reference: Remote, told: Ratio) -> Race:
    return Race(
        f"{row}, no-BLAS over BLAS",
        repeated_call("conv_direct", direct, layer, 1),
        repeated_call("conv_blas", blas, layer, TIMES),
        repeated_call("im2col_blas", reference, layer, TIMES),
        told,
    )
