"""Checks of P3.3: windows as the columns of a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mlhood.grading.bare.libraries import ARRAYS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task
from mlhood.grading.projects.p3.convolutions import draw_sizes, is_float32
from mlhood.grading.variants.parameter import Parameter

# the order of the rows of `im2col`: the axes that they are made of
ROW_ORDER = Parameter("row_order", ("C, KH, KW", "KH, KW, C", "KW, KH, C", "C, KW, KH"))
# which of stride and padding is a pair in `im2col`, and of what
COLUMN_STEPS = Parameter("column_steps", ("same", "strides", "paddings", "sides"))


def _image(
    submission: Submission,
    channels: int,
    kernel: tuple[int, int],
    stride: int,
    padding: int,
    sizes: list[int] | None = None,
    other: int | None = None,
) -> Arguments:
    """Draw arguments of `im2col`: an image whose pixels all differ, and steps as this variant of the course has them.

    Args:
        submission: The submission.
        channels: Of the image.
        kernel: KH and KW.
        stride: Or the first number of a pair.
        padding: Of the convolution, in pixels.
        sizes: Of the image; drawn by default.
        other: What the second number of a pair has in addition; drawn by default.
    """
    shape = (channels, *(sizes or draw_sizes(submission, 6, 12)))
    x = (1 + submission.rng.permutation(math.prod(shape))).reshape(shape).astype(np.float32)
    kind = submission.parameters.column_steps
    if kind == "same":
        return x, kernel, stride, padding
    more = int(submission.rng.integers(1, 3)) if other is None else other
    if kind == "strides":
        return x, kernel, (stride, stride + more), padding
    return x, kernel, stride, (padding, padding + more)


def _matrix(got: object, want: np.ndarray, what: str) -> np.ndarray:
    """Return a matrix; a transposed one is transposed back, as it costs only the points of the shape.

    So channels are drawn for which none is square.
    """
    transposed = isinstance(got, np.ndarray) and got.shape == want.T.shape != want.shape
    return expect.array(got.T if transposed else got, want.shape, what)  # type: ignore[union-attr]


def _same_values(got: np.ndarray, want: np.ndarray, axis: int | None, what: str) -> None:
    """Fail unless both contain the same values along an axis, in any order."""
    if not np.array_equal(np.sort(got, axis), np.sort(want, axis)):
        index = tuple(np.argwhere(got != want)[0])
        position = "".join(f"[{i}]" for i in index)
        expect.fail(what, expected=f"{want[index]:g} at {position}", got=f"{got[index]:g}")


def _same_rows(got: object, want: np.ndarray, what: str) -> None:
    _same_values(_matrix(got, want, what), want, 1, "a row holds the values of another kernel position")


def _same_columns(got: object, want: np.ndarray, what: str) -> None:
    _same_values(_matrix(got, want, what), want, 0, "a column holds another window")


def _same_shape(got: object, want: np.ndarray, what: str) -> None:
    expect.array(got, want.shape, what)


def _same_matrix(got: object, want: np.ndarray, what: str) -> None:
    matrix = _matrix(got, want, what)
    _same_values(matrix, want, None, "the windows at the edges hold wrong values")
    differ, where = int((matrix != want).sum()), "are not where they should be"
    expect.true(not differ, f"with stride or padding, the right values {where}", got=f"{differ} of {want.size}")


@compared(
    2,
    "im2col",
    compare=_same_shape,
    hint="[C * KH * KW, OH * OW]: each window is a column, and the columns are side by side",
)
def columns_have_their_shape(submission: Submission) -> Iterator[Arguments]:
    """`im2col` returns one row for each element of a window and one column for each window."""
    for kernel, stride in (((3, 2), 1), ((2, 3), 2), ((1, 1), 3)):
        yield _image(submission, 3, kernel, stride, 0)


@compared(1, "im2col", compare=is_float32, hint="even for a window of one pixel: a new array, no part of x")
def columns_stay_float32(submission: Submission) -> Iterator[Arguments]:
    """`im2col` returns a new float32 array."""
    case = _image(submission, 2, (3, 3), 1, 1)
    yield case
    yield case  # into new memory
    yield _image(submission, 2, (1, 1), 1, 0, other=0)  # of which the image itself is the matrix
    yield _image(submission, 1, (1, 1), 1, 0, [1, 1], other=0)


@compared(
    3,
    "im2col",
    compare=_same_rows,
    hint="a row is one position in all windows{% if row_order == 'C, KH, KW' %}: in which order does w.reshape(F, -1) "
    "list channels and positions?{% else %}; the last of {{ row_order }} is the fastest{% endif %}",
)
def rows_are_in_order(submission: Submission) -> Iterator[Arguments]:
    """The rows have the order of {% if row_order == "C, KH, KW" %}the weights: `w.reshape(F, -1)\
{% else %}weights [F, {{ row_order }}]: `v.reshape(F, -1)\
{% endif %} @ im2col(...)` is the convolution."""
    for kernel in ((3, 2), (2, 4)):
        yield _image(submission, 11, kernel, 1, 0)


@compared(
    2,
    "im2col",
    compare=_same_columns,
    hint="a column is one window; the windows follow one another as the pixels of y do in memory",
)
def columns_are_in_order(submission: Submission) -> Iterator[Arguments]:
    """The columns have the order of the outputs: along the first row of y, then along the next."""
    for stride in (1, 2, 3):
        yield _image(submission, 11, (3, 2), stride, 0)


def _call_im2col(submission: Submission, *arguments: Any) -> Any:
    """Call `im2col`; what is in another order is as it should be, if that has lost its points already."""
    columns, right = submission.call("im2col", *arguments), submission.solution("im2col", *arguments)
    in_order = submission.passed(rows_are_in_order, columns_are_in_order)
    what = "what `im2col` returns"
    if not in_order and expect.holds(lambda: _same_values(_matrix(columns, right, what), right, None, what)):
        return right
    return columns


@compared(
    2,
    "im2col",
    call=_call_im2col,
    compare=_same_matrix,
    hint="""{{ {"paddings": "windows extend padding[0] pixels above and below, and padding[1] to the left and right",
"sides": "windows extend padding[0] pixels above and to the left, padding[1] below and right"}.get(column_steps,
"windows extend `padding` pixels beyond every edge") }}, where they hold 0; a pixel keeps its position in the window """
    "if others of it are in the padding: has a window at an edge slipped?",
)
def padding_holds_zeros(submission: Submission) -> Iterator[Arguments]:
    """The padding is zero on all four sides{{ {"paddings": ", as many as each pair says", \
"sides": ", as many as each pair says"}.get(column_steps, "") }}."""
    for channels, kernel, stride, padding in (
        (11, (3, 3), 1, 1),
        (1, (3, 3), 1, 2),
        (11, (2, 3), 2, 1),
        (11, (3, 2), 2, 0),
    ):
        yield _image(submission, channels, kernel, stride, padding)


P3_3 = Task(
    "P3.3",
    "Windows as columns",
    solution_is_fallback=True,
    varies=(ROW_ORDER, COLUMN_STEPS),
    libraries=ARRAYS,
    minutes=25,
    builds_on=("P3.2",),
)
