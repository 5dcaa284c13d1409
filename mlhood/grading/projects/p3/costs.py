"""Checks of P3.1 and P3.8: what a convolution costs, and what im2col adds to it."""

from __future__ import annotations

import math

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3.reference import Sizes, draw_sizes, output_size

ROUNDING = 1e-6  # of float32, which may be calculated with, too


def same(got: float, want: float) -> bool:
    """Whether two numbers are equal but for rounding."""
    return got == want or math.isclose(got, want, rel_tol=ROUNDING)


def told(number: float) -> str:
    """A number for people: a whole one to its last digit, another one to six."""
    return f"{number:,.0f}" if float(number).is_integer() and abs(number) < 1e18 else f"{number:.6g}"


def right(got: float, want: float, name: str, *, given: str, hint: str) -> None:
    """Fail unless what `name` says is the number that it should be."""
    expect.true(same(got, want), f"`{name}` is wrong", expected=told(want), got=told(got), given=given, hint=hint)


def _size(submission: Submission, size: int, kernel: int, stride: int, padding: int, hint: str) -> None:
    given = f"size {size}, kernel {kernel}, stride {stride}, padding {padding}"
    with expect.case(given):
        got = expect.number(submission.call("output_size", size, kernel, stride, padding), "what `output_size` returns")
    right(got, output_size(size, kernel, stride, padding), "output_size", given=given, hint=hint)


@points(2)
def windows_are_counted(submission: Submission) -> None:
    """`output_size` counts the places of a window, with padding on both sides."""
    rng = submission.rng
    hint = "the first window starts at 0, the last at size + 2 * padding - kernel: count both ends"
    for padding in (0, 1, 2):
        _size(submission, int(rng.integers(12, 60)), int(rng.integers(2, 8)), 1, padding, hint)


@points(2)
def the_last_step_must_fit(submission: Submission) -> None:
    """`output_size` takes steps of `stride`, and leaves out the one that does not fit."""
    rng = submission.rng
    for stride in (2, 3, 4):
        kernel, steps = int(rng.integers(3, 6)), int(rng.integers(5, 12))
        fits = steps * stride + kernel
        hint = "steps that fit into size + 2 * padding - kernel: whole ones, rounded down (//); then one place more"
        for left_over in (0, stride - 1):
            _size(submission, fits + left_over, kernel, stride, 0, hint)


def _costs(submission: Submission, key: str) -> list[tuple[Sizes, dict]]:
    """What `conv_cost` says of a few layers; dictionaries that have `key`."""

    def ask() -> list[tuple[Sizes, object]]:
        layers = [draw_sizes(submission.rng) for _ in range(3)]
        return [(one, submission.call("conv_cost", one.x, one.w, one.y)) for one in layers]

    found = submission.once("costs", ask)
    hint = 'return {"macs": ..., "bytes": ..., "intensity": ...}'
    return [(one, dict(expect.mapping(cost, (key,), "what `conv_cost` returns", hint=hint))) for one, cost in found]


@points(2)
def macs_are_counted(submission: Submission) -> None:
    """`conv_cost` counts the multiply-accumulates."""
    for one, cost in _costs(submission, "macs"):
        got = expect.number(cost["macs"], "`macs`")
        hint = "one multiply-accumulate for each of the C * KH * KW numbers of a window, for each of N * F * OH * OW"
        if same(got, 2 * one.macs):
            hint = "a multiply-accumulate counts once here; it is two FLOP only in `intensity`"
        right(got, one.macs, "macs", given=str(one), hint=hint)


@points(2)
def bytes_are_counted(submission: Submission) -> None:
    """`conv_cost` counts the bytes of input, weights and output."""
    for one, cost in _costs(submission, "bytes"):
        got = expect.number(cost["bytes"], "`bytes`")
        hint = "all elements of x, w and y, each once, and 4 bytes for each"
        if same(4 * got, one.bytes):
            hint = "these are elements; a float32 takes 4 bytes"
        right(got, one.bytes, "bytes", given=str(one), hint=hint)


@points(2)
def intensity_is_flop_per_byte(submission: Submission) -> None:
    """`conv_cost` tells the arithmetic intensity: FLOP per byte."""
    for one, cost in _costs(submission, "intensity"):
        got = expect.number(cost["intensity"], "`intensity`")
        if same(got, _own_intensity(cost)):
            continue
        hint = "2 * macs / bytes: a multiply-accumulate is two operations"
        right(got, 2 * one.macs / one.bytes, "intensity", given=str(one), hint=hint)


def _own_intensity(cost: dict) -> float:
    """What follows from the student's own numbers, so that a fault in them is not counted again."""
    macs, moved = cost.get("macs"), cost.get("bytes")
    if not isinstance(macs, int | float) or not isinstance(moved, int | float) or min(macs, moved) <= 0:
        return math.nan
    return 2 * macs / moved


@points(3)
def columns_are_counted(submission: Submission) -> None:
    """`im2col_bytes` says how large the columns of a batch are."""
    for _ in range(3):
        one = draw_sizes(submission.rng)
        got = expect.number(submission.call("im2col_bytes", one.x, one.w, one.y), "what `im2col_bytes` returns")
        want = one.column_bytes
        hint = "C * KH * KW rows, OH * OW columns for each of the N images, 4 bytes a number"
        if same(got * one.x[0], want):
            hint = "these are the columns of one image; the batch has N of them"
        if same(4 * got, want):
            hint = "these are elements; a float32 takes 4 bytes"
        right(got, want, "im2col_bytes", given=str(one), hint=hint)


@points(3)
def growth_is_against_the_input(submission: Submission) -> None:
    """`growth` says how many times as large as the input the columns are."""
    for _ in range(3):
        one = draw_sizes(submission.rng)
        image = 4 * math.prod(one.x)
        got = expect.number(submission.call("growth", one.x, one.w, one.y), "what `growth` returns")
        if same(got, _own_bytes(submission, one) / image):
            continue
        want = one.column_bytes / image
        hint = "bytes of the columns divided by bytes of x"
        if same(got, 1 / want):
            hint = "the other way round: the columns stand above, the input below"
        right(got, want, "growth", given=str(one), hint=hint)


def _own_bytes(submission: Submission, one: Sizes) -> float:
    """What the student's own `im2col_bytes` says, so that its fault is not counted again; NaN where it says nothing."""
    try:
        own = expect.number(submission.call("im2col_bytes", one.x, one.w, one.y), "`im2col_bytes`")
    except expect.CheckFailed:
        return math.nan
    return own if own > 0 else math.nan


COSTS_STAND_IN = """
import math as _math
import numba as _numba
def conv_cost(x, w, y):
    macs = _math.prod(y) * _math.prod(w[1:])
    moved = 4 * (_math.prod(x) + _math.prod(w) + _math.prod(y))
    return {"macs": macs, "bytes": moved, "intensity": 2 * macs / moved}
@_numba.njit
def output_size(size, kernel, stride, padding):
    return (size + 2 * padding - kernel) // stride + 1
"""


TASKS = (
    Task(
        "P3.1",
        "What a convolution costs",
        checks=(
            windows_are_counted,
            the_last_step_must_fit,
            macs_are_counted,
            bytes_are_counted,
            intensity_is_flop_per_byte,
        ),
        stand_in=COSTS_STAND_IN,
    ),
    Task(
        "P3.8",
        "What im2col costs",
        checks=(columns_are_counted, growth_is_against_the_input),
    ),
)
