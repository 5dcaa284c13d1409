"""Checks of P3.2 and P3.4: a convolution by the definition, and one that is a product of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3 import refusals
from mlhood.grading.projects.p3.reference import convolution

PROBES = "mlhood.grading.projects.p3.probes:"


def draw(submission: Submission, *shape: int) -> np.ndarray:
    """float32 numbers around 0."""
    return submission.rng.standard_normal(shape).astype(np.float32)


def flat_weights(submission: Submission, filters: int, channels: int, high: int, wide: int) -> np.ndarray:
    """Weights that are the same all over a window.

    A kernel that is laid on the wrong way round is told of by one check; the others do not notice.
    """
    return np.ascontiguousarray(
        np.broadcast_to(draw(submission, filters, channels, 1, 1), (filters, channels, high, wide))
    )


def _compare(
    submission: Submission, name: str, x: np.ndarray, w: np.ndarray, stride: int, padding: int, hint: str
) -> None:
    """Compare with the reference, without a bias."""
    bias = np.zeros(len(w), np.float32)
    given = f"x {x.shape}, w {w.shape}, stride {stride}, padding {padding}"
    want = convolution(x, w, bias, stride, padding)
    with refusals.case(given, hint):
        got = submission.call(name, x.copy(), w.copy(), bias, stride, padding)
    expect.close(got, want, f"what `{name}` returns", given=given, hint=hint)


def _adds_bias(submission: Submission, name: str) -> None:
    """A bias moves every channel by its number: judged by the difference, whatever the rest is worth.

    The first of two images is looked at: a bias that is added once for each image adds up there.
    """
    x, w = draw(submission, 2, 2, 6, 6), flat_weights(submission, 3, 2, 3, 3)
    bias = (1 + np.arange(3) + submission.rng.random(3)).astype(np.float32)
    call = submission.call
    with refusals.case(f"x {x.shape}, w {w.shape}, stride 1, padding 0"):
        without, moved = (call(name, x.copy(), w.copy(), b.copy(), 1, 0) for b in (np.zeros_like(bias), bias))
    shape = without.shape if isinstance(without, np.ndarray) else ()
    expect.true(
        len(shape) == 4 and shape[0] > 0 and shape[1] == len(bias),
        f"wrong shape of what `{name}` returns",
        expected=(2, 3, 4, 4),
        got=shape or without,
    )
    difference = expect.array(moved, shape, f"what `{name}` returns") - without
    want = np.broadcast_to(bias[:, None, None], shape[1:])
    hint = "bias[f] is added once to every output of channel f"
    expect.close(
        difference[0],
        want,
        "what the bias adds",
        atol=1e-4,
        given=f"a bias of {[round(float(one), 2) for one in bias]}",
        hint=hint,
    )


@points(5)
def values_are_right(submission: Submission) -> None:
    """`conv_direct` adds up x times w over every window."""
    hint = "y[n, f, oh, ow] = sum over c, i, j of x[n, c, oh + i, ow + j] * w[f, c, i, j]: the kernel is not flipped"
    _compare(submission, "conv_direct", draw(submission, 1, 3, 7, 7), draw(submission, 4, 3, 3, 3), 1, 0, hint)


@points(3)
def stride_is_taken(submission: Submission) -> None:
    """`conv_direct` moves the window by `stride` in both directions."""
    hint = "the window of y[.., oh, ow] starts at row oh * stride and column ow * stride"
    for size, stride in ((9, 2), (11, 3)):
        x, w = draw(submission, 1, 2, size, size), flat_weights(submission, 3, 2, 3, 3)
        _compare(submission, "conv_direct", x, w, stride, 0, hint)


@points(3)
def padding_is_zero_all_around(submission: Submission) -> None:
    """`conv_direct` puts `padding` zeros on all four sides."""
    hint = "rows -padding to -1 and H to H + padding - 1 hold zeros, and so do the columns left and right"
    for padding in (1, 2):
        x, w = draw(submission, 1, 2, 6, 6), flat_weights(submission, 3, 2, 3, 3)
        _compare(submission, "conv_direct", x, w, 1, padding, hint)


@points(2)
def bias_is_added(submission: Submission) -> None:
    """`conv_direct` adds the bias of its channel to every output."""
    _adds_bias(submission, "conv_direct")


@points(2)
def any_sizes_will_do(submission: Submission) -> None:
    """`conv_direct` takes batches, and images and kernels that are not square."""
    hint = "height and width each have their own size, kernel and output; images follow each other along axis 0"
    for x_shape, kernel in (((3, 2, 5, 8), (2, 4)), ((2, 1, 9, 4), (5, 1))):
        x, w = draw(submission, *x_shape), flat_weights(submission, 4, x_shape[1], *kernel)
        _compare(submission, "conv_direct", x, w, 1, 0, hint)


@points(1)
def inputs_are_left_alone(submission: Submission) -> None:
    """`conv_direct` changes none of its inputs."""
    given = draw(submission, 2, 2, 6, 6), draw(submission, 3, 2, 3, 3), draw(submission, 3)
    found = _after_call(submission, "conv_direct", [array.copy() for array in given], 1, 1)
    for name, before, after in zip(("x", "w", "bias"), given, found, strict=True):
        same = isinstance(after, np.ndarray) and np.array_equal(before, after)
        hint = "write only into arrays that you have made yourself"
        expect.true(same, f"`conv_direct` changes {name}", expected="as it was", got="other values", hint=hint)


def _after_call(submission: Submission, name: str, arrays: list[np.ndarray], *rest: int) -> Any:
    """What the arrays hold after a call."""
    with refusals.case():
        found = submission.call(PROBES + "after_call", submission.value(name), arrays, list(rest))
    return found if isinstance(found, list) and len(found) == len(arrays) else [None] * len(arrays)


def _product(submission: Submission, x: np.ndarray, w: np.ndarray) -> object:
    with refusals.case(f"x {x.shape}, w {w.shape}, stride 1, padding 1"):
        return submission.call("conv_blas", x.copy(), w.copy(), np.zeros(len(w), np.float32), 1, 1)


@points(3)
def product_is_right(submission: Submission) -> None:
    """`conv_blas` makes the same of an image as the definition."""
    hint = "w.reshape(F, C * KH * KW) @ im2col(x[n], (KH, KW), stride, padding), reshaped to [F, OH, OW]"
    for shape, kernel, stride, padding in (((1, 3, 7, 7), (3, 3), 1, 0), ((1, 2, 9, 6), (3, 2), 2, 1)):
        w = draw(submission, 4, shape[1], *kernel)
        _compare(submission, "conv_blas", draw(submission, *shape), w, stride, padding, hint)


@points(2)
def product_is_of_columns(submission: Submission) -> None:
    """`conv_blas` takes the columns of an image from `im2col`."""
    x, w = draw(submission, 1, 2, 6, 5), draw(submission, 4, 2, 3, 3)
    arrays = [x, w, np.zeros(len(w), np.float32)]
    report = submission.call(PROBES + "with_right_columns", submission.value("conv_blas"), arrays, 1, 1)
    laid = expect.mapping(report, ("images",), "what was called")["images"]
    expect.true(
        laid in (1, None),
        "`conv_blas` does not take its columns from `im2col`",
        expected="one call of `im2col` for a batch of one image",
        got=laid,
        hint="for each image im2col(x[n], (KH, KW), stride, padding), and the product of the weights with that",
    )


@points(1)
def batches_are_kept_apart(submission: Submission) -> None:
    """`conv_blas` makes of a batch what it makes of each image."""
    x, w = draw(submission, 3, 2, 6, 5), draw(submission, 4, 2, 3, 3)
    want = convolution(x, w, np.zeros(4), 1, 1)
    singles = [_product(submission, x[n : n + 1], w) for n in range(len(x))]
    if all(isinstance(one, np.ndarray) and one.shape == want[:1].shape and one.any() for one in singles):
        want = np.concatenate(singles).astype(np.float64)  # type: ignore[arg-type]
    hint = "im2col takes one image: a product for each n, each into its own y[n]"
    given = f"x {x.shape}, w {w.shape}, stride 1, padding 1"
    expect.close(_product(submission, x, w), want, "what `conv_blas` returns", given=given, hint=hint)


@points(1)
def product_gets_its_bias(submission: Submission) -> None:
    """`conv_blas` adds the bias of its channel to every output."""
    _adds_bias(submission, "conv_blas")


@points(1)
def product_stays_float32(submission: Submission) -> None:
    """`conv_blas` returns float32, as it was given."""
    x, w = draw(submission, 1, 2, 5, 5), draw(submission, 3, 2, 3, 3)
    got = _product(submission, x, w)
    if isinstance(got, np.ndarray) and got.dtype != np.float32:  # which may be the fault of `im2col`
        arrays = [x, w, np.zeros(len(w), np.float32)]
        report = submission.call(PROBES + "with_right_columns", submission.value("conv_blas"), arrays, 1, 1)
        got = expect.mapping(report, ("result",), "what was called")["result"]
    hint = "an array made by np.zeros or np.empty is float64 unless you say so; the product is then twice as slow"
    told = got.dtype.name if isinstance(got, np.ndarray) else got
    expect.equal(told, "float32", "the wrong type comes out", hint=hint)


# who has done already what the tasks ask for
CONVOLUTIONS = (
    "mlhood.kernels",
    "mlhood.jaxlab",
    "torch.nn",
    "torch.nn.functional.conv2d",
    "torch.conv2d",
    "scipy.signal",
    "jax.lax",
)

DIRECT_STAND_IN = """
from mlhood.kernels import CONV2D as _CONV2D
def conv_direct(x, w, bias, stride, padding):
    return _CONV2D["naive"](x, w, bias, stride, padding, threads=1)
"""

BLAS_STAND_IN = """
from mlhood.kernels import CONV2D as _CONV2D
def conv_blas(x, w, bias, stride, padding):
    return _CONV2D["im2col_blas"](x, w, bias, stride, padding)
"""


TASKS = (
    Task(
        "P3.2",
        "A convolution by the definition",
        checks=(
            values_are_right,
            stride_is_taken,
            padding_is_zero_all_around,
            bias_is_added,
            any_sizes_will_do,
            inputs_are_left_alone,
        ),
        stand_in=DIRECT_STAND_IN,
        forbidden=CONVOLUTIONS,
    ),
    Task(
        "P3.4",
        "Convolution as one product",
        checks=(
            product_is_right,
            product_is_of_columns,
            batches_are_kept_apart,
            product_gets_its_bias,
            product_stays_float32,
        ),
        stand_in=BLAS_STAND_IN,
        forbidden=CONVOLUTIONS,
    ),
)
