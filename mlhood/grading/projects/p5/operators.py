"""Checks of P5.2: the operators of ResNet in NumPy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3.convolutions import flat_weights
from mlhood.grading.projects.p5 import reference

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
SPARE_LINES = 10  # what NumPy's own Python may take more of for other sizes


def _called(submission: Submission, name: str, given: str, *args: object, **named: object) -> tuple[Any, float]:
    """What a function returns, and how many lines of Python that takes; fails where it is not NumPy that computes."""
    with expect.case(given):
        told = submission.call(PROBES + "numpy_only", submission.value(name), list(args), named)
        report = expect.mapping(told, ("result", "lines", "foreign"), f"how `{name}` computes")
    foreign = report["foreign"]
    expect.true(foreign == [], f"`{name}` does not compute in NumPy", expected="NumPy alone", got=str(foreign),
                given=given, hint="this is the column No-JAX: NumPy's own functions, and no others")  # fmt: skip
    return report["result"], expect.number(report["lines"], "the number of lines")


def _compare(
    submission: Submission, name: str, want: np.ndarray, given: str, hint: str, *args: object, **named: object
) -> None:
    got, _ = _called(submission, name, given, *args, **named)
    expect.close(got, want, f"what `{name}` returns", rtol=1e-3, atol=1e-4, given=given, hint=hint)


# -- convolution


def _convolves(submission: Submission, x: np.ndarray, w: np.ndarray, hint: str, **options: int) -> None:
    asked = ", ".join(f"{name} {value}" for name, value in options.items())
    given = ", ".join(part for part in (f"x {x.shape}, w {w.shape}", asked) if part)
    want = reference.conv2d(x, w, **options)  # pyright: ignore[reportArgumentType]
    _compare(submission, "conv2d", want, given, hint, x, w, **options)


@points(3)
def convolution_is_right(submission: Submission) -> None:
    """`conv2d` adds up x times w over every window of every image."""
    hint = "y[n, f, oh, ow] = sum over c, i, j of x[n, c, oh + i, ow + j] * w[f, c, i, j]: the kernel is not flipped"
    for x_shape, w_shape in (((1, 3, 7, 7), (4, 3, 3, 3)), ((2, 2, 5, 8), (3, 2, 2, 3))):
        _convolves(submission, submission.normal(*x_shape), submission.normal(*w_shape), hint)


@points(1)
def convolution_takes_strides(submission: Submission) -> None:
    """`conv2d` moves the window by `stride` in both directions."""
    hint = "the window of y[.., oh, ow] starts at row oh * stride and column ow * stride"
    for size, stride in ((9, 2), (11, 3)):
        _convolves(submission, submission.normal(1, 2, size, size + 1), flat_weights(submission, 3, 2, 3, 3), hint,
                   stride=stride)  # fmt: skip


@points(1)
def convolution_pads_with_zeros(submission: Submission) -> None:
    """`conv2d` puts `padding` zeros on all four sides."""
    hint = "np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))"
    for padding in (1, 2):
        _convolves(submission, submission.normal(1, 2, 6, 5), flat_weights(submission, 3, 2, 3, 3), hint,
                   padding=padding)  # fmt: skip


@points(1)
def convolution_adds_its_bias(submission: Submission) -> None:
    """`conv2d` adds the bias of its channel to every output."""
    x, w = submission.normal(2, 2, 6, 5), submission.normal(3, 2, 3, 3)
    bias = (1 + np.arange(3) + submission.rng.random(3)).astype(np.float32)
    given = f"a bias of {[round(float(one), 2) for one in bias]}"
    without, moved = (_called(submission, "conv2d", given, x, w, b)[0] for b in (None, bias))
    shape = without.shape if isinstance(without, np.ndarray) else ()
    expect.true(len(shape) == 4 and shape[1] == len(bias), "wrong shape of what `conv2d` returns",
                expected=(2, 3, 4, 3), got=shape or without)  # fmt: skip
    difference = expect.array(moved, shape, "what `conv2d` returns", given=given) - without
    want = np.broadcast_to(bias[:, None, None], shape)
    expect.close(difference, want, "what the bias adds", atol=1e-3, given=given,
                 hint="bias[:, None, None] stands beside every image's [F, OH, OW]")  # fmt: skip


@points(1)
def pixels_are_not_looped_over(submission: Submission) -> None:
    """`conv2d` runs as many lines of Python for a large image as for a small one."""
    w, counts = submission.normal(3, 2, 3, 3), []
    for size in (20, 24, 48):  # the first call may prepare something
        x = submission.normal(1, 2, size, size)
        got, lines = _called(submission, "conv2d", f"x {x.shape}", x, w)
        expect.true(isinstance(got, np.ndarray) and got.ndim == 4, "`conv2d` returns no array [N, F, OH, OW]",
                    got=got)  # fmt: skip
        counts.append(lines)
    small, large = counts[1:]
    hint = "sliding_window_view gives all windows at once; one product of matrices (@, einsum, tensordot) does the rest"
    expected = f"{small:.0f} lines for 48 x 48 as for 24 x 24"
    expect.true(large <= small + SPARE_LINES, "more lines of Python run for a larger image", expected=expected,
                got=f"{large:.0f} lines", hint=hint)  # fmt: skip


# -- pooling


def _pools(submission: Submission, x: np.ndarray, hint: str, **options: int) -> None:
    given = f"x {x.shape}, " + ", ".join(f"{name} {value}" for name, value in options.items())
    _compare(submission, "max_pool", reference.max_pool(x, **options), given, hint, x, **options)


@points(2)
def pooling_takes_the_largest(submission: Submission) -> None:
    """`max_pool` takes the largest number of every window."""
    hint = "the largest over i and j of x[n, c, oh + i, ow + j]"
    for shape, kernel in (((2, 3, 6, 7), 2), ((1, 2, 7, 6), 3)):
        _pools(submission, submission.normal(*shape), hint, kernel=kernel, stride=1, padding=0)


@points(1)
def pooling_pads_with_less_than_all(submission: Submission) -> None:
    """`max_pool` takes nothing from its padding, whatever the signs of x."""
    hint = "pad with -np.inf: a zero would win where all numbers of a window are negative"
    x = -1 - submission.rng.random((1, 2, 6, 7)).astype(np.float32)
    _pools(submission, x, hint, kernel=3, stride=1, padding=1)


@points(1)
def pooling_takes_strides(submission: Submission) -> None:
    """`max_pool` moves the window by `stride` in both directions."""
    hint = "the window of y[.., oh, ow] starts at row oh * stride and column ow * stride"
    for shape, stride in (((1, 2, 9, 8), 2), ((2, 1, 10, 11), 3)):
        _pools(submission, submission.normal(*shape), hint, kernel=3, stride=stride, padding=0)


# -- number by number


def _norms(submission: Submission, var: np.ndarray, eps: float, hint: str) -> None:
    channels = len(var)
    x = submission.normal(2, channels, 4, 5)
    mean, weight, bias = (submission.normal(channels) for _ in range(3))
    given = f"x {x.shape}, var {np.round(var, 6).tolist()}, eps {eps}"
    want = reference.batch_norm(x, mean, var, weight, bias, eps)
    _compare(submission, "batch_norm", want, given, hint, x, mean, var, weight, bias, eps=eps)


@points(1)
def norm_takes_running_statistics(submission: Submission) -> None:
    """`batch_norm` normalises every channel by the statistics that it is given."""
    hint = "(x - mean) / sqrt(var + eps) * weight + bias, each of the four by channel: mean[:, None, None]"
    _norms(submission, (1 + 3 * submission.rng.random(4)).astype(np.float32), 1e-5, hint)


@points(1)
def norm_adds_eps_to_the_variance(submission: Submission) -> None:
    """`batch_norm` adds `eps` to the variance, inside of the root."""
    hint = "sqrt(var + eps), with the eps that comes in"
    _norms(submission, (1e-3 * (1 + submission.rng.random(3))).astype(np.float32), 1e-3, hint)


@points(1)
def negative_numbers_become_zero(submission: Submission) -> None:
    """`relu` keeps positive numbers and makes zeros of the others."""
    for shape in ((2, 3, 4, 5), (6, 7)):
        x = submission.normal(*shape)
        _compare(submission, "relu", np.maximum(x, 0), f"x {shape}", "np.maximum(x, 0)", x)


@points(1)
def sums_are_taken_place_by_place(submission: Submission) -> None:
    """`add` adds two arrays."""
    x, y = submission.normal(2, 3, 4, 5), submission.normal(2, 3, 4, 5)
    before = x.copy()
    _compare(submission, "add", x + y, f"x and y {x.shape}", "x + y", before, y)


@points(1)
def means_are_of_each_channel(submission: Submission) -> None:
    """`global_average_pool` takes the mean of every channel of every image."""
    x = submission.normal(3, 4, 5, 6)
    hint = "the mean over the axes 2 and 3: [N, C]"
    _compare(submission, "global_average_pool", x.mean(axis=(2, 3)), f"x {x.shape}", hint, x)


@points(1)
def dense_multiplies_by_rows(submission: Submission) -> None:
    """`dense` multiplies by weights [out, in], as torch keeps them."""
    for sizes in ((3, 5, 4), (2, 4, 4)):
        n, inputs, outputs = sizes
        x, w = submission.normal(n, inputs), submission.normal(outputs, inputs)
        given = f"x {x.shape}, w {w.shape}"
        _compare(submission, "dense", x @ w.T, given, "x @ w.T", x, w, np.zeros(outputs, np.float32))


@points(1)
def dense_adds_its_bias(submission: Submission) -> None:
    """`dense` adds the bias of its output."""
    x, w = np.zeros((3, 5), np.float32), submission.normal(5, 5)
    bias = (1 + np.arange(5) + submission.rng.random(5)).astype(np.float32)
    want = np.broadcast_to(bias, (3, 5))
    _compare(submission, "dense", want, f"x of zeros {x.shape}, w {w.shape}", "x @ w.T + bias", x, w, bias)


@points(1)
def softmax_is_along_the_last_axis(submission: Submission) -> None:
    """`softmax` turns the last axis into probabilities, of any number of axes."""
    hint = "axis=-1 with keepdims=True, both for the largest and for the sum"
    for shape in ((3, 5), (7,), (2, 3, 4)):
        x = submission.normal(*shape)
        _compare(submission, "softmax", reference.softmax(x), f"x {shape}", hint, x)


@points(1)
def softmax_stands_large_numbers(submission: Submission) -> None:
    """`softmax` has no overflow for large numbers."""
    hint = "e^1000 is no number: subtract the largest number of the axis first, which changes no ratio"
    for offsets in ((1000.0, 1000.0), (-1000.0, -1000.0), (1000.0, -1000.0)):  # of each row
        x = submission.normal(2, 6) + np.array(offsets, np.float32)[:, None]
        around = " and ".join(f"{offset:g}" for offset in dict.fromkeys(offsets))
        _compare(submission, "softmax", reference.softmax(x), f"x {x.shape} around {around}", hint, x)


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
