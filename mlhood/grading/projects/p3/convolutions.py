"""Checks of P3.2 and P3.4: a convolution by its definition, and as one matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlhood.grading.bare.libraries import ARRAYS, LOOPS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import Task, points
from mlhood.grading.rpc.guard import REUSED
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p3.probes:"
# a sixth argument of `conv_direct`, which has a default
DIRECT_ARGUMENT = Parameter("direct_argument", ("none", "dilation", "flip", "fill"))
# an argument after the others of `conv_blas`, which has a default
BLAS_ARGUMENT = Parameter("blas_argument", ("none", "relu", "scale", "limit"))
FLOAT32_HINT = "np.zeros and np.empty make float64 arrays unless you pass a dtype: twice the bytes, half the speed"
BIAS_HINT = "bias[f] is added once to every output of channel f"


def flat_weights(submission: Submission, filters: int, channels: int, *kernel: int) -> np.ndarray:
    """Draw weights that are constant over each window, so that only one check notices a flipped kernel."""
    values = submission.normal(filters, channels, 1, 1)
    return np.broadcast_to(values, (filters, channels, *kernel)).copy()


def _last(submission: Submission, name: str) -> Arguments:
    """Draw what `conv_direct` or `conv_blas` gets as its last argument; nothing if it has none."""
    parameters, rng = submission.parameters, submission.rng
    argument = parameters.direct_argument if name == "conv_direct" else parameters.blas_argument
    fixed = {"none": (), "dilation": (2,), "flip": (True,), "relu": (True,)}
    return fixed[argument] if argument in fixed else (float(rng.uniform(1, 3)),)


def _no_bias(w: np.ndarray) -> np.ndarray:
    return np.zeros(len(w), np.float32)


def draw_sizes(submission: Submission, low: int, high: int) -> list[int]:
    """Draw a height and a width that differ."""
    return submission.rng.permutation(np.arange(low, high))[:2].tolist()


# x, (F, KH, KW), stride, padding
ANY_SIZES: tuple[tuple[tuple[int, int, int, int], tuple[int, int, int], int, int], ...] = (
    ((3, 2, 5, 8), (4, 2, 4), 1, 0),
    ((2, 1, 9, 4), (4, 5, 1), 1, 0),
    ((2, 3, 6, 9), (1, 3, 2), 2, 1),
    ((1, 4, 7, 10), (5, 1, 1), 3, 0),
    ((2, 2, 4, 6), (3, 2, 5), 2, 2),
)


def _any_sizes(submission: Submission, name: str, images: int | None = None) -> Iterator[Arguments]:
    """Yield arguments of all sizes; first without the last one, if there is one, which shows its default.

    Args:
        submission: The submission.
        name: Of the function.
        images: In each batch; None for batches of one to three.
    """
    for (batch, *x_shape), (filters, *kernel), stride, padding in ANY_SIZES:
        last = _last(submission, name)
        for given in ((), last) if last else ((),):
            x, w = submission.normal(images or batch, *x_shape), submission.normal(filters, x_shape[0], *kernel)
            w = w if last or images else flat_weights(submission, *w.shape)
            yield x, w, _no_bias(w), stride, padding, *given
    x, w = submission.normal(images or 2, 2, 4, 5), flat_weights(submission, 3, 2, 4, 5)  # a single window
    yield x, w, _no_bias(w), 2, 0


def _together(submission: Submission, name: str) -> Iterator[Arguments]:
    """Yield batches with a bias, with and without stride and padding."""
    for stride, padding in ((1, 0), (1, 1), (2, 0), (3, 2)):
        x, w = submission.normal(3, 2, *draw_sizes(submission, 7, 12)), submission.normal(4, 2, 3, 2)
        yield x, w, submission.normal(4), stride, padding, *_last(submission, name)


def _bias(submission: Submission) -> Iterator[Arguments]:
    x, w = submission.normal(2, 2, 6, 6), flat_weights(submission, 3, 2, 3, 3)
    yield x, w, (1 + np.arange(3) + submission.rng.random(3)).astype(np.float32), 1, 0


def _first_image(y: Any) -> Any:
    """Of a batch: a bias that is added once per image accumulates there."""
    return y[0] if isinstance(y, np.ndarray) and y.ndim == 4 and len(y) else y


def is_float32(got: Any, want: np.ndarray, what: str) -> None:
    """Fail unless an array has the type of the solution's; its values count where there is only one."""
    expect.is_array(got, np.float32, what, hint=FLOAT32_HINT)
    if want.size == 1:
        expect.close(got, want, what)


@compared(
    3,
    "conv_direct",
    hint="write out one output by hand: which pixel meets w[f, c, 0, 0]? "
    "The kernel is not {{ '' if direct_argument == 'flip' else 'flipped, nor ' }}transposed",
)
def values_are_right(submission: Submission) -> Iterator[Arguments]:
    """`conv_direct` sums x times w over every window."""
    x, w = submission.normal(1, 3, *draw_sizes(submission, 6, 9)), submission.normal(4, 3, 3, 3)
    yield x, w, _no_bias(w), 1, 0, *_last(submission, "conv_direct")


@compared(
    2,
    "conv_direct",
    hint="neighbours in y are `stride` pixels of x apart, along both axes; a last window that does not fit is left out",
)
def stride_is_taken(submission: Submission) -> Iterator[Arguments]:
    """`conv_direct` moves the window by `stride` in both directions."""
    return _steps(submission, (2, 0), (3, 0))


@compared(
    2,
    "conv_direct",
    hint="there are as many zeros above as below, and left as right: y grows by twice the padding along each axis",
)
def padding_is_zero_all_around(submission: Submission) -> Iterator[Arguments]:
    """`conv_direct` adds `padding` zeros on all four sides."""
    return _steps(submission, (1, 1), (1, 2))


def _steps(submission: Submission, *steps: tuple[int, int]) -> Iterator[Arguments]:
    for stride, padding in steps:
        x, w = submission.normal(1, 2, *draw_sizes(submission, 8, 13)), flat_weights(submission, 3, 2, 3, 3)
        yield x, w, _no_bias(w), stride, padding, *_last(submission, "conv_direct")


def _own_with_bias(name: str) -> Any:
    """Return a function that returns what follows from the submission's own result without a bias."""

    def own(submission: Submission, y: Any, x: np.ndarray, w: np.ndarray, bias: np.ndarray, *steps: int) -> Any:
        without = _first_image(submission.call(name, x, w, 0 * bias, *steps))
        shaped = isinstance(without, np.ndarray) and without.ndim == 3 and len(without) == len(bias)
        return without + bias[:, None, None] if shaped else None

    return own


@compared(1, "conv_direct", own=_own_with_bias("conv_direct"), view=_first_image, hint=BIAS_HINT, atol=1e-4)
def bias_is_added(submission: Submission) -> Iterator[Arguments]:
    """`conv_direct` adds each channel's bias to its outputs."""
    return _bias(submission)


@compared(
    1,
    "conv_direct",
    hint="height and width each have their own size, kernel and output; axis 0 is the batch. If all of these are right "
    "alone, what if a batch, the bias, the stride and the padding come together? At an edge, w[f, c, 0, 0] meets the "
    "first pixel of a window even if that is in the padding",
)
def any_sizes_will_do(submission: Submission) -> Iterator[Arguments]:
    """`conv_direct` takes batches, and images and filters that are not square, with any stride and padding."""
    yield from _any_sizes(submission, "conv_direct")
    if submission.passed(values_are_right, stride_is_taken, padding_is_zero_all_around, bias_is_added):
        yield from _together(submission, "conv_direct")


PIXEL, WEIGHT = np.full((1, 1, 1, 1), 3, np.float32), np.full((1, 1, 1, 1), 2, np.float32)


@compared(
    1,
    "conv_direct",
    compare=is_float32,
    hint="even for an image of one pixel? What a call returns does not depend on the calls before",
)
def results_are_float32(submission: Submission) -> Iterator[Arguments]:
    """`conv_direct` returns a new float32 array, and calls do not affect one another."""
    x, w = submission.normal(2, 2, 6, 5), submission.normal(3, 2, 3, 3)
    for image in (x, -x):
        yield image, w, submission.normal(3), 1, 0, *_last(submission, "conv_direct")
    for pixel in (PIXEL, -PIXEL, PIXEL):
        yield pixel, WEIGHT, _no_bias(WEIGHT), 1, 0


P3_2 = Task(
    "P3.2",
    "Convolution from its definition",
    solution_is_fallback=True,
    varies=(DIRECT_ARGUMENT,),
    libraries=LOOPS,
    minutes=25,
    builds_on=("P3.1",),
)


def _with_columns(submission: Submission, x: np.ndarray, w: np.ndarray, *matrices: np.ndarray) -> np.ndarray:
    """Return what `conv_blas` returns, without bias, if `im2col` returns these matrices, one for each image of x."""
    arrays, padding = [x, w, _no_bias(w)], w.shape[2] // 2
    with expect.case(f"x {x.shape}, w {w.shape}, stride 1, padding {padding}"):
        report = submission.call(PROBES + "with_columns", submission.value("conv_blas"), arrays, 1, padding, matrices)
        report = expect.mapping(report, ("result", "broken"), "what `conv_blas` returns")
        if report["broken"] != REUSED:  # which costs the points of the bias, and of batches
            check_rules(report["broken"], "`conv_blas`")
    return expect.array(report["result"], (len(x), len(w), *x.shape[2:]), "what `conv_blas` returns")


@compared(
    2,
    "conv_blas",
    hint="columns: one window each; weights: one filter a row, in the same order; a product has one row for each",
)
def product_is_right(submission: Submission) -> Iterator[Arguments]:
    """`conv_blas` computes the same as the definition for one image."""
    return _any_sizes(submission, "conv_blas", images=1)


@points(1)
def product_is_of_columns(submission: Submission) -> None:
    """`conv_blas` gets the columns of an image from `im2col`, and multiplies them."""
    w, factor = submission.normal(4, 2, 3, 3), float(submission.rng.uniform(2, 4))
    first, second = submission.normal(18, 30), submission.normal(18, 30)
    columns = first, second, first + np.float32(factor) * second
    # a product of the columns, which are known here alone: it does not depend on the image, and their sum gives the sum
    once, more, both = (_with_columns(submission, submission.normal(1, 2, 6, 5), w, each) for each in columns)
    of_columns = bool(once.any() and more.any()) and np.allclose(both, once + factor * more, rtol=1e-3, atol=1e-3)
    what = "`conv_blas` does not get its columns from `im2col`: its result does not follow them"
    hint = "for each image, one call of im2col, and the weights of all filters multiplied with what it returns"
    expect.true(of_columns, what, hint=hint)


def _own_images(submission: Submission, y: Any, x: np.ndarray, w: np.ndarray, bias: np.ndarray, *rest: Any) -> Any:
    """What the submission returns for each image alone, if there is no bias."""
    if bias.any():
        return None
    images = [submission.call("conv_blas", x[n : n + 1], w, bias, *rest) for n in range(len(x))]
    shaped = all(isinstance(image, np.ndarray) and image.ndim == 4 and image.any() for image in images)
    return np.concatenate(images) if shaped and len({image.shape for image in images}) == 1 else None


@compared(
    1,
    "conv_blas",
    own=_own_images,
    hint="im2col takes one image: every image of the batch has its own columns, and its own part of y. If a batch and "
    "the bias are right alone, what if they come together, with stride and padding?",
)
def batches_are_kept_apart(submission: Submission) -> Iterator[Arguments]:
    """`conv_blas` computes the same for a batch as for each of its images."""
    x, w = submission.normal(3, 2, 6, 5), submission.normal(4, 2, 3, 3)
    yield x, w, _no_bias(w), 1, 1, *_last(submission, "conv_blas")
    if submission.passed(product_is_of_columns):
        matrices = [submission.normal(18, 30) for _ in x]
        images = [_with_columns(submission, x[:1], w, each) for each in matrices]
        got, what = _with_columns(submission, x, w, *matrices), "what `conv_blas` returns for other columns"
        expect.close(got, np.concatenate(images), what, given=f"x {x.shape}, w {w.shape}, stride 1, padding 1")
    if submission.passed(product_is_right, product_gets_its_bias):
        yield from _together(submission, "conv_blas")


@compared(1, "conv_blas", own=_own_with_bias("conv_blas"), view=_first_image, hint=BIAS_HINT, atol=1e-4)
def product_gets_its_bias(submission: Submission) -> Iterator[Arguments]:
    """`conv_blas` adds each channel's bias to its outputs."""
    return _bias(submission)


@points(1)
def product_stays_float32(submission: Submission) -> None:
    """`conv_blas` multiplies and returns float32, the type of its inputs."""
    # with other columns, as those of `im2col` may have another type, and weights for which their order does not matter
    x, w = submission.normal(2, 1, 8, 7), flat_weights(submission, 6, 1, 5, 5)
    matrices = submission.normal(2, 25, 56)
    got = _with_columns(submission, x, w, *matrices)
    expect.is_array(got, np.float32, "what `conv_blas` returns", hint=FLOAT32_HINT)
    # 25 products added in float32 are rounded 25 times: not all of 672 sums are the nearest float32
    exact = w[None, :, 0, 0, 0, None] * matrices.sum(1, dtype=np.float64)[:, None]
    rounded = not np.array_equal(got, exact.reshape(got.shape).astype(np.float32))
    what = "`conv_blas` multiplies in float64: every result is exact to the last digit of float32"
    hint = "find the array that is not float32 when `@` gets it: print the dtype of both sides"
    expect.true(rounded, what, expected="a product of float32", got="float64", hint=hint)
    pixel = _with_columns(submission, PIXEL, WEIGHT, np.full((1, 1), 3, np.float32))
    expect.close(pixel, np.full((1, 1, 1, 1), 6), "what `conv_blas` returns even for an image of one pixel")


P3_4 = Task(
    "P3.4",
    "Convolution as one matrix product",
    solution_is_fallback=True,
    varies=(BLAS_ARGUMENT,),
    libraries=ARRAYS,
    minutes=15,
    builds_on=("P3.3",),
)
