"""Checks of P3.3: windows as the columns of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mlhood.grading.bare.libraries import ARRAYS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task
from mlhood.grading.projects.p3.convolutions import draw_sizes, is_float32
from mlhood.grading.variants.parameter import Parameter

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

    What the second number of a pair of strides or paddings has in addition is drawn, unless it is `other`.
    """
    shape = (channels, *(sizes or draw_sizes(submission, 6, 12)))
    x = (1 + submission.rng.permutation(math.prod(shape))).reshape(shape).astype(np.float32)
    kind, more = submission.parameters.column_steps, int(submission.rng.integers(1, 3)) if other is None else other
    pairs = {"same": (stride, padding), "strides": ((stride, stride + more), padding)}
    return x, kernel, *pairs.get(kind, (stride, (padding, padding + more)))


def _same(axis: int | None, fault: str) -> Callable[[object, np.ndarray, str], None]:
    """Return a comparison of the values along an axis, in any order.

    A transposed matrix is transposed back, as it costs only the points of the shape: so channels are drawn for which
    none is square.
    """

    def compare(got: object, want: np.ndarray, what: str) -> None:
        transposed = isinstance(got, np.ndarray) and got.shape == want.T.shape != want.shape
        matrix = expect.array(got.T if transposed else got, want.shape, what)  # type: ignore[union-attr]
        same = np.array_equal(np.sort(matrix, axis), np.sort(want, axis))
        expect.true(
            same, fault, got=f"{int((matrix != want).sum())} of {want.size} values are not where they should be"
        )

    return compare


def _same_shape(got: object, want: np.ndarray, what: str) -> None:
    expect.array(got, want.shape, what)


def _same_matrix(got: object, want: np.ndarray, what: str) -> None:
    _same(None, "the windows at the edges hold wrong values")(got, want, what)
    matrix = got if isinstance(got, np.ndarray) and got.shape == want.shape else np.transpose(got)  # type: ignore
    expect.true(np.array_equal(matrix, want), "with stride or padding, the right values are not where they should be")


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
    compare=_same(1, "a row holds the values of another kernel position"),
    hint="a row is one position in all windows: in which order does w.reshape(F, -1) list channels and positions?",
)
def rows_are_in_order(submission: Submission) -> Iterator[Arguments]:
    """The rows have the order of the weights: `w.reshape(F, -1) @ im2col(...)` is the convolution."""
    for kernel in ((3, 2), (2, 4)):
        yield _image(submission, 11, kernel, 1, 0)


@compared(
    2,
    "im2col",
    compare=_same(0, "a column holds another window"),
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
    return right if not in_order and expect.holds(_same(None, ""), columns, right, "") else columns


@compared(
    2,
    "im2col",
    call=_call_im2col,
    compare=_same_matrix,
    hint="windows extend beyond every edge by the padding, where they hold 0; a pixel keeps its position in the window "
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
    varies=(COLUMN_STEPS,),
    libraries=ARRAYS,
    minutes=25,
    builds_on=("P3.2",),
)
