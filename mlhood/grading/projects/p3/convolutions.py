"""Checks of P3.2 to P3.4: a convolution by its definition, windows as columns, and both as one matrix product."""

from __future__ import annotations

import math

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3 import numba_errors, reference
from mlhood.grading.projects.p3.reference import convolution

PROBES = "mlhood.grading.projects.p3.probes:"
Case = tuple[tuple[int, int, int], tuple[int, int], int, int]


def flat_weights(submission: Submission, filters: int, channels: int, high: int, wide: int) -> np.ndarray:
    """Draw weights that are constant over each window, so that only one check notices a flipped kernel."""
    values = submission.normal(filters, channels, 1, 1)
    return np.ascontiguousarray(np.broadcast_to(values, (filters, channels, high, wide)))


def _check_convolution(
    submission: Submission, name: str, x: np.ndarray, w: np.ndarray, stride: int, padding: int, hint: str
) -> None:
    """Compare with the reference, with a bias of zeros."""
    bias = np.zeros(len(w), np.float32)
    with numba_errors.case(f"x {x.shape}, w {w.shape}, stride {stride}, padding {padding}", hint):
        got = submission.call(name, x.copy(), w.copy(), bias, stride, padding)
        expect.close(got, convolution(x, w, bias, stride, padding), f"what `{name}` returns")


def _check_bias(submission: Submission, name: str) -> None:
    """Check what a bias adds: the difference of two results, whether these are right or not.

    Only the first of two images is compared: a bias that is added once per image accumulates there.
    """
    x, w = submission.normal(2, 2, 6, 6), flat_weights(submission, 3, 2, 3, 3)
    bias = (1 + np.arange(3) + submission.rng.random(3)).astype(np.float32)
    with numba_errors.case(f"x {x.shape}, w {w.shape}, stride 1, padding 0"):
        without, with_bias = (
            submission.call(name, x.copy(), w.copy(), b.copy(), 1, 0) for b in (np.zeros_like(bias), bias)
        )
    shape = without.shape if isinstance(without, np.ndarray) else ()
    expect.true(
        len(shape) == 4 and shape[0] > 0 and shape[1] == len(bias),
        f"wrong shape of what `{name}` returns",
        expected=(2, 3, 4, 4),
        got=shape or without,
    )
    difference = expect.array(with_bias, shape, f"what `{name}` returns") - without
    want = np.broadcast_to(bias[:, None, None], shape[1:])
    given = f"a bias of {[round(float(value), 2) for value in bias]}"
    hint = "bias[f] is added once to every output of channel f"
    expect.close(difference[0], want, "what the bias adds", atol=1e-4, given=given, hint=hint)


@points(5)
def values_are_right(submission: Submission) -> None:
    """`conv_direct` sums x times w over every window."""
    hint = "y[n, f, oh, ow] = sum over c, i, j of x[n, c, oh + i, ow + j] * w[f, c, i, j]: the kernel is not flipped"
    x, w = submission.normal(1, 3, 7, 7), submission.normal(4, 3, 3, 3)
    _check_convolution(submission, "conv_direct", x, w, 1, 0, hint)


@points(3)
def stride_is_taken(submission: Submission) -> None:
    """`conv_direct` moves the window by `stride` in both directions."""
    hint = "the window of y[.., oh, ow] starts at row oh * stride and column ow * stride"
    for size, stride in ((9, 2), (11, 3)):
        x, w = submission.normal(1, 2, size, size), flat_weights(submission, 3, 2, 3, 3)
        _check_convolution(submission, "conv_direct", x, w, stride, 0, hint)


@points(3)
def padding_is_zero_all_around(submission: Submission) -> None:
    """`conv_direct` adds `padding` zeros on all four sides."""
    hint = "rows -padding to -1 and H to H + padding - 1 are zero, and so are the columns left and right"
    for padding in (1, 2):
        x, w = submission.normal(1, 2, 6, 6), flat_weights(submission, 3, 2, 3, 3)
        _check_convolution(submission, "conv_direct", x, w, 1, padding, hint)


@points(2)
def bias_is_added(submission: Submission) -> None:
    """`conv_direct` adds each channel's bias to its outputs."""
    _check_bias(submission, "conv_direct")


@points(2)
def any_sizes_will_do(submission: Submission) -> None:
    """`conv_direct` takes batches, and images and kernels that are not square."""
    hint = "height and width each have their own size, kernel and output; axis 0 is the batch"
    for x_shape, kernel in (((3, 2, 5, 8), (2, 4)), ((2, 1, 9, 4), (5, 1))):
        x, w = submission.normal(*x_shape), flat_weights(submission, 4, x_shape[1], *kernel)
        _check_convolution(submission, "conv_direct", x, w, 1, 0, hint)


@points(1)
def inputs_are_left_alone(submission: Submission) -> None:
    """`conv_direct` does not modify its inputs."""
    inputs = submission.normal(2, 2, 6, 6), submission.normal(3, 2, 3, 3), submission.normal(3)
    copies = [array.copy() for array in inputs]
    with numba_errors.case():
        after = submission.call(PROBES + "after_call", submission.value("conv_direct"), copies, [1, 1])
    if not isinstance(after, list) or len(after) != len(inputs):
        after = [None] * len(inputs)
    for name, before, now in zip(("x", "w", "bias"), inputs, after, strict=True):
        unchanged = isinstance(now, np.ndarray) and np.array_equal(before, now)
        what, hint = f"`conv_direct` modifies {name}", "write only into arrays that you have allocated yourself"
        expect.true(unchanged, what, expected="the original values", got="other values", hint=hint)


def _conv_blas(submission: Submission, x: np.ndarray, w: np.ndarray) -> object:
    with numba_errors.case(f"x {x.shape}, w {w.shape}, stride 1, padding 1"):
        return submission.call("conv_blas", x.copy(), w.copy(), np.zeros(len(w), np.float32), 1, 1)


def _conv_blas_with_reference_columns(
    submission: Submission, x: np.ndarray, w: np.ndarray, key: str, factor: float = 1.0
) -> object:
    """What `conv_blas` does with the reference's `im2col`: the `result`, or the number of `images` passed to it."""
    arrays = [x, w, np.zeros(len(w), np.float32)]
    function = submission.value("conv_blas")
    report = submission.call(PROBES + "with_reference_columns", function, arrays, 1, 1, factor)
    return expect.mapping(report, (key,), "the calls of `im2col`")[key]


@points(3)
def product_is_right(submission: Submission) -> None:
    """`conv_blas` computes the same as the definition for one image."""
    hint = "w.reshape(F, C * KH * KW) @ im2col(x[n], (KH, KW), stride, padding), reshaped to [F, OH, OW]"
    for shape, kernel, stride, padding in (((1, 3, 7, 7), (3, 3), 1, 0), ((1, 2, 9, 6), (3, 2), 2, 1)):
        w = submission.normal(4, shape[1], *kernel)
        _check_convolution(submission, "conv_blas", submission.normal(*shape), w, stride, padding, hint)


@points(2)
def product_is_of_columns(submission: Submission) -> None:
    """`conv_blas` gets the columns of an image from `im2col`."""
    x, w = submission.normal(1, 2, 6, 5), submission.normal(4, 2, 3, 3)
    what = "`conv_blas` does not get its columns from `im2col`"
    images = _conv_blas_with_reference_columns(submission, x, w, "images")
    hint = "for each image, call im2col(x[n], (KH, KW), stride, padding), and multiply the weights with the result"
    expect.true(images == 1, what, expected="one call of `im2col` for a batch of one image", got=images, hint=hint)
    factor = float(submission.rng.uniform(2, 4))  # a product of the columns grows with them
    results = [_conv_blas_with_reference_columns(submission, x, w, "result", by) for by in (1.0, factor)]
    once, more = (result if isinstance(result, np.ndarray) else np.zeros(1) for result in results)
    grows = once.shape == more.shape and bool(once.any()) and np.allclose(more, factor * once, rtol=1e-3, atol=1e-4)
    expected = f"results {factor:.2f} times as large if `im2col` returns columns {factor:.2f} times as large"
    expect.true(grows, what, expected=expected, got="its result does not follow the columns", hint=hint)


@points(1)
def batches_are_kept_apart(submission: Submission) -> None:
    """`conv_blas` computes the same for a batch as for each of its images."""
    x, w = submission.normal(3, 2, 6, 5), submission.normal(4, 2, 3, 3)
    want = convolution(x, w, np.zeros(4), 1, 1)
    singles = [_conv_blas(submission, x[n : n + 1], w) for n in range(len(x))]
    if all(isinstance(image, np.ndarray) and image.shape == want[:1].shape and image.any() for image in singles):
        want = np.concatenate(singles).astype(np.float64)  # type: ignore[arg-type]
    hint = "im2col takes one image: compute one product for each n, into y[n]"
    given = f"x {x.shape}, w {w.shape}, stride 1, padding 1"
    expect.close(_conv_blas(submission, x, w), want, "what `conv_blas` returns", given=given, hint=hint)


@points(1)
def product_gets_its_bias(submission: Submission) -> None:
    """`conv_blas` adds each channel's bias to its outputs."""
    _check_bias(submission, "conv_blas")


@points(1)
def product_stays_float32(submission: Submission) -> None:
    """`conv_blas` returns float32, the type of its inputs."""
    x, w = submission.normal(1, 2, 5, 5), submission.normal(3, 2, 3, 3)
    got = _conv_blas(submission, x, w)
    if isinstance(got, np.ndarray) and got.dtype != np.float32:  # which may be the fault of `im2col`
        got = _conv_blas_with_reference_columns(submission, x, w, "result")
    hint = "np.zeros and np.empty make float64 arrays unless you pass a dtype; the product is then twice as slow"
    dtype = got.dtype.name if isinstance(got, np.ndarray) else got
    expect.equal(dtype, "float32", "`conv_blas` returns the wrong dtype", hint=hint)


# libraries that already do what the tasks ask for
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


def _columns(submission: Submission, case: Case) -> tuple[object, np.ndarray, str]:
    """The student's `im2col` of an image whose pixels all differ, the right result, and a description of the case."""
    shape, kernel, stride, padding = case
    x = (1 + submission.rng.permutation(math.prod(shape))).reshape(shape).astype(np.float32)
    given = f"x {shape}, kernel {kernel}, stride {stride}, padding {padding}"
    with numba_errors.case(given):
        got = submission.call("im2col", x.copy(), kernel, stride, padding)
    return got, reference.columns(x, kernel, stride, padding), given


def _untransposed(got: object, want: np.ndarray, given: str, hint: str) -> np.ndarray:
    """The student's matrix; a transposed one is transposed back, as it costs only the points of the shape."""
    transposed = isinstance(got, np.ndarray) and got.shape == want.T.shape != want.shape
    array = got.T if transposed else got  # type: ignore[union-attr]
    return expect.array(array, want.shape, "what `im2col` returns", given=given, hint=hint)


def _check_values(got: np.ndarray, want: np.ndarray, axis: int | None, what: str, given: str, hint: str) -> None:
    """Fail unless both contain the same values along an axis, in any order."""
    if np.array_equal(np.sort(got, axis), np.sort(want, axis)):
        return
    index = tuple(np.argwhere(got != want)[0])
    position = "".join(f"[{i}]" for i in index)
    expect.fail(what, expected=f"{want[index]:g} at {position}", got=f"{got[index]:g}", given=given, hint=hint)


@points(2)
def columns_have_their_shape(submission: Submission) -> None:
    """`im2col` returns one row for each element of a window and one column for each window."""
    for case in (((3, 6, 7), (3, 2), 1, 0), ((2, 9, 8), (2, 3), 2, 0)):
        got, want, given = _columns(submission, case)
        hint = "[C * KH * KW, OH * OW]: each window is a column, and the columns are side by side"
        expect.array(got, want.shape, "what `im2col` returns", given=given, hint=hint)


@points(1)
def columns_stay_float32(submission: Submission) -> None:
    """`im2col` returns float32, the type of its input."""
    got, _, given = _columns(submission, ((2, 5, 6), (3, 3), 1, 1))
    dtype = got.dtype.name if isinstance(got, np.ndarray) else got
    hint = "np.zeros and np.empty make float64 arrays unless you pass a dtype: twice the bytes, half the speed"
    expect.equal(dtype, "float32", "`im2col` returns the wrong dtype", given=given, hint=hint)


@points(5)
def rows_are_in_order(submission: Submission) -> None:
    """Rows are ordered by channel, then by row and column within the kernel: (c, i, j)."""
    got, want, given = _columns(submission, ((3, 6, 7), (3, 2), 1, 0))
    hint = "row (c * KH + i) * KW + j holds x[c, oh + i, ow + j] of every window: the order of w.reshape(F, -1)"
    matrix = _untransposed(got, want, given, hint)
    _check_values(matrix, want, 1, "a row holds the values of another kernel position", given, hint)


@points(3)
def columns_are_in_order(submission: Submission) -> None:
    """Columns follow the rows of the output, (oh, ow), in steps of `stride`."""
    got, want, given = _columns(submission, ((2, 11, 7), (3, 3), 2, 0))
    hint = "column oh * OW + ow holds the window that starts at row oh * stride and column ow * stride"
    _check_values(_untransposed(got, want, given, hint), want, 0, "a column holds another window", given, hint)


@points(3)
def padding_holds_zeros(submission: Submission) -> None:
    """The padding is zero on all four sides."""
    for case in (((2, 4, 5), (3, 3), 1, 1), ((1, 3, 4), (3, 3), 1, 2)):
        got, want, given = _columns(submission, case)
        hint = "windows extend `padding` pixels beyond every edge, where they hold 0"
        matrix = _untransposed(got, want, given, hint)
        _check_values(matrix, want, None, "the windows at the edges hold wrong values", given, hint)


COLUMNS_STAND_IN = """
from mlhood.grading.projects.p3.reference import columns as im2col
"""

TASKS = (
    Task(
        "P3.2",
        "Convolution from its definition",
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
        "Convolution as one matrix product",
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
    Task(
        "P3.3",
        "Windows as columns",
        checks=(
            columns_have_their_shape,
            columns_stay_float32,
            rows_are_in_order,
            columns_are_in_order,
            padding_holds_zeros,
        ),
        stand_in=COLUMNS_STAND_IN,
        forbidden=CONVOLUTIONS,
    ),
)
