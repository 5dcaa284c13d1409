"""Checks of P2.6 and P2.7: scale and offset by four schemas, and an integer convolution with its rescaling."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.compiler.quantize.schema import choose_parameters
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import TYPES
from mlhood.grading.variants.parameter import Parameter

# the last argument of `choose_parameters`, besides the schema
CHOICE_ARGUMENT = Parameter("choice_argument", ("none", "bits", "headroom", "narrow"))
# the last argument of `integer_conv`
CONV_ARGUMENT = Parameter("conv_argument", ("none", "stride", "dilation", "w_offset"))
# where `rescale` rounds a number half-way between two integers, and the smallest integer that it returns
HALVES = Parameter("halves", ("up", "down", "away from zero"))
LOWEST = Parameter("lowest", (-128, -127))

HINTS = {
    "asymmetric": "255 steps lead from the integer of `low` to that of `high`; which integer must 0 have, then?",
    "symmetric": "which scale does `low` alone need so that it is not clipped, and which does `high`?",
    "symmetric_unsigned": "is anything of the widened range below 0? Only then are integers for it needed",
    "power_of_two": "which powers of two are not below the symmetric scale? Exact powers stay as they are",
}

Layer = tuple[np.ndarray, np.ndarray, np.ndarray]  # x, w and bias
ACCUMULATORS = (np.int32, np.int64)
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
    # Only an empty range is empty, and logarithms to base 2 are exact to the last bit, or scales are twice too large.
    small_and_large = [(-128 * each, 0.5 * each) for each in (2.0**-29, 2.0**29)]
    small_and_large += [(-each, 127 * 1.1 * each) for each in (2.0**-29, 2.0**29)]
    return [*two_sided, (0.0, a), (a, a + b), (-a - b, -a), *powers, (-1e-10, 2e-10), *small_and_large]


def _check(submission: Submission, schema: str) -> None:
    _check_choices(submission, schema, {})
    argument = submission.parameters.choice_argument
    if argument != "none":
        bits, headroom = int(submission.rng.integers(4, 7)), float(submission.rng.uniform(1.2, 1.9))
        _check_choices(submission, schema, {argument: {"bits": bits, "headroom": headroom, "narrow": True}[argument]})


def _check_choices(submission: Submission, schema: str, extra: dict[str, Any]) -> None:
    for low, high in [*_ranges(submission.rng), (0.0, 0.0)]:
        want_scale, want_offset = _choice(low, high, schema, **extra)
        given, hint = f"low {low:.4g}, high {high:.4g}, schema {schema!r}", _hint(schema, low, high)
        for name, value in extra.items():
            given, hint = f"{given}, {name} {value:.4g}", EXTRA_HINTS[name]
        with expect.case(given, hint):
            result = submission.call("choose_parameters", low, high, schema, **extra)
        result = expect.sequence(result, tuple, "what `choose_parameters` returns", given=given)
        what = "`choose_parameters` does not return two numbers"
        expect.true(len(result) == 2, what, expected="(scale, offset)", got=result, given=given)
        scale = expect.number(result[0], "the scale that `choose_parameters` returns", given=given)
        offset = expect.integer(result[1], "the offset that `choose_parameters` returns", given=given)
        right = abs(scale - want_scale) <= 1e-4 * want_scale
        what, expected = "the scale that `choose_parameters` returns is wrong", f"{want_scale:.6g}"
        expect.true(right, what, expected=expected, got=f"{scale:.6g}", given=given, hint=hint)
        if low == high and schema in WITH_OFFSET:  # in an empty range any integer can represent 0
            highest = 2 ** (extra.get("bits", 8) - 1) - 1
            lowest = -highest if extra.get("narrow") else -highest - 1
            what, expected = "the offset that `choose_parameters` returns is no such integer", f"{lowest} to {highest}"
            expect.true(lowest <= offset <= highest, what, expected=expected, got=offset, given=given, hint=hint)
        else:
            exact = want_offset if extra else _exact_offset(low, high, schema, want_scale, int(want_offset))
            near = abs(offset - exact) <= 0.5 + OFFSET_SLACK
            what = "the offset that `choose_parameters` returns is wrong"
            expect.true(near, what, expected=want_offset, got=offset, given=given, hint=hint)


EXTRA_HINTS = {
    "bits": "what are the smallest and the largest integer of so many bits? An empty range still gets 0.1",
    "headroom": "both ends of the widened range are multiplied by it",
    "narrow": "-127 is the smallest integer then: in how many steps does 127 follow?",
}


def _choice(
    low: float, high: float, schema: str, bits: int = 8, headroom: float = 1.0, narrow: bool = False
) -> tuple[float, float]:
    """Return scale and offset; with an argument of a variant, the offset is not rounded."""
    if (bits, headroom, narrow) == (8, 1.0, False):
        return choose_parameters(low, high, "int8", schema)
    low, high = headroom * min(low, 0.0), headroom * max(high, 0.0)
    largest = 2 ** (bits - 1) - 1
    smallest = -largest if narrow else -largest - 1
    if schema == "asymmetric" or (schema == "symmetric_unsigned" and low == 0):
        scale = (high - low) / (largest - smallest) or 0.1
        return scale, smallest - low / scale
    scale = max(low / smallest, high / largest) or 0.1
    return (2.0 ** float(np.ceil(np.log2(scale))) if schema == "power_of_two" else scale), 0


def _exact_offset(low: float, high: float, schema: str, scale: float, offset: int) -> float:
    """The offset before rounding, where it is rounded: within the slack of a half, both neighbours are accepted."""
    return -128 - min(low, 0.0) / scale if schema == "asymmetric" and high > low else float(offset)


def _hint(schema: str, low: float, high: float) -> str:
    if low == high == 0:
        rounded = ", rounded up to a power of two: 0.125" if schema == "power_of_two" else ""
        return "an empty range determines no scale: take 0.1" + rounded
    if low > 0 or high < 0:
        return "0 is not between low and high: the range has to be widened to include it"
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


def accumulators(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    x_offset: int,
    padding: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    w_offset: int = 0,
) -> np.ndarray:
    """Return the accumulators of an integer convolution.

    Args:
        x: int8 [N, C, H, W].
        w: int8 [F, C, KH, KW].
        bias: int32 [F].
        x_offset: The integer that represents 0.
        padding: Number of zeros on each of the four sides.
        stride: Pixels from one position of the kernel to the next.
        dilation: Pixels between neighbouring elements of the kernel.
        w_offset: The integer of w that represents 0.

    Returns:
        int64 [N, F, OH, OW].
    """
    centred = x.astype(np.int64) - x_offset
    padded = np.pad(centred, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    tall, wide = (dilation * (size - 1) + 1 for size in w.shape[2:])
    windows = sliding_window_view(padded, (tall, wide), axis=(2, 3))[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.int64) - w_offset) + bias.astype(np.int64)[:, None, None]


def rescaled(
    acc: np.ndarray, multiplier: int, shift: int, offset: int, halves: str = "up", lowest: int = -128
) -> np.ndarray:
    """Return (acc * multiplier) / 2^shift, rounded to nearest with ties up, plus offset, saturated to int8.

    Where halves are rounded to, and the smallest integer, may be others.
    """
    half = (1 << shift) >> 1  # 0 if nothing is shifted out
    product = acc.astype(np.int64) * multiplier
    down = halves == "down" or (product < 0 if halves == "away from zero" else False)
    rounded = np.where(down, -((-product + half) >> shift), (product + half) >> shift)
    return np.clip(rounded + offset, lowest, 127)


def _layer(submission: Submission, low: int = -128, high: int = 128) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a layer of which no two axes have the same length."""
    rng = submission.rng
    batch, channels, features, tall, wide = (int(n) for n in rng.permutation([1, 2, 3, 4, 5]))
    height, width = (int(n) for n in rng.permutation([6, 7, 8, 9])[:2])
    x = rng.integers(low, high, (batch, channels, height, width)).astype(np.int8)
    w = rng.integers(low, high, (features, channels, tall, wide)).astype(np.int8)
    return x, w, rng.integers(-20_000, 20_000, features).astype(np.int32)


def _check_sums(submission: Submission, layer: Layer, offset: int, padding: int, note: str, hint: str) -> None:
    x, w, bias = layer
    given = f"x {list(x.shape)}, w {list(w.shape)}, offset {offset}, padding {padding}{note}"
    extra = _conv_argument(submission)
    _check_accumulators(submission, (x, w, bias, offset, padding), {}, given, hint)
    if "dilation" in extra:  # the kernel spans more: a larger image
        x = np.tile(x, (1, 1, 2, 2))
    for name, value in extra.items():
        given, hint = f"{given}, {name} {value}", f"{hint}; {CONV_HINTS[name]}"
        _check_accumulators(submission, (x, w, bias, offset, padding), extra, given, hint)


def _check_accumulators(
    submission: Submission, arguments: tuple[Any, ...], extra: dict[str, Any], given: str, hint: str
) -> None:
    with expect.case(given):
        got = submission.call("integer_conv", *arguments, **extra)
    what, want = "the accumulators of `integer_conv`", accumulators(*arguments, **extra)
    _check_equal(got, want, what, given=given, hint=hint, dtypes=ACCUMULATORS)


CONV_HINTS = {
    "stride": "how many positions of the kernel are left with this stride?",
    "dilation": "which pixels do the elements of the kernel meet, and how many of its positions are left?",
    "w_offset": "w has an offset, too",
}


def _conv_argument(submission: Submission) -> dict[str, Any]:
    """Draw the last argument of `integer_conv` in a variant."""
    argument = submission.parameters.conv_argument
    if argument == "none":
        return {}
    return {argument: int(submission.rng.integers(5, 60) if argument == "w_offset" else 2)}


def _check_rescaled(submission: Submission, acc: np.ndarray, scaling: tuple[int, int, int], hint: str) -> None:
    multiplier, shift, offset = scaling
    given = f"multiplier {multiplier}, shift {shift}, offset {offset}, accumulators {list(acc.shape)}"
    with expect.case(given):
        got = submission.call("rescale", acc, multiplier, shift, offset)
    want = rescaled(acc, multiplier, shift, offset, submission.parameters.halves, submission.parameters.lowest)
    _check_equal(got, want, "the values of `rescale`", given=given, hint=hint, dtypes=(np.int8,))


def _check_equal(
    value: object, want: np.ndarray, what: str, *, given: str, hint: str, dtypes: tuple[type, ...]
) -> None:
    names = " or ".join(np.dtype(each).name for each in dtypes)
    if not isinstance(value, np.ndarray) or value.dtype not in dtypes:
        got = value.dtype.name if isinstance(value, np.ndarray) else value
        expect.fail(f"wrong data type of {what}", expected=f"an array of {names}", got=got, given=given)
    got = expect.array(value, want.shape, what, given=given, hint=hint).astype(np.int64)
    if np.array_equal(got, want):
        return
    worst = np.unravel_index(np.argmax(np.abs(got - want)), want.shape)
    position = "".join(f"[{i}]" for i in worst)
    summary = f"{got[worst]}; {np.mean(got != want):.0%} of all values are wrong"
    expect.fail(f"{what} are wrong", expected=f"{want[worst]} at {position}", got=summary, given=given, hint=hint)


@points(3)
def sums_are_right(submission: Submission) -> None:
    """`integer_conv` sums (x - offset) * w and adds the bias, for any sizes."""
    hint = "the offset belongs to x before it is multiplied; the bias enters each sum once"
    for offset in (0, int(submission.rng.integers(5, 60)), int(submission.rng.integers(-60, -5))):
        _check_sums(submission, _layer(submission), offset, 0, "", hint)


@points(1)
def padding_stands_for_zero(submission: Submission) -> None:
    """Padding represents the real number 0, whatever the offset is."""
    hint = "which integer represents the real number 0?"
    for padding in (1, 2):
        offset = int(submission.rng.integers(-60, -5))
        _check_sums(submission, _layer(submission), offset, padding, "", hint)


@points(1)
def sums_do_not_overflow(submission: Submission) -> None:
    """The accumulators have at least 32 bits: nothing overflows."""
    hint = "neither int8 * int8 nor x - offset fits into int8: convert before you compute"
    _check_sums(submission, _layer(submission, 110, 128), -128, 1, ", values near 127", hint)
    # odd sums around 150,000,000: float32 has every integer up to 2**24
    rng = submission.rng
    x, w = (rng.integers(55, 64, shape) * 2 + 1 for shape in ((1, 64, 7, 6), (2, 64, 5, 5)))
    layer = x.astype(np.int8), w.astype(np.int8), rng.integers(95_000_000, 105_000_000, 2).astype(np.int32)
    hint = "how large do the sums become, and does the type that you add them up in have every integer up to there?"
    _check_sums(submission, layer, -128, 0, ", values near 127, biases near 100,000,000", hint)


HALVES_HINTS = {
    "up": "`>>` rounds down: what has to be added before it, so that half of the last place and more rounds up?",
    "down": "`>>` rounds down: what has to be added before it, so that only more than half rounds up?",
    "away from zero": "`>>` rounds down: what has to be added before it, for numbers above 0 and for those below?",
}


# accumulators with multipliers of which the product over 2**48 is just below a half: in float64, it is a half
JUST_BELOW_A_HALF = ((59_051_851, 302_677_405), (9_600_677, 1_891_026_643))


@points(2)
def rescale_rounds(submission: Submission) -> None:
    """`rescale` multiplies, rounds to nearest and shifts, for both signs."""
    rng = submission.rng
    shift = int(rng.integers(12, 20))
    multiplier = int(rng.integers(1 << 9, 1 << 10))
    limit = (100 << shift) // multiplier
    acc = rng.integers(-limit, limit, (2, 3, 5, 4)).astype(np.int32)
    hint = HALVES_HINTS[submission.parameters.halves]
    _check_rescaled(submission, acc, (multiplier, shift, 0), hint)
    _check_rescaled(submission, np.arange(-40, 40, dtype=np.int32).reshape(1, 2, 8, 5), (1, 2, 0), hint)
    _check_rescaled(submission, np.arange(-40, 40, dtype=np.int32), (3, 1, 0), hint)
    hint = "nothing is shifted out, so nothing is rounded: how much is half of the last place then?"
    for multiplier in (2, 1):
        _check_rescaled(submission, rng.integers(-60, 60, (3, 4)).astype(np.int32), (multiplier, 0, 5), hint)
    if expect.holds(rescale_saturates, submission):  # whether the product has enough bits at all is asked there
        hint = "float64 has 53 bits, and the product of two 32-bit integers up to 64: which numbers are exact?"
        for value, multiplier in JUST_BELOW_A_HALF:
            _check_rescaled(submission, np.array([value, -value], np.int32), (multiplier, 48, 0), hint)


@points(1)
def rescale_saturates(submission: Submission) -> None:
    """`rescale` adds the offset and saturates at {{ lowest }} and 127, even if the product exceeds 32 bits."""
    rng = submission.rng
    results = rng.permutation(np.arange(-210, 210, 7)).reshape(2, 3, 5, 2)  # exact, so that rounding is not tested here
    acc = (results << 16).astype(np.int32)
    offset = int(rng.integers(10, 50))
    hint = "clamp after the offset is added, and before the numbers become int8"
    _check_rescaled(submission, acc, (1, 16, offset), hint)
    _check_rescaled(submission, acc, (1 << 30, 46, offset), "how many bits has the product of two 32-bit integers?")
    hint = "clamp before the numbers become any type in which they may not fit, int32 and int16 as well"
    for multiplier in (4, 1 << 30):
        extremes = np.array([[2**31 - 1, -(2**31 - 1)]], np.int32)
        _check_rescaled(submission, extremes, (multiplier, 1, offset), hint)


TASKS = (
    Task(
        "P2.6",
        "Four quantisation schemas",
        checks=(asymmetric_is_right, symmetric_is_right, symmetric_unsigned_is_right, power_of_two_is_right),
        solution_stands_in=True,
        varies=(CHOICE_ARGUMENT,),
        libraries=TYPES,
        minutes=10,
    ),
    Task(
        "P2.7",
        "An integer convolution",
        checks=(sums_are_right, padding_stands_for_zero, sums_do_not_overflow, rescale_rounds, rescale_saturates),
        libraries=TYPES,
        minutes=20,
        builds_on=("P2.6",),
        varies=(CONV_ARGUMENT, HALVES, LOWEST),
    ),
)
