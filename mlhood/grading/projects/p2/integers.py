"""Checks of P2.5 and P2.6: scale and offset by four schemas, and an integer convolution with its rescaling."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.compiler.quantize.schema import choose_parameters
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

HINTS = {
    "asymmetric": "scale = (high - low) / 255; the offset maps 0 to an integer: round(-128 - low / scale)",
    "symmetric": "the end that needs the larger scale decides: max(low / -128, high / 127); the offset is 0",
    "symmetric_unsigned": "if low is 0, the offset is -128 and all 256 integers are used; otherwise as symmetric",
    "power_of_two": "round the symmetric scale up: 2 ** ceil(log2(scale)); the offset is 0",
}

WITH_OFFSET = ("asymmetric", "symmetric_unsigned")
OFFSET_SLACK = 1e-3  # steps: the rounding error of an offset computed in float32


def _ranges(rng: np.random.Generator) -> list[tuple[float, float]]:
    """Draw ranges of every kind: on both sides of 0, on one side only, and far from it."""
    a, b = (float(n) for n in np.exp(rng.normal(size=2)))
    step = 2.0 ** int(rng.integers(-9, 3))
    # Scales of 1.1 and 1.9 steps round up to two steps; a scale of exactly one step stays.
    powers = [(-step, 127 * 1.1 * step), (-128 * 1.9 * step, step), (-128 * step, 0.5 * step), (-step, 127 * step)]
    # The exact offsets -91.6, -64.25 and 95.1 rule out every rounding but to nearest.
    two_sided = [(-a, b), (-b / 6, b), (-b / 3, b), (-a, a / 7), (-1000 * a, 500 * b), (-1e-4 * a, 2e-4)]
    return [*two_sided, (0.0, a), (a, a + b), (-a - b, -a), *powers]


def _check(submission: Submission, schema: str) -> None:
    for low, high in [*_ranges(submission.rng), (0.0, 0.0)]:
        want_scale, want_offset = choose_parameters(low, high, "int8", schema)
        given, hint = f"low {low:.4g}, high {high:.4g}, schema {schema!r}", _hint(schema, low, high)
        with expect.case(given, hint):
            result = submission.call("choose_parameters", low, high, schema)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            what = "`choose_parameters` does not return two numbers"
            expect.fail(what, expected="(scale, offset)", got=result, given=given)
        scale, offset = expect.number(result[0], "the scale"), expect.number(result[1], "the offset")
        right = abs(scale - want_scale) <= 1e-4 * want_scale
        expect.true(
            right, "the scale is wrong", expected=f"{want_scale:.6g}", got=f"{scale:.6g}", given=given, hint=hint
        )
        if low != high or schema not in WITH_OFFSET:  # in an empty range any integer can represent 0
            near = abs(offset - _exact_offset(low, high, schema, want_scale, want_offset)) <= 0.5 + OFFSET_SLACK
            right = near and offset == int(offset)
            expect.true(right, "the offset is wrong", expected=want_offset, got=offset, given=given, hint=hint)


def _exact_offset(low: float, high: float, schema: str, scale: float, offset: int) -> float:
    """The offset before rounding, where it is rounded: within the slack of a half, both neighbours are accepted."""
    return -128 - min(low, 0.0) / scale if schema == "asymmetric" and high > low else float(offset)


def _hint(schema: str, low: float, high: float) -> str:
    if low == high == 0:
        rounded = ", rounded up to a power of two: 0.125" if schema == "power_of_two" else ""
        return "an empty range determines no scale: take 0.1" + rounded
    if low > 0 or high < 0:
        return "widen the range to include 0: low = min(low, 0), high = max(high, 0)"
    return HINTS[schema]


@points(2)
def asymmetric_is_right(submission: Submission) -> None:
    """Asymmetric: the range is mapped to all 256 integers, and 0 exactly to one of them."""
    _check(submission, "asymmetric")


@points(2)
def symmetric_is_right(submission: Submission) -> None:
    """Symmetric: the same range on both sides of 0, with offset 0."""
    _check(submission, "symmetric")


@points(2)
def symmetric_unsigned_is_right(submission: Submission) -> None:
    """Symmetric or unsigned: no integers are wasted on negative values where there are none."""
    _check(submission, "symmetric_unsigned")


@points(2)
def power_of_two_is_right(submission: Submission) -> None:
    """Power of two: multiplying by the scale is a shift."""
    _check(submission, "power_of_two")


PARAMETERS_STAND_IN = """
from mlhood.compiler.quantize.schema import choose_parameters as _choose
def choose_parameters(low, high, schema):
    return _choose(low, high, schema=schema)
"""


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


@points(3)
def sums_are_right(submission: Submission) -> None:
    """`integer_conv` sums (x - offset) * w and adds the bias."""
    x, w, bias = _layer(submission)
    for offset, given in ((0, "offset 0"), (int(submission.rng.integers(5, 60)), "an offset")):
        got = submission.call("integer_conv", x, w, bias, offset, 0)
        hint = "subtract the offset from x before you multiply; the bias is added once per output"
        what = "the accumulators"
        _check_equal(got, accumulators(x, w, bias, offset, 0), what, given=f"{given} ({offset}), no padding", hint=hint)


@points(1)
def padding_stands_for_zero(submission: Submission) -> None:
    """Padding represents the real number 0, whatever the offset is."""
    x, w, bias = _layer(submission)
    offset, padding = int(submission.rng.integers(-60, -5)), 2
    got = submission.call("integer_conv", x, w, bias, offset, padding)
    hint = "0 is represented by x_offset: pad x with x_offset, or pad with 0 after subtracting it"
    given = f"offset {offset}, padding {padding}"
    _check_equal(got, accumulators(x, w, bias, offset, padding), "the accumulators", given=given, hint=hint)


@points(1)
def sums_do_not_overflow(submission: Submission) -> None:
    """The accumulators have at least 32 bits: nothing overflows."""
    x, w, bias = _layer(submission, 110, 128)
    got = submission.call("integer_conv", x, w, bias, -128, 1)
    hint = "neither int8 * int8 nor x - offset fits into int8: convert to int32 first"
    _check_equal(
        got, accumulators(x, w, bias, -128, 1), "the accumulators", given="values near 127, offset -128", hint=hint
    )


@points(2)
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


@points(1)
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
        "P2.5",
        "Four quantisation schemas",
        checks=(asymmetric_is_right, symmetric_is_right, symmetric_unsigned_is_right, power_of_two_is_right),
        stand_in=PARAMETERS_STAND_IN,
        forbidden=("mlhood.compiler.quantize",),
    ),
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
