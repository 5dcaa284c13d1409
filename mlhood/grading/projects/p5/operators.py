"""Checks of P5.2: the operators of ResNet in NumPy only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, Cases, Keywords, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Task, points
from mlhood.grading.projects.p3.convolutions import flat_weights
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import NUMPY
from mlhood.grading.variants.parameter import Parameter
from mlhood.jaxlab.operators import no_jax

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
SPARE_LINES = 10  # that NumPy's own Python code may run more for another size
# the order of axes, and the product of a dense layer: see `mlhood.jaxlab.operators.layouts`
IMAGES = Parameter("images", ("NCHW", "NHWC", "CHWN", "HWNC"))
FILTERS = Parameter("filters", ("FCHW", "HWCF", "CHWF", "HWFC"))
DENSE = Parameter("dense", ("x @ w.T", "x @ w", "w @ x", "w.T @ x"))
_RESULT = {"N": "N", "C": "F", "H": "OH", "W": "OW"}  # of a convolution


def _laid(submission: Submission, images: np.ndarray) -> np.ndarray:
    """Return images [N, C, H, W] in the layout of this variant."""
    return reference.reordered(images, "NCHW", submission.parameters.images)


def _laid_filters(submission: Submission, w: np.ndarray) -> np.ndarray:
    return reference.reordered(w, "FCHW", submission.parameters.filters)


def operator(number: float, function: str, hint: str, **tolerances: float) -> Callable[[Cases], Check]:
    """Return a decorator for a check of an operator: its results are float32 arrays."""
    return compared(number, function, hint=hint, typed=True, **{"rtol": 1e-3, "atol": 1e-4, **tolerances})


# -- convolution


def _convolution(submission: Submission, x: np.ndarray, w: np.ndarray, **options: Any) -> Arguments:
    return _laid(submission, x), _laid_filters(submission, w), Keywords(options)


@operator(
    1,
    "conv2d",
    "look at one output element: which part of x, and which filter, does it depend on? The kernel is not flipped",
)
def convolution_is_right(submission: Submission) -> Iterator[Arguments]:
    """`conv2d` sums x times w over every window of every image."""
    for x_shape, w_shape in (((1, 3, 7, 7), (4, 3, 3, 3)), ((2, 2, 5, 8), (3, 2, 2, 3)), ((3, 4, 6, 5), (2, 4, 1, 1))):
        yield _convolution(submission, submission.normal(*x_shape), submission.normal(*w_shape))


@operator(0.5, "conv2d", "np.pad takes a pair, before and after, for each of the four axes")
def convolution_pads_with_zeros(submission: Submission) -> Iterator[Arguments]:
    """`conv2d` adds `padding` zeros on all four sides."""
    for padding in (1, 2):
        x, w = submission.normal(1, 2, 6, 5), flat_weights(submission, 3, 2, 3, 3)
        yield _convolution(submission, x, w, padding=padding)


@operator(0.5, "conv2d", "one bias for each of the F output channels, at every position of every image")
def convolution_adds_its_bias(submission: Submission) -> Iterator[Arguments]:
    """`conv2d` adds each channel's bias to its outputs."""
    for filters in (3, 5):  # of zeros, so that nothing else counts
        bias = (1 + np.arange(filters) + submission.rng.random(filters)).astype(np.float32)
        w = np.zeros((filters, 2, 3, 3), np.float32)
        yield _convolution(submission, submission.normal(2, 2, 6, 5), w, bias=bias)


@operator(
    0.5,
    "conv2d",
    "the window moves by stride rows and by stride columns; the last one may end before the border; with a bias and "
    "with padding, too, and for more than one image",
)
def convolution_takes_strides(submission: Submission) -> Iterator[Arguments]:
    """`conv2d` moves the window by `stride` in both directions."""
    for size, stride in ((9, 2), (11, 3)):
        x, w = submission.normal(1, 2, size, size + 1), flat_weights(submission, 3, 2, 3, 3)
        yield _convolution(submission, x, w, stride=stride)
    if submission.passed(convolution_is_right, convolution_pads_with_zeros, convolution_adds_its_bias):
        x, w, bias = submission.normal(2, 3, 9, 8), submission.normal(4, 3, 3, 2), submission.normal(4)
        yield _convolution(submission, x, w, bias=bias, stride=2, padding=1)


@points(0.5)
def pixels_are_not_looped_over(submission: Submission) -> None:
    """`conv2d` runs as many lines of Python for a large image as for a small one."""
    w, counts = flat_weights(submission, 3, 2, 3, 3), []
    own_w, axes = _laid_filters(submission, w), [_RESULT[axis] for axis in submission.parameters.images]
    for size in (20, 24, 192):  # the first call may initialise something; the last shows loops over blocks of rows, too
        x = submission.normal(1, 2, size, size)
        own_x, want = _laid(submission, x), _laid(submission, no_jax.conv2d(x, w))
        with expect.case(f"x {own_x.shape}"):
            keys = ("result", "lines", "broken")
            report = submission.probe(PROBES + "counted_lines", "conv2d", [own_x, own_w], {}, keys=keys)
            got, lines = report["result"], expect.number(report["lines"], "the number of lines")
        array = isinstance(got, np.ndarray) and got.ndim == 4
        expect.true(array, f"`conv2d` does not return an array [{', '.join(axes)}]", got=got)
        expect.resembles(got, want, "what `conv2d` returns", given=f"x {own_x.shape}")
        counts.append(lines)
    small, large = counts[1:]
    expect.true(
        large <= small + SPARE_LINES,
        "`conv2d` runs more lines of Python for a larger image",
        expected=f"{small:.0f} lines for 192 x 192, as for 24 x 24",
        got=f"{large:.0f} lines",
        hint="sliding_window_view gives all windows at once; then one matrix product (@, einsum, tensordot) suffices",
    )


# -- pooling


@operator(
    0.5,
    "max_pool",
    "each result is the largest of kernel * kernel neighbours in the same channel of the same image",
)
def pooling_takes_the_largest(submission: Submission) -> Iterator[Arguments]:
    """`max_pool` returns the maximum of every window."""
    for shape, kernel in (((2, 3, 6, 7), 2), ((1, 2, 7, 6), 3), ((3, 1, 5, 8), 4), ((2, 1, 4, 3), 1)):
        yield _laid(submission, submission.normal(*shape)), Keywords(kernel=kernel, stride=1, padding=0)


@operator(
    0.5,
    "max_pool",
    "the window moves by stride rows and by stride columns; the defaults are kernel=3, stride=2, padding=1",
)
def pooling_takes_strides(submission: Submission) -> Iterator[Arguments]:
    """`max_pool` moves the window by `stride` in both directions; by default it is ResNet's, 3 x 3 with stride 2."""
    for shape, stride in (((1, 2, 9, 8), 2), ((2, 1, 10, 11), 3)):
        yield _laid(submission, submission.normal(*shape)), Keywords(kernel=3, stride=stride, padding=0)
    yield (_laid(submission, np.abs(submission.normal(2, 3, 9, 12))),)


@operator(0.5, "max_pool", "which number is never the maximum of anything?")
def pooling_pads_with_less_than_all(submission: Submission) -> Iterator[Arguments]:
    """`max_pool` never returns a padded value, whatever the signs and sizes of x."""
    for exponent, kernel, padding in ((0, 3, 1), (30, 5, 2)):
        x = (-(10.0**exponent) * (1 + submission.rng.random((1, 2, 6, 7)))).astype(np.float32)
        yield _laid(submission, x), Keywords(kernel=kernel, stride=1, padding=padding)
    if submission.passed(pooling_takes_strides):
        x = (-1 - submission.rng.random((2, 2, 7, 8))).astype(np.float32)
        yield _laid(submission, x), Keywords(kernel=3, stride=2, padding=1)


# -- elementwise and dense


def _norm(submission: Submission, var: np.ndarray, **options: float) -> Arguments:
    x, channels = submission.normal(2, len(var), 4, 5), len(var)
    mean, weight, bias = (submission.normal(channels) for _ in range(3))
    return _laid(submission, x), mean, var, weight, bias, Keywords(options)


@operator(
    0.5,
    "batch_norm",
    'mean, var, weight and bias have one number for each channel, the {{ ("first", "second", "third", "last")['
    'images.index("C")] }} axis of x',
)
def norm_takes_running_statistics(submission: Submission) -> Iterator[Arguments]:
    """`batch_norm` normalises every channel by the statistics passed to it."""
    for channels in (4, 5):
        yield _norm(submission, (1 + 3 * submission.rng.random(channels)).astype(np.float32), eps=1e-5)


@operator(0.5, "batch_norm", "where in the formula is eps, and does your code use the argument?")
def norm_adds_eps_to_the_variance(submission: Submission) -> Iterator[Arguments]:
    """`batch_norm` adds `eps`, 1e-5 by default, to the variance, under the square root."""
    for eps in (1e-3, 0.5):
        yield _norm(submission, (1e-3 * (1 + submission.rng.random(3))).astype(np.float32), eps=eps)
    yield _norm(submission, (1e-5 * (1 + submission.rng.random(3))).astype(np.float32))


@operator(0.5, "relu", "the larger one of each number and 0, in a new array", rtol=1e-6, atol=0.0)
def negative_numbers_become_zero(submission: Submission) -> Iterator[Arguments]:
    """`relu` keeps positive values and replaces negative ones by zero."""
    for x in (submission.normal(2, 3, 4, 5), submission.normal(6, 7), np.abs(submission.normal(4, 5))):
        yield (x,)


@operator(0.5, "add", "the sum, in a new array")
def sums_are_taken_place_by_place(submission: Submission) -> Iterator[Arguments]:
    """`add` adds two arrays element by element."""
    for shape in ((2, 3, 4, 5), (1, 2, 6, 3)):
        x = submission.normal(*shape)
        yield x, submission.normal(*shape)
    yield x, np.zeros_like(x)


@operator(0.5, "global_average_pool", "which axes are the pixels of one channel of one image?")
def means_are_of_each_channel(submission: Submission) -> Iterator[Arguments]:
    """`global_average_pool` returns the mean of every channel of every image."""
    for shape in ((3, 4, 5, 6), (1, 2, 7, 3)):
        yield (_laid(submission, submission.normal(*shape)),)


def _dense(submission: Submission, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> Arguments:
    return *reference.dense_layout(submission.parameters.dense, x, w), bias


@operator(
    0.5,
    "dense",
    'each {{ "row" if dense in ("x @ w.T", "w @ x") else "column" }} of w belongs to one output: which axes of x and w '
    "does the product sum over?",
)
def dense_multiplies_by_rows(submission: Submission) -> Iterator[Arguments]:
    """`dense` multiplies by weights {{ "of its layout" if dense != "x @ w.T" else "[out, in], torch's layout" }}."""
    for n, inputs, outputs in ((3, 5, 4), (2, 4, 4), (1, 5, 3)):
        x, w = submission.normal(n, inputs), submission.normal(outputs, inputs)
        yield _dense(submission, x, w, np.zeros(outputs, np.float32))


@operator(0.5, "dense", 'the bias is added to every {{ "column" if dense.endswith("x") else "row" }} of the product')
def dense_adds_its_bias(submission: Submission) -> Iterator[Arguments]:
    """`dense` adds the bias of each output."""
    for n, outputs in ((3, 5), (5, 5)):
        bias = (1 + np.arange(outputs) + submission.rng.random(outputs)).astype(np.float32)
        yield _dense(submission, np.zeros((n, outputs), np.float32), submission.normal(outputs, outputs), bias)


@operator(0.5, "softmax", "the maximum and the sum are those of the last axis, kept as an axis of size 1")
def softmax_is_along_the_last_axis(submission: Submission) -> Iterator[Arguments]:
    """`softmax` converts the last axis of an array of any rank to probabilities."""
    for shape in ((3, 5), (7,), (2, 3, 4)):
        yield (submission.normal(*shape),)


@operator(
    0.5,
    "softmax",
    "which number can be subtracted from a row without changing any of its ratios, so that none overflows?",
)
def softmax_stands_large_numbers(submission: Submission) -> Iterator[Arguments]:
    """`softmax` does not overflow for large values."""
    for offsets in ((1000.0, 1000.0), (-1000.0, -1000.0), (1000.0, -1000.0)):  # of each row
        yield (submission.normal(2, 6) + np.array(offsets, np.float32)[:, None],)
    for most in (1000, 100_000):
        yield (np.array([[most, -most, most - 2], [1 - most, most + 1, most]], np.float32) + submission.normal(2, 3),)


P5_2 = Task(
    "P5.2",
    "Without JAX",
    solution_is_fallback=True,
    varies=(IMAGES, FILTERS, DENSE),
    minutes=60,
    builds_on=("P3.4",),
    libraries=NUMPY,
)
