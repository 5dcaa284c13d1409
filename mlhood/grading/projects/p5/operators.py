"""Checks of P5.2: the operators of ResNet in NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3.convolutions import flat_weights
from mlhood.grading.projects.p5 import reference

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
SPARE_LINES = 10  # that NumPy's own Python code may run more for another size


def _call(submission: Submission, name: str, *args: object, **kwargs: object) -> tuple[Any, float]:
    """Return the result and the number of Python lines run; fail if anything but NumPy computes."""
    answer = submission.call(PROBES + "numpy_only", submission.value(name), list(args), kwargs)
    report = expect.mapping(answer, ("result", "lines", "foreign"), f"the run of `{name}`")
    foreign, what = report["foreign"], f"`{name}` does not compute in NumPy"
    hint = "this is the column No-JAX: use NumPy's functions only"
    expect.true(foreign == [], what, expected="NumPy only", got=str(foreign), hint=hint)
    return report["result"], expect.number(report["lines"], "the number of lines")


def _check(
    submission: Submission, name: str, want: np.ndarray, given: str, hint: str, *args: object, **kwargs: object
) -> None:
    with expect.case(given, hint):
        got, _ = _call(submission, name, *args, **kwargs)
        expect.close(got, want, f"what `{name}` returns", rtol=1e-3, atol=1e-4)


# -- convolution


def _check_convolution(submission: Submission, x: np.ndarray, w: np.ndarray, hint: str, **options: int) -> None:
    given = ", ".join([f"x {x.shape}, w {w.shape}", *(f"{name} {value}" for name, value in options.items())])
    want = reference.conv2d(x, w, **options)  # pyright: ignore[reportArgumentType]
    _check(submission, "conv2d", want, given, hint, x, w, **options)


@points(3)
def convolution_is_right(submission: Submission) -> None:
    """`conv2d` sums x times w over every window of every image."""
    hint = "y[n, f, oh, ow] = sum over c, i, j of x[n, c, oh + i, ow + j] * w[f, c, i, j]: the kernel is not flipped"
    for x_shape, w_shape in (((1, 3, 7, 7), (4, 3, 3, 3)), ((2, 2, 5, 8), (3, 2, 2, 3))):
        _check_convolution(submission, submission.normal(*x_shape), submission.normal(*w_shape), hint)


@points(1)
def convolution_takes_strides(submission: Submission) -> None:
    """`conv2d` moves the window by `stride` in both directions."""
    hint = "the window of y[.., oh, ow] starts at row oh * stride and column ow * stride"
    for size, stride in ((9, 2), (11, 3)):
        x, w = submission.normal(1, 2, size, size + 1), flat_weights(submission, 3, 2, 3, 3)
        _check_convolution(submission, x, w, hint, stride=stride)


@points(1)
def convolution_pads_with_zeros(submission: Submission) -> None:
    """`conv2d` adds `padding` zeros on all four sides."""
    hint = "np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))"
    for padding in (1, 2):
        x, w = submission.normal(1, 2, 6, 5), flat_weights(submission, 3, 2, 3, 3)
        _check_convolution(submission, x, w, hint, padding=padding)


@points(1)
def convolution_adds_its_bias(submission: Submission) -> None:
    """`conv2d` adds each channel's bias to its outputs."""
    x, w = submission.normal(2, 2, 6, 5), submission.normal(3, 2, 3, 3)
    bias = (1 + np.arange(3) + submission.rng.random(3)).astype(np.float32)
    with expect.case(f"a bias of {[round(float(value), 2) for value in bias]}"):
        without, with_bias = (_call(submission, "conv2d", x, w, b)[0] for b in (None, bias))
        shape = without.shape if isinstance(without, np.ndarray) else ()
        what = "wrong shape of what `conv2d` returns"
        expect.true(len(shape) == 4 and shape[1] == len(bias), what, expected=(2, 3, 4, 3), got=shape or without)
        difference = expect.array(with_bias, shape, "what `conv2d` returns") - without
        want = np.broadcast_to(bias[:, None, None], shape)
        hint = "bias[:, None, None] broadcasts over every image's [F, OH, OW]"
        expect.close(difference, want, "what the bias adds", atol=1e-3, hint=hint)


@points(1)
def pixels_are_not_looped_over(submission: Submission) -> None:
    """`conv2d` runs as many lines of Python for a large image as for a small one."""
    w, counts = flat_weights(submission, 3, 2, 3, 3), []
    for size in (20, 24, 48):  # the first call may initialise something
        x = submission.normal(1, 2, size, size)
        with expect.case(f"x {x.shape}"):
            got, lines = _call(submission, "conv2d", x, w)
        array = isinstance(got, np.ndarray) and got.ndim == 4
        expect.true(array, "`conv2d` does not return an array [N, F, OH, OW]", got=got)
        expect.resembles(got, reference.conv2d(x, w), "what `conv2d` returns", given=f"x {x.shape}")
        counts.append(lines)
    small, large = counts[1:]
    expect.true(
        large <= small + SPARE_LINES,
        "more lines of Python run for a larger image",
        expected=f"{small:.0f} lines for 48 x 48, as for 24 x 24",
        got=f"{large:.0f} lines",
        hint="sliding_window_view gives all windows at once; then one matrix product (@, einsum, tensordot) suffices",
    )


# -- pooling


def _check_pooling(submission: Submission, x: np.ndarray, hint: str, **options: int) -> None:
    given = f"x {x.shape}, " + ", ".join(f"{name} {value}" for name, value in options.items())
    _check(submission, "max_pool", reference.max_pool(x, **options), given, hint, x, **options)


@points(2)
def pooling_takes_the_largest(submission: Submission) -> None:
    """`max_pool` returns the maximum of every window."""
    hint = "the maximum over i and j of x[n, c, oh + i, ow + j]"
    for shape, kernel in (((2, 3, 6, 7), 2), ((1, 2, 7, 6), 3)):
        _check_pooling(submission, submission.normal(*shape), hint, kernel=kernel, stride=1, padding=0)


@points(1)
def pooling_pads_with_less_than_all(submission: Submission) -> None:
    """`max_pool` never returns a padded value, whatever the signs of x."""
    hint = "pad with -np.inf: a zero would be the maximum of a window of negative values"
    x = -1 - submission.rng.random((1, 2, 6, 7)).astype(np.float32)
    _check_pooling(submission, x, hint, kernel=3, stride=1, padding=1)


@points(1)
def pooling_takes_strides(submission: Submission) -> None:
    """`max_pool` moves the window by `stride` in both directions."""
    hint = "the window of y[.., oh, ow] starts at row oh * stride and column ow * stride"
    for shape, stride in (((1, 2, 9, 8), 2), ((2, 1, 10, 11), 3)):
        _check_pooling(submission, submission.normal(*shape), hint, kernel=3, stride=stride, padding=0)


# -- elementwise and dense


def _check_norm(submission: Submission, var: np.ndarray, eps: float, hint: str) -> None:
    channels = len(var)
    x = submission.normal(2, channels, 4, 5)
    mean, weight, bias = (submission.normal(channels) for _ in range(3))
    given = f"x {x.shape}, var {np.round(var, 6).tolist()}, eps {eps}"
    want = reference.batch_norm(x, mean, var, weight, bias, eps)
    _check(submission, "batch_norm", want, given, hint, x, mean, var, weight, bias, eps=eps)


@points(1)
def norm_takes_running_statistics(submission: Submission) -> None:
    """`batch_norm` normalises every channel by the statistics passed to it."""
    hint = "(x - mean) / sqrt(var + eps) * weight + bias, each of the four per channel: mean[:, None, None]"
    _check_norm(submission, (1 + 3 * submission.rng.random(4)).astype(np.float32), 1e-5, hint)


@points(1)
def norm_adds_eps_to_the_variance(submission: Submission) -> None:
    """`batch_norm` adds `eps` to the variance, under the square root."""
    hint = "sqrt(var + eps), with the argument eps"
    _check_norm(submission, (1e-3 * (1 + submission.rng.random(3))).astype(np.float32), 1e-3, hint)


@points(1)
def negative_numbers_become_zero(submission: Submission) -> None:
    """`relu` keeps positive values and replaces negative ones by zero."""
    for shape in ((2, 3, 4, 5), (6, 7)):
        x = submission.normal(*shape)
        _check(submission, "relu", np.maximum(x, 0), f"x {shape}", "np.maximum(x, 0)", x)


@points(1)
def sums_are_taken_place_by_place(submission: Submission) -> None:
    """`add` adds two arrays element by element."""
    x, y = submission.normal(2, 3, 4, 5), submission.normal(2, 3, 4, 5)
    _check(submission, "add", x + y, f"x and y {x.shape}", "x + y", x.copy(), y)


@points(1)
def means_are_of_each_channel(submission: Submission) -> None:
    """`global_average_pool` returns the mean of every channel of every image."""
    x = submission.normal(3, 4, 5, 6)
    hint = "the mean over axes 2 and 3: [N, C]"
    _check(submission, "global_average_pool", x.mean(axis=(2, 3)), f"x {x.shape}", hint, x)


@points(1)
def dense_multiplies_by_rows(submission: Submission) -> None:
    """`dense` multiplies by weights [out, in], torch's layout."""
    for n, inputs, outputs in ((3, 5, 4), (2, 4, 4)):
        x, w = submission.normal(n, inputs), submission.normal(outputs, inputs)
        given = f"x {x.shape}, w {w.shape}"
        _check(submission, "dense", x @ w.T, given, "x @ w.T", x, w, np.zeros(outputs, np.float32))


@points(1)
def dense_adds_its_bias(submission: Submission) -> None:
    """`dense` adds the bias of each output."""
    x, w = np.zeros((3, 5), np.float32), submission.normal(5, 5)
    bias = (1 + np.arange(5) + submission.rng.random(5)).astype(np.float32)
    want = np.broadcast_to(bias, (3, 5))
    _check(submission, "dense", want, f"x of zeros {x.shape}, w {w.shape}", "x @ w.T + bias", x, w, bias)


@points(1)
def softmax_is_along_the_last_axis(submission: Submission) -> None:
    """`softmax` converts the last axis of an array of any rank to probabilities."""
    hint = "axis=-1 with keepdims=True, both for the maximum and for the sum"
    for shape in ((3, 5), (7,), (2, 3, 4)):
        x = submission.normal(*shape)
        _check(submission, "softmax", reference.softmax(x), f"x {shape}", hint, x)


@points(1)
def softmax_stands_large_numbers(submission: Submission) -> None:
    """`softmax` does not overflow for large values."""
    hint = "e^1000 overflows: subtract the maximum of the axis first, which changes no ratio"
    for offsets in ((1000.0, 1000.0), (-1000.0, -1000.0), (1000.0, -1000.0)):  # of each row
        x = submission.normal(2, 6) + np.array(offsets, np.float32)[:, None]
        around = " and ".join(f"{offset:g}" for offset in dict.fromkeys(offsets))
        _check(submission, "softmax", reference.softmax(x), f"x {x.shape} around {around}", hint, x)


OPERATORS_STAND_IN = """
from mlhood.jaxlab.operators.no_jax import (
    add, batch_norm, conv2d, dense, global_average_pool, max_pool, relu, softmax,
)
"""

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
        stand_in=OPERATORS_STAND_IN,
        forbidden=("jax", "torch", "mlhood.jaxlab"),
    ),
)
