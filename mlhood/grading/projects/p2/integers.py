"""Checks of P2.6: an integer convolution, and the rescaling of its accumulators to eight bits."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points


def accumulators(x: np.ndarray, w: np.ndarray, bias: np.ndarray, x_offset: int, padding: int) -> np.ndarray:
    """Return the accumulators of an integer convolution.

    Args:
        x: int8 [N, C, H, W].
        w: int8 [F, C, KH, KW], offset 0.
        bias: int32 [F].
        x_offset: The integer that represents 0.
        padding: Number of zeros on each of the four sides.

    Returns:
        int64 [N, F, OH, OW].
    """
    centred = x.astype(np.int64) - x_offset
    padded = np.pad(centred, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.int64)) + bias.astype(np.int64)[:, None, None]


def rescaled(acc: np.ndarray, multiplier: int, shift: int, offset: int) -> np.ndarray:
    """Return (acc * multiplier) / 2^shift, rounded to nearest with ties up, plus offset, saturated to int8."""
    return np.clip(((acc.astype(np.int64) * multiplier + (1 << (shift - 1))) >> shift) + offset, -128, 127)


def _layer(submission: Submission, low: int = -128, high: int = 128) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = submission.rng
    x = rng.integers(low, high, (2, 3, 7, 9)).astype(np.int8)
    w = rng.integers(low, high, (4, 3, 3, 2)).astype(np.int8)
    return x, w, rng.integers(-20_000, 20_000, 4).astype(np.int32)


def _integers(value: object, shape: tuple[int, ...], what: str) -> np.ndarray:
    got = expect.array(value, shape, what)
    if got.dtype.kind not in "iu":
        hint = "use integer arithmetic only"
        expect.fail(f"{what} are not integers", expected="an integer dtype", got=got.dtype.name, hint=hint)
    return got.astype(np.int64)


def _check_equal(value: object, want: np.ndarray, what: str, *, given: str, hint: str) -> None:
    got = _integers(value, want.shape, what)
    if np.array_equal(got, want):
        return
    worst = np.unravel_index(np.argmax(np.abs(got - want)), want.shape)
    position = "".join(f"[{i}]" for i in worst)
    summary = f"{got[worst]}; {np.mean(got != want):.0%} of all values are wrong"
    expect.fail(f"{what} are wrong", expected=f"{want[worst]} at {position}", got=summary, given=given, hint=hint)


@points(5)
def sums_are_right(submission: Submission) -> None:
    """`integer_conv` sums (x - offset) * w and adds the bias."""
    x, w, bias = _layer(submission)
    for offset, given in ((0, "offset 0"), (int(submission.rng.integers(5, 60)), "an offset")):
        got = submission.call("integer_conv", x, w, bias, offset, 0)
        hint = "subtract the offset from x before you multiply; the bias is added once per output"
        _check_equal(
            got,
            accumulators(x, w, bias, offset, 0),
            "the accumulators",
            given=f"{given} ({offset}), no padding",
            hint=hint,
        )


@points(3)
def padding_stands_for_zero(submission: Submission) -> None:
    """Padding represents the real number 0, whatever the offset is."""
    x, w, bias = _layer(submission)
    offset, padding = int(submission.rng.integers(-60, -5)), 2
    got = submission.call("integer_conv", x, w, bias, offset, padding)
    hint = "0 is represented by x_offset: pad x with x_offset, or pad with 0 after subtracting it"
    given = f"offset {offset}, padding {padding}"
    _check_equal(got, accumulators(x, w, bias, offset, padding), "the accumulators", given=given, hint=hint)


@points(2)
def sums_do_not_overflow(submission: Submission) -> None:
    """The accumulators have at least 32 bits: nothing overflows."""
    x, w, bias = _layer(submission, 110, 128)
    got = submission.call("integer_conv", x, w, bias, -128, 1)
    hint = "neither int8 * int8 nor x - offset fits into int8: convert to int32 first"
    _check_equal(
        got, accumulators(x, w, bias, -128, 1), "the accumulators", given="values near 127, offset -128", hint=hint
    )


@points(3)
def rescale_rounds(submission: Submission) -> None:
    """`rescale` multiplies, rounds to nearest and shifts, for both signs."""
    rng = submission.rng
    shift = int(rng.integers(12, 20))
    multiplier = int(rng.integers(1 << 9, 1 << 10))
    limit = (100 << shift) // multiplier
    acc = rng.integers(-limit, limit, (2, 3, 5, 4)).astype(np.int32)
    cases = ((acc, multiplier, shift), (np.arange(-40, 40, dtype=np.int32).reshape(1, 2, 8, 5), 1, 2))
    for acc, multiplier, shift in cases:
        got = submission.call("rescale", acc, multiplier, shift, 0)
        hint = "(acc * multiplier + (1 << (shift - 1))) >> shift: add half of the last place before the shift"
        given = f"multiplier {multiplier}, shift {shift}, offset 0"
        _check_equal(got, rescaled(acc, multiplier, shift, 0), "the rescaled values", given=given, hint=hint)


@points(3)
def rescale_saturates(submission: Submission) -> None:
    """`rescale` adds the offset and saturates at -128 and 127, even if the product exceeds 32 bits."""
    rng = submission.rng
    results = rng.permutation(np.arange(-210, 210, 7)).reshape(2, 3, 5, 2)  # exact, so that rounding is not tested here
    acc = (results << 16).astype(np.int32)
    offset = int(rng.integers(10, 50))
    for multiplier, shift, hint in (
        (1, 16, "np.clip(..., -128, 127) after adding the offset and before converting to int8"),
        (1 << 30, 46, "the product needs 64 bits: acc.astype(np.int64) * multiplier"),
    ):
        got = submission.call("rescale", acc, multiplier, shift, offset)
        given = f"multiplier {multiplier}, shift {shift}, offset {offset}"
        _check_equal(got, rescaled(acc, multiplier, shift, offset), "the rescaled values", given=given, hint=hint)


TASKS = (
    Task(
        "P2.6",
        "An integer convolution",
        checks=(sums_are_right, padding_stands_for_zero, sums_do_not_overflow, rescale_rounds, rescale_saturates),
        forbidden=(
            "torch.nn",
            "torch.nn.functional.conv2d",
            "torch.conv2d",
            "scipy.signal",
            "mlhood.kernels",
            "mlhood.compiler.backends",
        ),
    ),
)
