"""Checks of P3.3: every window of an image as a column of a matrix."""

from __future__ import annotations

import math

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3 import numba_errors, reference
from mlhood.grading.projects.p3.convolutions import CONVOLUTIONS

Case = tuple[tuple[int, int, int], tuple[int, int], int, int]


def _columns(submission: Submission, case: Case) -> tuple[object, np.ndarray, str]:
    """The student's `im2col` of an image whose pixels all differ, the right result, and a description of the case."""
    shape, kernel, stride, padding = case
    x = (1 + submission.rng.permutation(math.prod(shape))).reshape(shape).astype(np.float32)
    given = f"x {shape}, kernel {kernel}, stride {stride}, padding {padding}"
    with numba_errors.case(given):
        got = submission.call("im2col", x.copy(), kernel, stride, padding)
    return got, reference.columns(x, kernel, stride, padding), given


def _untransposed(got: object, want: np.ndarray, given: str, hint: str) -> np.ndarray:
    """The student's matrix; a transposed one is transposed back, as it costs only the points of the shape."""
    transposed = isinstance(got, np.ndarray) and got.shape == want.T.shape != want.shape
    array = got.T if transposed else got  # type: ignore[union-attr]
    return expect.array(array, want.shape, "what `im2col` returns", given=given, hint=hint)


def _check_values(got: np.ndarray, want: np.ndarray, axis: int | None, what: str, given: str, hint: str) -> None:
    """Fail unless both contain the same values along an axis, in any order."""
    if np.array_equal(np.sort(got, axis), np.sort(want, axis)):
        return
    index = tuple(np.argwhere(got != want)[0])
    position = "".join(f"[{i}]" for i in index)
    expect.fail(what, expected=f"{want[index]:g} at {position}", got=f"{got[index]:g}", given=given, hint=hint)


@points(2)
def columns_have_their_shape(submission: Submission) -> None:
    """`im2col` returns one row for each element of a window and one column for each window."""
    for case in (((3, 6, 7), (3, 2), 1, 0), ((2, 9, 8), (2, 3), 2, 0)):
        got, want, given = _columns(submission, case)
        hint = "[C * KH * KW, OH * OW]: each window is a column, and the columns are side by side"
        expect.array(got, want.shape, "what `im2col` returns", given=given, hint=hint)


@points(1)
def columns_stay_float32(submission: Submission) -> None:
    """`im2col` returns float32, the type of its input."""
    got, _, given = _columns(submission, ((2, 5, 6), (3, 3), 1, 1))
    dtype = got.dtype.name if isinstance(got, np.ndarray) else got
    hint = "np.zeros and np.empty make float64 arrays unless you pass a dtype: twice the bytes, half the speed"
    expect.equal(dtype, "float32", "`im2col` returns the wrong dtype", given=given, hint=hint)


@points(5)
def rows_are_in_order(submission: Submission) -> None:
    """Rows are ordered by channel, then by row and column within the kernel: (c, i, j)."""
    got, want, given = _columns(submission, ((3, 6, 7), (3, 2), 1, 0))
    hint = "row (c * KH + i) * KW + j holds x[c, oh + i, ow + j] of every window: the order of w.reshape(F, -1)"
    matrix = _untransposed(got, want, given, hint)
    _check_values(matrix, want, 1, "a row holds the values of another kernel position", given, hint)


@points(3)
def columns_are_in_order(submission: Submission) -> None:
    """Columns follow the rows of the output, (oh, ow), in steps of `stride`."""
    got, want, given = _columns(submission, ((2, 11, 7), (3, 3), 2, 0))
    hint = "column oh * OW + ow holds the window that starts at row oh * stride and column ow * stride"
    _check_values(_untransposed(got, want, given, hint), want, 0, "a column holds another window", given, hint)


@points(3)
def padding_holds_zeros(submission: Submission) -> None:
    """The padding is zero on all four sides."""
    for case in (((2, 4, 5), (3, 3), 1, 1), ((1, 3, 4), (3, 3), 1, 2)):
        got, want, given = _columns(submission, case)
        hint = "windows extend `padding` pixels beyond every edge, where they hold 0"
        matrix = _untransposed(got, want, given, hint)
        _check_values(matrix, want, None, "the windows at the edges hold wrong values", given, hint)


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
