"""Checks of P3.3: every window of an image as a column of a matrix."""

from __future__ import annotations

import math

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3 import reference, refusals
from mlhood.grading.projects.p3.convolutions import CONVOLUTIONS

Case = tuple[tuple[int, int, int], tuple[int, int], int, int]


def _made(submission: Submission, case: Case) -> tuple[object, np.ndarray, str]:
    """What `im2col` makes of an image of numbers that are all different, what it should, and of what."""
    shape, kernel, stride, padding = case
    x = (1 + submission.rng.permutation(math.prod(shape))).reshape(shape).astype(np.float32)
    given = f"x {shape}, kernel {kernel}, stride {stride}, padding {padding}"
    with refusals.case(given):
        got = submission.call("im2col", x.copy(), kernel, stride, padding)
    return got, reference.columns(x, kernel, stride, padding), given


def _upright(got: object, want: np.ndarray, given: str, hint: str) -> np.ndarray:
    """The matrix; one that lies on its side is turned round, for that costs only the points of the shape."""
    lying = isinstance(got, np.ndarray) and got.shape == want.T.shape != want.shape
    return expect.array(got.T if lying else got, want.shape, "what `im2col` returns", given=given, hint=hint)  # type: ignore[union-attr]


def _same(found: np.ndarray, want: np.ndarray, axis: int | None, what: str, given: str, hint: str) -> None:
    """Fail unless both hold the same numbers along an axis, in whatever order they stand there."""
    if np.array_equal(np.sort(found, axis), np.sort(want, axis)):
        return
    place = tuple(np.argwhere(found != want)[0])
    named = "".join(f"[{i}]" for i in place)
    expect.fail(what, expected=f"{want[place]:g} at {named}", got=f"{found[place]:g}", given=given, hint=hint)


@points(2)
def columns_have_their_shape(submission: Submission) -> None:
    """`im2col` returns a row for each number of a window, and a column for each window."""
    for case in (((3, 6, 7), (3, 2), 1, 0), ((2, 9, 8), (2, 3), 2, 0)):
        got, want, given = _made(submission, case)
        hint = "[C * KH * KW, OH * OW]: a window stands upright, and the windows stand side by side"
        expect.array(got, want.shape, "what `im2col` returns", given=given, hint=hint)


@points(1)
def columns_stay_float32(submission: Submission) -> None:
    """`im2col` returns float32, as it was given."""
    got, _, given = _made(submission, ((2, 5, 6), (3, 3), 1, 1))
    told = got.dtype.name if isinstance(got, np.ndarray) else got
    hint = "an array made by np.zeros or np.empty is float64 unless you say so: twice the bytes, half the speed"
    expect.equal(told, "float32", "the wrong type comes out", given=given, hint=hint)


@points(5)
def rows_are_in_order(submission: Submission) -> None:
    """Rows go by channel, then by row and column within the kernel: (c, i, j)."""
    got, want, given = _made(submission, ((3, 6, 7), (3, 2), 1, 0))
    hint = "row (c * KH + i) * KW + j holds x[c, oh + i, ow + j] of every window, as w.reshape(F, -1) has its weights"
    _same(_upright(got, want, given, hint), want, 1, "a row holds the numbers of another place", given, hint)


@points(3)
def columns_are_in_order(submission: Submission) -> None:
    """Columns go along the output's rows, (oh, ow), in steps of `stride`."""
    got, want, given = _made(submission, ((2, 11, 7), (3, 3), 2, 0))
    hint = "column oh * OW + ow holds the window that starts at row oh * stride and column ow * stride"
    _same(_upright(got, want, given, hint), want, 0, "a column holds another window", given, hint)


@points(3)
def padding_holds_zeros(submission: Submission) -> None:
    """Padding is zeros on all four sides."""
    for case in (((2, 4, 5), (3, 3), 1, 1), ((1, 3, 4), (3, 3), 1, 2)):
        got, want, given = _made(submission, case)
        hint = "windows reach `padding` numbers beyond every edge; there they hold 0"
        found = _upright(got, want, given, hint)
        _same(found, want, None, "the windows at the edges hold other numbers", given, hint)


COLUMNS_STAND_IN = """
from mlhood.grading.projects.p3.reference import columns as im2col
"""


TASKS = (
    Task(
        "P3.3",
        "Windows as columns",
        checks=(
            columns_have_their_shape,
            columns_stay_float32,
            rows_are_in_order,
            columns_are_in_order,
            padding_holds_zeros,
        ),
        stand_in=COLUMNS_STAND_IN,
        forbidden=CONVOLUTIONS,
    ),
)
