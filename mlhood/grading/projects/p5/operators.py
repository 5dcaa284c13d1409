"""Checks of P5.2: the operators of ResNet in NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3.convolutions import flat_weights
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import NUMPY
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
SPARE_LINES = 10  # that NumPy's own Python code may run more for another size
# the order of axes, and the product of a dense layer: see `mlhood.jaxlab.operators.layouts`
IMAGES = Parameter("images", ("NCHW", "NHWC", "CHWN", "HWNC"))
FILTERS = Parameter("filters", ("FCHW", "HWCF", "CHWF", "HWFC"))
DENSE = Parameter("dense", ("x @ w.T", "x @ w", "w @ x", "w.T @ x"))
PLACES = ("first", "second", "third", "last")
_RESULT = {"N": "N", "C": "F", "H": "OH", "W": "OW"}  # of a convolution


def _call(submission: Submission, name: str, *args: object, **kwargs: object) -> tuple[Any, float]:
    """Return the result and the number of Python lines run."""
    answer = submission.call(PROBES + "counted_lines", submission.value(name), list(args), kwargs)
    report = expect.mapping(answer, ("result", "lines", "broken"), f"the run of `{name}`")
    check_rules(report["broken"], f"`{name}`")
    return report["result"], expect.number(report["lines"], "the number of lines")


def _check(
    submission: Submission, name: str, want: np.ndarray, given: str, hint: str, *args: object, **kwargs: object
) -> np.ndarray:
    with expect.case(given, hint):
        got, _ = _call(submission, name, *args, **kwargs)
        expect.close(got, want, f"what `{name}` returns", rtol=1e-3, atol=1e-4, dtype=np.float32)
    return got


def _laid(submission: Submission, images: np.ndarray) -> np.ndarray:
    """Return images [N, C, H, W] in the layout of this variant."""
    return reference.reordered(images, "NCHW", submission.parameters.images)


def _laid_filters(submission: Submission, w: np.ndarray) -> np.ndarray:
    return reference.reordered(w, "FCHW", submission.parameters.filters)


# -- convolution


def _check_convolution(submission: Submission, x: np.ndarray, w: np.ndarray, hint: str, **options: Any) -> None:
    own_x, own_w = _laid(submission, x), _laid_filters(submission, w)
    shown = (f"{name} {getattr(value, 'shape', value)}" for name, value in options.items())
    given = ", ".join([f"x {own_x.shape}, w {own_w.shape}", *shown])
    want = _laid(submission, reference.conv2d(x, w, **options))
    _check(submission, "conv2d", want, given, hint, own_x, own_w, **options)


@points(2)
def convolution_is_right(submission: Submission) -> None:
    """`conv2d` sums x times w over every window of every image."""
    hint = "look at one output element: which part of x, and which filter, does it depend on? The kernel is not flipped"
    for x_shape, w_shape in (((1, 3, 7, 7), (4, 3, 3, 3)), ((2, 2, 5, 8), (3, 2, 2, 3)), ((3, 4, 6, 5), (2, 4, 1, 1))):
        _check_convolution(submission, submission.normal(*x_shape), submission.normal(*w_shape), hint)


@points(1)
def convolution_takes_strides(submission: Submission) -> None:
    """`conv2d` moves the window by `stride` in both directions."""
    hint = "the window moves by stride rows and by stride columns; the last one may end before the border"
    for size, stride in ((9, 2), (11, 3)):
        x, w = submission.normal(1, 2, size, size + 1), flat_weights(submission, 3, 2, 3, 3)
        _check_convolution(submission, x, w, hint, stride=stride)
    others = convolution_is_right, convolution_pads_with_zeros, convolution_adds_its_bias
    if all(expect.holds(check, submission) for check in others):
        x, w, bias = submission.normal(2, 3, 9, 8), submission.normal(4, 3, 3, 2), submission.normal(4)
        hint = "each argument is right by itself; do they work together, for more than one image?"
        _check_convolution(submission, x, w, hint, bias=bias, stride=2, padding=1)


@points(1)
def convolution_pads_with_zeros(submission: Submission) -> None:
    """`conv2d` adds `padding` zeros on all four sides."""
    hint = "np.pad takes a pair, before and after, for each of the four axes"
    for padding in (1, 2):
        x, w = submission.normal(1, 2, 6, 5), flat_weights(submission, 3, 2, 3, 3)
        _check_convolution(submission, x, w, hint, padding=padding)


@points(1)
def convolution_adds_its_bias(submission: Submission) -> None:
    """`conv2d` adds each channel's bias to its outputs."""
    x, w = submission.normal(2, 2, 6, 5), submission.normal(3, 2, 3, 3)
    own_x, own_w, axis = _laid(submission, x), _laid_filters(submission, w), submission.parameters.images.index("C")
    bias = (1 + np.arange(3) + submission.rng.random(3)).astype(np.float32)
    with expect.case(f"a bias of {[round(float(value), 2) for value in bias]}"):
        without, with_bias = (_call(submission, "conv2d", own_x, own_w, b)[0] for b in (None, bias))
        shape = without.shape if isinstance(without, np.ndarray) else ()
        what, expected = "wrong shape of what `conv2d` returns", _laid(submission, np.zeros((2, 3, 4, 3))).shape
        expect.true(len(shape) == 4 and shape[axis] == len(bias), what, expected=expected, got=shape or without)
        difference = expect.array(with_bias, shape, "what `conv2d` returns") - without
        want = np.broadcast_to(bias.reshape(-1, *[1] * (3 - axis)), shape)
        hint = "one bias for each of the F output channels, at every position of every image"
        expect.close(difference, want, "what the bias of `conv2d` adds", atol=1e-3, hint=hint, dtype=np.float32)


@points(1)
def pixels_are_not_looped_over(submission: Submission) -> None:
    """`conv2d` runs as many lines of Python for a large image as for a small one."""
    w, counts = flat_weights(submission, 3, 2, 3, 3), []
    own_w, axes = _laid_filters(submission, w), [_RESULT[axis] for axis in submission.parameters.images]
    for size in (20, 24, 192):  # the first call may initialise something; the last shows loops over blocks of rows, too
        x = submission.normal(1, 2, size, size)
        own_x, want = _laid(submission, x), _laid(submission, reference.conv2d(x, w))
        with expect.case(f"x {own_x.shape}"):
            got, lines = _call(submission, "conv2d", own_x, own_w)
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


def _check_pooling(submission: Submission, x: np.ndarray, hint: str, **options: int) -> None:
    own_x, want = _laid(submission, x), _laid(submission, reference.max_pool(x, **options))
    given = ", ".join([f"x {own_x.shape}", *(f"{name} {value}" for name, value in options.items())])
    _check(submission, "max_pool", want, given, hint, own_x, **options)


@points(1)
def pooling_takes_the_largest(submission: Submission) -> None:
    """`max_pool` returns the maximum of every window."""
    index = ", ".join(axis.lower() if axis in "NC" else f"o{axis.lower()}" for axis in submission.parameters.images)
    hint = f"y[{index}] is the largest of kernel * kernel neighbours in the same channel"
    for shape, kernel in (((2, 3, 6, 7), 2), ((1, 2, 7, 6), 3), ((3, 1, 5, 8), 4), ((2, 1, 4, 3), 1)):
        _check_pooling(submission, submission.normal(*shape), hint, kernel=kernel, stride=1, padding=0)


@points(1)
def pooling_pads_with_less_than_all(submission: Submission) -> None:
    """`max_pool` never returns a padded value, whatever the signs and sizes of x."""
    hint = "which number is never the maximum of anything?"
    for exponent, kernel, padding in ((0, 3, 1), (30, 5, 2)):
        x = (-(10.0**exponent) * (1 + submission.rng.random((1, 2, 6, 7)))).astype(np.float32)
        _check_pooling(submission, x, hint, kernel=kernel, stride=1, padding=padding)
    if expect.holds(pooling_takes_strides, submission):
        x = (-1 - submission.rng.random((2, 2, 7, 8))).astype(np.float32)
        _check_pooling(submission, x, hint, kernel=3, stride=2, padding=1)


@points(1)
def pooling_takes_strides(submission: Submission) -> None:
    """`max_pool` moves the window by `stride` in both directions; by default it is ResNet's, 3 x 3 with stride 2."""
    hint = "the window moves by stride rows and by stride columns; the defaults are kernel=3, stride=2, padding=1"
    for shape, stride in (((1, 2, 9, 8), 2), ((2, 1, 10, 11), 3)):
        _check_pooling(submission, submission.normal(*shape), hint, kernel=3, stride=stride, padding=0)
    _check_pooling(submission, np.abs(submission.normal(2, 3, 9, 12)), hint)


# -- elementwise and dense


def _check_norm(submission: Submission, var: np.ndarray, hint: str, **options: float) -> None:
    channels = len(var)
    x = submission.normal(2, channels, 4, 5)
    mean, weight, bias = (submission.normal(channels) for _ in range(3))
    own_x, want = _laid(submission, x), _laid(submission, reference.batch_norm(x, mean, var, weight, bias, **options))
    given = f"x {own_x.shape}, var {np.round(var, 6).tolist()}, eps {options.get('eps', 'not given')}"
    _check(submission, "batch_norm", want, given, hint, own_x, mean, var, weight, bias, **options)


@points(1)
def norm_takes_running_statistics(submission: Submission) -> None:
    """`batch_norm` normalises every channel by the statistics passed to it."""
    place = PLACES[submission.parameters.images.index("C")]
    hint = f"mean, var, weight and bias have one number for each channel, the {place} axis of x"
    for channels in (4, 5):
        _check_norm(submission, (1 + 3 * submission.rng.random(channels)).astype(np.float32), hint, eps=1e-5)


@points(1)
def norm_adds_eps_to_the_variance(submission: Submission) -> None:
    """`batch_norm` adds `eps`, 1e-5 by default, to the variance, under the square root."""
    hint = "where in the formula is eps, and does your code use the argument?"
    for eps in (1e-3, 0.5):
        _check_norm(submission, (1e-3 * (1 + submission.rng.random(3))).astype(np.float32), hint, eps=eps)
    _check_norm(submission, (1e-5 * (1 + submission.rng.random(3))).astype(np.float32), hint)


@points(1)
def negative_numbers_become_zero(submission: Submission) -> None:
    """`relu` keeps positive values and replaces negative ones by zero."""
    hint = "the larger one of each number and 0, in a new array"
    for shape in ((2, 3, 4, 5), (6, 7)):
        x, given = submission.normal(*shape), f"x {shape}"
        got = _check(submission, "relu", np.maximum(x, 0), given, hint, x)
        what = "negative numbers do not become 0 in `relu`"
        expect.true(not got[x < 0].any(), what, expected="0", got=got[x < 0][:4], given=given, hint=hint)
    x = np.abs(submission.normal(4, 5))
    _check(submission, "relu", x, f"x {x.shape}, without negative numbers", hint, x)


@points(1)
def sums_are_taken_place_by_place(submission: Submission) -> None:
    """`add` adds two arrays element by element."""
    for shape in ((2, 3, 4, 5), (1, 2, 6, 3)):
        x, y = submission.normal(*shape), submission.normal(*shape)
        _check(submission, "add", x + y, f"x and y {x.shape}", "the sum, in a new array", x, y)
    zeros = np.zeros_like(x)
    _check(submission, "add", x, f"x {x.shape}, y of zeros", "the sum, in a new array", x, zeros)


@points(1)
def means_are_of_each_channel(submission: Submission) -> None:
    """`global_average_pool` returns the mean of every channel of every image."""
    for shape in ((3, 4, 5, 6), (1, 2, 7, 3)):
        x = _laid(submission, submission.normal(*shape))
        pixels = tuple(submission.parameters.images.index(axis) for axis in "HW")
        hint = "which axes are the pixels of one channel of one image?"
        _check(submission, "global_average_pool", x.mean(axis=pixels), f"x {x.shape}", hint, x)


@points(1)
def dense_multiplies_by_rows(submission: Submission) -> None:
    """`dense` multiplies by weights {{ "of its layout" if dense != "x @ w.T" else "[out, in], torch's layout" }}."""
    product = submission.parameters.dense
    line = "row" if product in ("x @ w.T", "w @ x") else "column"
    hint = f"each {line} of w belongs to one output: which axes of x and w does the product sum over?"
    for n, inputs, outputs in ((3, 5, 4), (2, 4, 4), (1, 5, 3)):
        x, w = submission.normal(n, inputs), submission.normal(outputs, inputs)
        x, w, want = reference.dense_layout(product, x, w, x @ w.T)
        _check(submission, "dense", want, f"x {x.shape}, w {w.shape}", hint, x, w, np.zeros(outputs, np.float32))


@points(1)
def dense_adds_its_bias(submission: Submission) -> None:
    """`dense` adds the bias of each output."""
    for n, outputs in ((3, 5), (5, 5)):
        x, w = np.zeros((n, outputs), np.float32), submission.normal(outputs, outputs)
        bias = (1 + np.arange(outputs) + submission.rng.random(outputs)).astype(np.float32)
        product, want = submission.parameters.dense, np.broadcast_to(bias, (n, outputs))
        x, w, want = reference.dense_layout(product, x, w, want)
        hint = f"the bias is added to every {'column' if product.endswith('x') else 'row'} of the product"
        _check(submission, "dense", want, f"x of zeros {x.shape}, w {w.shape}", hint, x, w, bias)


@points(1)
def softmax_is_along_the_last_axis(submission: Submission) -> None:
    """`softmax` converts the last axis of an array of any rank to probabilities."""
    hint = "the maximum and the sum are those of the last axis, kept as an axis of size 1"
    for shape in ((3, 5), (7,), (2, 3, 4)):
        x = submission.normal(*shape)
        _check(submission, "softmax", reference.softmax(x), f"x {shape}", hint, x)


@points(1)
def softmax_stands_large_numbers(submission: Submission) -> None:
    """`softmax` does not overflow for large values."""
    hint = "which number can be subtracted from a row without changing any of its ratios, so that none overflows?"
    for offsets in ((1000.0, 1000.0), (-1000.0, -1000.0), (1000.0, -1000.0)):  # of each row
        x = submission.normal(2, 6) + np.array(offsets, np.float32)[:, None]
        around = " and ".join(f"{offset:g}" for offset in dict.fromkeys(offsets))
        _check(submission, "softmax", reference.softmax(x), f"x {x.shape} around {around}", hint, x)
    for most in (1000, 100_000):
        x = np.array([[most, -most, most - 2], [1 - most, most + 1, most]], np.float32) + submission.normal(2, 3)
        given = f"x {x.shape}, from {-most} to {most} in each row"
        _check(submission, "softmax", reference.softmax(x), given, hint, x)


TASKS = (
    Task(
        "P5.2",
        "Without JAX",
        checks=(
            convolution_is_right,
            convolution_takes_strides,
            convolution_pads_with_zeros,
            convolution_adds_its_bias,
            pixels_are_not_looped_over,
            pooling_takes_the_largest,
            pooling_pads_with_less_than_all,
            pooling_takes_strides,
            norm_takes_running_statistics,
            norm_adds_eps_to_the_variance,
            negative_numbers_become_zero,
            sums_are_taken_place_by_place,
            means_are_of_each_channel,
            dense_multiplies_by_rows,
            dense_adds_its_bias,
            softmax_is_along_the_last_axis,
            softmax_stands_large_numbers,
        ),
        solution_stands_in=True,
        varies=(IMAGES, FILTERS, DENSE),
        minutes=45,
        builds_on=("P3.4",),
        libraries=NUMPY,
    ),
)
