"""Checks of P3.2 to P3.4: a convolution by its definition, windows as columns, and both as one matrix product."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.grading.bare.libraries import ARRAYS, LOOPS
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3 import numba_errors, reference
from mlhood.grading.projects.p3.reference import Steps, convolution
from mlhood.grading.rpc.guard import REUSED
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p3.probes:"
Case = tuple[tuple[int, int, int], tuple[int, int], int, int]
# a sixth argument of `conv_direct`, which has a default
DIRECT_ARGUMENT = Parameter("direct_argument", ("none", "dilation", "flip", "fill"))
# an argument after the others of `conv_blas`, which has a default
BLAS_ARGUMENT = Parameter("blas_argument", ("none", "relu", "scale", "limit"))
ROW_ORDER = Parameter("row_order", reference.ROWS)
COLUMN_STEPS = Parameter("column_steps", reference.STEPS)


def flat_weights(submission: Submission, filters: int, channels: int, high: int, wide: int) -> np.ndarray:
    """Draw weights that are constant over each window, so that only one check notices a flipped kernel."""
    values = submission.normal(filters, channels, 1, 1)
    return np.ascontiguousarray(np.broadcast_to(values, (filters, channels, high, wide)))


def _argument_of(submission: Submission, name: str) -> str:
    """Name the last argument that `conv_direct` or `conv_blas` has in this variant of the course."""
    parameters = submission.parameters
    return parameters.direct_argument if name == "conv_direct" else parameters.blas_argument


def _argument(submission: Submission, name: str) -> tuple[Any, ...]:
    """Draw what `conv_direct` or `conv_blas` gets as its last argument; nothing if it has none."""
    rng = submission.rng
    return {
        "none": lambda: (),
        "dilation": lambda: (2,),
        "flip": lambda: (True,),
        "fill": lambda: (float(rng.uniform(1, 3)),),
        "relu": lambda: (True,),
        "scale": lambda: (float(rng.uniform(2, 4)),),
        "limit": lambda: (float(rng.uniform(1, 2)),),
    }[_argument_of(submission, name)]()


def _given(submission: Submission, name: str, last: tuple[Any, ...]) -> str:
    """Name the last argument in a message."""
    return "".join(f", {_argument_of(submission, name)} {value}" for value in last)


def _wanted(
    submission: Submission, name: str, x: np.ndarray, w: np.ndarray, bias: np.ndarray, *steps: Any
) -> np.ndarray:
    """Return the reference's result for stride, padding and, if it is passed, the last argument."""
    (stride, padding), last = steps[:2], steps[2:]
    argument = _argument_of(submission, name)
    value: Any = last[0] if last else None
    if last and argument == "dilation":
        spread = np.zeros((*w.shape[:2], *(value * (size - 1) + 1 for size in w.shape[2:])), w.dtype)
        spread[:, :, ::value, ::value] = w
        w = spread
    if last and argument == "flip":
        w = w[:, :, ::-1, ::-1]
    if last and argument == "fill":
        sides = (padding, padding)
        x, padding = np.pad(x, ((0, 0), (0, 0), sides, sides), constant_values=value), 0
    y = convolution(x, w, bias, stride, padding)
    if last and argument == "scale":
        y = value * (y - bias[:, None, None]) + bias[:, None, None]
    if last and argument in ("relu", "limit"):
        y = np.clip(y, 0 if argument == "relu" else -value, np.inf if argument == "relu" else value)
    return y


HINTS = {
    "dilation": "`dilation` is the distance of two pixels of x that adjacent weights meet; 1 if it is not passed",
    "flip": "if `flip` is true, w[f, c, KH - 1 - i, KW - 1 - j] is where otherwise w[f, c, i, j] is; it is false if it "
    "is not passed",
    "fill": "x is `fill` outside its bounds, 0 if it is not passed",
    "relu": "if `relu` is true, 0 is where the result, with its bias, would be negative; it is false if not passed",
    "scale": "`scale` multiplies the product, not the bias; it is 1 if it is not passed",
    "limit": "no result, with its bias, is above `limit` or below -`limit`; without `limit` they are as they are",
}


def _with_hint(submission: Submission, name: str, hint: str) -> str:
    """A hint, and what else to think of in a variant with a last argument."""
    argument = _argument_of(submission, name)
    return hint if argument == "none" else f"{hint}; {HINTS[argument]}"


def _check_convolution(
    submission: Submission,
    name: str,
    x: np.ndarray,
    w: np.ndarray,
    stride: int,
    padding: int,
    hint: str,
    passed: bool = True,
    bias: np.ndarray | None = None,
) -> None:
    """Compare with the reference, with a bias of zeros by default; the last argument is passed or has its default."""
    bias = np.zeros(len(w), np.float32) if bias is None else bias
    last = _argument(submission, name) if passed else ()
    given = f"x {x.shape}, w {w.shape}, stride {stride}, padding {padding}{_given(submission, name, last)}"
    with numba_errors.case(given, _with_hint(submission, name, hint)):
        got = submission.call(name, x.copy(), w.copy(), bias.copy(), stride, padding, *last)
        want = _wanted(submission, name, x, w, bias, stride, padding, *last)
        expect.close(got, want, f"what `{name}` returns")


def _check_bias(submission: Submission, name: str) -> None:
    """Check what a bias adds: the difference of two results, whether these are right or not.

    Only the first of two images is compared: a bias that is added once per image accumulates there.
    """
    x, w = submission.normal(2, 2, 6, 6), flat_weights(submission, 3, 2, 3, 3)
    bias = (1 + np.arange(3) + submission.rng.random(3)).astype(np.float32)
    last = _argument(submission, name)
    argument = _argument_of(submission, name)
    if argument == "relu":
        x, w = np.abs(x), np.abs(w)  # so that no result is negative, and a bias adds the same everywhere
    if argument == "limit":
        last = (1e6,)
    with numba_errors.case(f"x {x.shape}, w {w.shape}, stride 1, padding 0{_given(submission, name, last)}"):
        without, with_bias = (
            submission.call(name, x.copy(), w.copy(), b.copy(), 1, 0, *last) for b in (np.zeros_like(bias), bias)
        )
    shape = without.shape if isinstance(without, np.ndarray) else ()
    want_shape = _wanted(submission, name, x, w, bias, 1, 0, *last).shape
    expect.true(
        len(shape) == 4 and shape[0] > 0 and shape[1] == len(bias),
        f"wrong shape of what `{name}` returns",
        expected=want_shape,
        got=shape or without,
    )
    difference = expect.array(with_bias, shape, f"what `{name}` returns") - without
    want = np.broadcast_to(bias[:, None, None], shape[1:])
    given = f"a bias of {[round(float(value), 2) for value in bias]}"
    hint = "bias[f] is added once to every output of channel f"
    expect.close(difference[0], want, "what the bias adds", atol=1e-4, given=given, hint=hint)


def _draw_sizes(submission: Submission, low: int, high: int) -> tuple[int, int]:
    """Draw a height and a width that differ."""
    high_and_wide = submission.rng.permutation(np.arange(low, high))[:2]
    return int(high_and_wide[0]), int(high_and_wide[1])


@points(4)
def values_are_right(submission: Submission) -> None:
    """`conv_direct` sums x times w over every window."""
    hint = "write out one output by hand: which pixel meets w[f, c, 0, 0]? The kernel is not flipped, nor transposed"
    x, w = submission.normal(1, 3, *_draw_sizes(submission, 6, 9)), submission.normal(4, 3, 3, 3)
    _check_convolution(submission, "conv_direct", x, w, 1, 0, hint)


@points(2)
def stride_is_taken(submission: Submission) -> None:
    """`conv_direct` moves the window by `stride` in both directions."""
    hint = (
        "neighbours in y are `stride` pixels of x apart, along both axes; a last window that does not fit is left out"
    )
    for stride in (2, 3):
        x = submission.normal(1, 2, *_draw_sizes(submission, 8, 13))
        _check_convolution(submission, "conv_direct", x, flat_weights(submission, 3, 2, 3, 3), stride, 0, hint)


@points(2)
def padding_is_zero_all_around(submission: Submission) -> None:
    """`conv_direct` adds `padding` zeros on all four sides."""
    hint = "there are as many zeros above as below, and left as right: y grows by twice the padding along each axis"
    for padding in (1, 2):
        x, w = submission.normal(1, 2, *_draw_sizes(submission, 5, 8)), flat_weights(submission, 3, 2, 3, 3)
        _check_convolution(submission, "conv_direct", x, w, 1, padding, hint)


@points(1)
def bias_is_added(submission: Submission) -> None:
    """`conv_direct` adds each channel's bias to its outputs."""
    _check_bias(submission, "conv_direct")


ANY_SIZES: tuple[tuple[tuple[int, int, int, int], tuple[int, int, int], int, int], ...] = (
    ((3, 2, 5, 8), (4, 2, 4), 1, 0),  # x, (F, KH, KW), stride, padding
    ((2, 1, 9, 4), (4, 5, 1), 1, 0),
    ((2, 3, 6, 9), (1, 3, 2), 2, 1),
    ((1, 4, 7, 10), (5, 1, 1), 3, 0),
    ((2, 2, 4, 6), (3, 2, 5), 2, 2),
)


def _check_any_sizes(submission: Submission, name: str, hint: str) -> None:
    for x_shape, (filters, *kernel), stride, padding in ANY_SIZES:
        w = flat_weights(submission, filters, x_shape[1], *kernel)
        if submission.parameters.direct_argument != "none":
            w = submission.normal(*w.shape)  # so that it shows whether the default flips the kernel
            _check_convolution(submission, name, submission.normal(*x_shape), w, stride, padding, hint, passed=False)
        _check_convolution(submission, name, submission.normal(*x_shape), w, stride, padding, hint)


def _check_together(submission: Submission, name: str, *checks: Callable[[Submission], None]) -> None:
    """Check batches with a bias, with and without stride and padding, unless one of the checks fails already."""
    if not submission.passed(*checks):
        return
    hint = "each is right alone: a batch, the bias, the stride, the padding; what if they come together? At an edge, "
    hint += "w[f, c, 0, 0] meets the first pixel of a window even if that is in the padding"
    for stride, padding in ((1, 0), (1, 1), (2, 0), (3, 2)):
        x, w = submission.normal(3, 2, *_draw_sizes(submission, 7, 12)), submission.normal(4, 2, 3, 2)
        _check_convolution(submission, name, x, w, stride, padding, hint, bias=submission.normal(4))


@points(2)
def any_sizes_will_do(submission: Submission) -> None:
    """`conv_direct` takes batches, and images and kernels that are not square, with any stride and padding."""
    hint = "height and width each have their own size, kernel and output; axis 0 is the batch"
    _check_any_sizes(submission, "conv_direct", hint)
    others = values_are_right, stride_is_taken, padding_is_zero_all_around, bias_is_added
    _check_together(submission, "conv_direct", *others)


def _check_float32(name: str, got: object) -> None:
    hint = "np.zeros and np.empty make float64 arrays unless you pass a dtype: twice the bytes, half the speed"
    expect.is_array(got, np.float32, f"what `{name}` returns", hint=hint)


PIXEL, WEIGHT = np.full((1, 1, 1, 1), 3, np.float32), np.full((1, 1, 1, 1), 2, np.float32)


def _check_pixel(name: str, got: object, axes: int, want: float) -> None:
    """Check a result for an image of one pixel: the type of results counts only if something is computed."""
    right = isinstance(got, np.ndarray) and got.ndim == axes and got.size > 0 and got.max() == want
    what, expected = (
        f"`{name}` is wrong even for an image of one pixel",
        f"an array of {axes} axes, with {want:g} in it",
    )
    expect.true(right, what, expected=expected, got=got)


@points(1)
def results_are_float32(submission: Submission) -> None:
    """`conv_direct` returns a new float32 array, and calls do not affect one another."""
    x, w, bias = submission.normal(2, 2, 6, 5), submission.normal(3, 2, 3, 3), submission.normal(3)
    last = _argument(submission, "conv_direct")
    with numba_errors.case(f"x {x.shape}, w {w.shape}, stride 1, padding 0{_given(submission, 'conv_direct', last)}"):
        got, other, again = (submission.call("conv_direct", image, w, bias, 1, 0, *last) for image in (x, -x, x))
    _check_float32("conv_direct", got)
    same = isinstance(again, np.ndarray) and np.array_equal(got, again) and not np.array_equal(got, other)
    expect.true(same, "what `conv_direct` returns depends on the calls before")
    pixel = submission.call("conv_direct", PIXEL, WEIGHT, np.zeros(1, np.float32), 1, 0)
    _check_pixel("conv_direct", pixel, 4, 6)


def _conv_blas(submission: Submission, x: np.ndarray, w: np.ndarray, last: tuple[Any, ...]) -> object:
    given = f"x {x.shape}, w {w.shape}, stride 1, padding 1{_given(submission, 'conv_blas', last)}"
    with numba_errors.case(given):
        return submission.call("conv_blas", x.copy(), w.copy(), np.zeros(len(w), np.float32), 1, 1, *last)


def _with_columns(submission: Submission, x: np.ndarray, w: np.ndarray, *matrices: np.ndarray) -> np.ndarray:
    """Return what `conv_blas` returns, without bias, if `im2col` returns these matrices, one for each image of x."""
    arrays, padding = [x, w, np.zeros(len(w), np.float32)], w.shape[2] // 2
    with numba_errors.case(f"x {x.shape}, w {w.shape}, stride 1, padding {padding}"):
        report = submission.call(PROBES + "with_columns", submission.value("conv_blas"), arrays, 1, padding, matrices)
        report = expect.mapping(report, ("result", "broken"), "what `conv_blas` returns")
        if report["broken"] != REUSED:  # which costs the points of the bias, and of batches
            check_rules(report["broken"], "`conv_blas`")
    return expect.array(report["result"], (len(x), len(w), *x.shape[2:]), "what `conv_blas` returns")


@points(2)
def product_is_right(submission: Submission) -> None:
    """`conv_blas` computes the same as the definition for one image."""
    hint = (
        "columns: one window each; weights: one filter a row, in the same order. A product has one row for each filter"
    )
    for (_, *x_shape), (filters, *kernel), stride, padding in ANY_SIZES:
        w = submission.normal(filters, x_shape[0], *kernel)
        if submission.parameters.blas_argument != "none":
            x = submission.normal(1, *x_shape)
            _check_convolution(submission, "conv_blas", x, w, stride, padding, hint, passed=False)
        _check_convolution(submission, "conv_blas", submission.normal(1, *x_shape), w, stride, padding, hint)


@points(2)
def product_is_of_columns(submission: Submission) -> None:
    """`conv_blas` gets the columns of an image from `im2col`, and multiplies them."""
    w, factor = submission.normal(4, 2, 3, 3), float(submission.rng.uniform(2, 4))
    first, second = submission.normal(18, 30), submission.normal(18, 30)
    columns = first, second, first + np.float32(factor) * second
    # a product of the columns, which are known here alone: it does not depend on the image, and their sum gives the sum
    once, more, both = (_with_columns(submission, submission.normal(1, 2, 6, 5), w, each) for each in columns)
    of_columns = bool(once.any() and more.any()) and np.allclose(both, once + factor * more, rtol=1e-3, atol=1e-3)
    what = "`conv_blas` does not get its columns from `im2col`"
    hint = "for each image, one call of im2col, and the weights of all filters multiplied with what it returns"
    expected = "a product of the weights and of what `im2col` returns, whatever that is"
    expect.true(of_columns, what, expected=expected, got="its result does not follow the columns", hint=hint)


@points(1)
def batches_are_kept_apart(submission: Submission) -> None:
    """`conv_blas` computes the same for a batch as for each of its images."""
    x, w = submission.normal(3, 2, 6, 5), submission.normal(4, 2, 3, 3)
    bias, last = np.zeros(4, np.float32), _argument(submission, "conv_blas")
    want = _wanted(submission, "conv_blas", x, w, bias, 1, 1, *last)
    singles = [_conv_blas(submission, x[n : n + 1], w, last) for n in range(len(x))]
    if all(isinstance(image, np.ndarray) and image.shape == want[:1].shape and image.any() for image in singles):
        want = np.concatenate(singles).astype(np.float64)  # type: ignore[arg-type]
    hint = "im2col takes one image: every image of the batch has its own columns, and its own part of y"
    given = f"x {x.shape}, w {w.shape}, stride 1, padding 1{_given(submission, 'conv_blas', last)}"
    expect.close(_conv_blas(submission, x, w, last), want, "what `conv_blas` returns", given=given, hint=hint)
    if submission.passed(product_is_of_columns):
        matrices = [submission.normal(18, 30) for _ in x]
        singles = [_with_columns(submission, x[:1], w, each) for each in matrices]
        got, what = _with_columns(submission, x, w, *matrices), "what `conv_blas` returns for other columns"
        expect.close(got, np.concatenate(singles), what, given=given, hint=hint)
    _check_together(submission, "conv_blas", product_is_right, product_gets_its_bias)


@points(1)
def product_gets_its_bias(submission: Submission) -> None:
    """`conv_blas` adds each channel's bias to its outputs."""
    _check_bias(submission, "conv_blas")


@points(2)
def product_stays_float32(submission: Submission) -> None:
    """`conv_blas` multiplies and returns float32, the type of its inputs."""
    x, w = submission.normal(2, 4, 8, 7), submission.normal(6, 4, 3, 3)
    # with the reference's columns, as those of `im2col` may have another type
    got = _with_columns(
        submission, x, w, *(reference.columns(image, (3, 3), 1, 1, submission.parameters.row_order) for image in x)
    )
    _check_float32("conv_blas", got)
    # 36 products added in float32 are rounded 36 times: not all of 672 sums are the nearest float32
    exact = convolution(x, w, np.zeros(len(w)), 1, 1).astype(np.float32)
    rounded = not np.array_equal(got, exact)
    what = "`conv_blas` multiplies in float64: every result is exact to the last digit of float32"
    hint = "find the array that is not float32 when `@` gets it: print the dtype of both sides"
    expect.true(
        rounded, what, expected="a product of float32", got="float64", given=f"x {x.shape}, w {w.shape}", hint=hint
    )
    pixel = _with_columns(submission, PIXEL, WEIGHT, np.full((1, 1), 3, np.float32))
    _check_pixel("conv_blas", pixel, 4, 6)


def _columns(submission: Submission, case: Case) -> tuple[object, np.ndarray, str]:
    """The student's `im2col` of an image whose pixels all differ, the right result, and a description of the case."""
    shape, kernel, *_ = case
    stride, padding = _column_steps(submission, case)
    x = (1 + submission.rng.permutation(math.prod(shape))).reshape(shape).astype(np.float32)
    given = f"x {shape}, kernel {kernel}, stride {stride}, padding {padding}"
    with numba_errors.case(given):
        got = submission.call("im2col", x.copy(), kernel, stride, padding)
    layout = (submission.parameters.row_order, submission.parameters.column_steps)
    return got, reference.columns(x, kernel, stride, padding, *layout), given


def _column_steps(submission: Submission, case: Case) -> tuple[Steps, Steps]:
    """Stride and padding as this variant of the course passes them; what a pair has in addition is drawn."""
    _, _, stride, padding = case
    kind = submission.parameters.column_steps
    if kind == "same":
        return stride, padding
    other = int(submission.rng.integers(1, 3))
    if kind == "strides":
        return (stride, stride + other), padding
    return stride, (padding, padding + other)


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


def _draw_case(submission: Submission, channels: int, kernel: tuple[int, int], stride: int, padding: int) -> Case:
    return (channels, *_draw_sizes(submission, 6, 12)), kernel, stride, padding


@points(2)
def columns_have_their_shape(submission: Submission) -> None:
    """`im2col` returns one row for each element of a window and one column for each window."""
    for kernel, stride in (((3, 2), 1), ((2, 3), 2), ((1, 1), 3)):
        got, want, given = _columns(submission, _draw_case(submission, 3, kernel, stride, 0))
        hint = "[C * KH * KW, OH * OW]: each window is a column, and the columns are side by side"
        expect.array(got, want.shape, "what `im2col` returns", given=given, hint=hint)


@points(1)
def columns_stay_float32(submission: Submission) -> None:
    """`im2col` returns a new float32 array."""
    case = _draw_case(submission, 2, (3, 3), 1, 1)
    for same_or_other in (case, case, _draw_case(submission, 2, (1, 1), 1, 0)):  # twice the same: into new memory
        got, _, given = _columns(submission, same_or_other)
        with expect.case(given):
            _check_float32("im2col", got)
    got, want, _ = _columns(submission, ((1, 1, 1), (1, 1), 1, 0))
    _check_pixel("im2col", got, 2, want.max())


@points(4)
def rows_are_in_order(submission: Submission) -> None:
    """The rows have the order of {% if row_order == "C, KH, KW" %}the weights: `w.reshape(F, -1)\
{% else %}weights [F, {{ row_order }}]: `v.reshape(F, -1)\
{% endif %} @ im2col(...)` is the convolution."""
    for kernel in ((3, 2), (2, 4)):
        got, want, given = _columns(submission, _draw_case(submission, 3, kernel, 1, 0))
        hint = "a row is one position in all windows: in which order does w.reshape(F, -1) list channels and positions?"
        if submission.parameters.row_order != ROW_ORDER.default:
            hint = f"a row is one position in all windows; the last of {submission.parameters.row_order} is the fastest"
        matrix = _untransposed(got, want, given, hint)
        _check_values(matrix, want, 1, "a row holds the values of another kernel position", given, hint)


@points(3)
def columns_are_in_order(submission: Submission) -> None:
    """The columns have the order of the outputs: along the first row of y, then along the next."""
    for stride in (1, 2, 3):
        got, want, given = _columns(submission, _draw_case(submission, 2, (3, 2), stride, 0))
        hint = "a column is one window; the windows follow one another as the pixels of y do in memory"
        _check_values(_untransposed(got, want, given, hint), want, 0, "a column holds another window", given, hint)


@points(2)
def padding_holds_zeros(submission: Submission) -> None:
    """The padding is zero on all four sides{{ {"paddings": ", as many as each pair says", \
"sides": ", as many as each pair says"}.get(column_steps, "") }}."""
    ordered = submission.passed(rows_are_in_order, columns_are_in_order)
    for channels, kernel, stride, padding in (
        (2, (3, 3), 1, 1),
        (1, (3, 3), 1, 2),
        (2, (2, 3), 2, 1),
        (2, (3, 2), 2, 0),
    ):
        got, want, given = _columns(submission, _draw_case(submission, channels, kernel, stride, padding))
        hint = "windows extend `padding` pixels beyond every edge, where they hold 0"
        if submission.parameters.column_steps == "paddings":
            hint = "windows extend padding[0] pixels above and below, and padding[1] to the left and right; they hold 0"
        if submission.parameters.column_steps == "sides":
            hint = "windows extend padding[0] pixels above and to the left, padding[1] below and right; they hold 0"
        matrix = _untransposed(got, want, given, hint)
        _check_values(matrix, want, None, "the windows at the edges hold wrong values", given, hint)
        if ordered:
            differ = int((matrix != want).sum())
            what = "with stride or padding, the right values are not where they should be"
            hint = (
                "either rows or columns are in another order than without stride and padding, or a window at an edge "
            )
            hint += "has slipped: a pixel keeps its position in the window if others of it are in the padding"
            expect.true(not differ, what, got=f"{differ} of {want.size} values elsewhere", given=given, hint=hint)


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
            results_are_float32,
        ),
        solution_stands_in=True,
        varies=(DIRECT_ARGUMENT,),
        libraries=LOOPS,
        minutes=25,
        builds_on=("P3.1",),
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
        solution_stands_in=True,
        varies=(BLAS_ARGUMENT,),
        libraries=ARRAYS,
        minutes=15,
        builds_on=("P3.3",),
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
        solution_stands_in=True,
        varies=(ROW_ORDER, COLUMN_STEPS),
        libraries=ARRAYS,
        minutes=25,
        builds_on=("P3.2",),
    ),
)
