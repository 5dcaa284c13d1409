"""Checks of P2.5: scale and offset of a range of real numbers, by four schemas."""

from __future__ import annotations

import numpy as np

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


@points(5)
def asymmetric_is_right(submission: Submission) -> None:
    """Asymmetric: the range is mapped to all 256 integers, and 0 exactly to one of them."""
    _check(submission, "asymmetric")


@points(4)
def symmetric_is_right(submission: Submission) -> None:
    """Symmetric: the same range on both sides of 0, with offset 0."""
    _check(submission, "symmetric")


@points(4)
def symmetric_unsigned_is_right(submission: Submission) -> None:
    """Symmetric or unsigned: no integers are wasted on negative values where there are none."""
    _check(submission, "symmetric_unsigned")


@points(3)
def power_of_two_is_right(submission: Submission) -> None:
    """Power of two: multiplying by the scale is a shift."""
    _check(submission, "power_of_two")


PARAMETERS_STAND_IN = """
from mlhood.compiler.quantize.schema import choose_parameters as _choose
def choose_parameters(low, high, schema):
    return _choose(low, high, schema=schema)
"""


TASKS = (
    Task(
        "P2.5",
        "Four quantisation schemas",
        checks=(asymmetric_is_right, symmetric_is_right, symmetric_unsigned_is_right, power_of_two_is_right),
        stand_in=PARAMETERS_STAND_IN,
        forbidden=("mlhood.compiler.quantize",),
    ),
)
