"""Checks of P4.6: cycles and utilisation of a systolic array, in closed form."""

from __future__ import annotations

import math

from mlhood.dataflow.systolic import Array, count, gemm_layer
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

Case = tuple[int, int, int, int, int]
STAYS = {"WS": ("K", "N", "M"), "IS": ("K", "M", "N"), "OS": ("M", "N", "K")}  # along rows, along columns, in time


def _case(submission: Submission, dataflow: str, rest: int = 0) -> Case:
    """Rows, columns, m, n, k; a few folds of the array, with something left over in each if `rest` says so."""
    rng = submission.rng
    rows, columns = (int(size) for size in rng.permutation([4, 8, 12, 16])[:2])
    down, across, steps = STAYS[dataflow]
    sizes = {down: rows * int(rng.integers(2, 5)) + rest, across: columns * int(rng.integers(2, 5)) + rest,
             steps: int(rng.integers(40, 90))}  # fmt: skip
    return rows, columns, sizes["M"], sizes["N"], sizes["K"]


def _given(dataflow: str, case: Case) -> str:
    named = zip(("rows", "columns", "m", "n", "k"), case, strict=True)
    return ", ".join([dataflow, *(f"{name} {size}" for name, size in named)])


def _counted(dataflow: str, case: Case) -> int:
    rows, columns, m, n, k = case
    return count(gemm_layer("product", m, n, k), Array(rows, columns, dataflow.lower())).cycles


def _asked(submission: Submission, name: str, dataflow: str, case: Case) -> float:
    with expect.case(_given(dataflow, case)):
        return expect.number(submission.call(name, dataflow, *case), f"what `{name}` returns")


def _cycles(submission: Submission, dataflow: str, formula: str) -> None:
    """Compare where the product fills the array in every fold."""
    for _ in range(3):
        case = _case(submission, dataflow)
        got, want = _asked(submission, "cycles", dataflow, case), _counted(dataflow, case)
        hint = f"{formula}; {STAYS[dataflow][0]} lies along the rows, {STAYS[dataflow][1]} along the columns"
        if got == want - 1:
            hint = "one too few: the last operand enters T - 1 cycles after the first, and that is one more cycle"
        expect.true(got == want, f"`cycles` of {dataflow} is wrong", expected=f"{want:,}", got=f"{got:,g}",
                    given=_given(dataflow, case), hint=hint)  # fmt: skip


@points(2)
def weights_stay(submission: Submission) -> None:
    """`cycles` of "WS": weights are shifted in, then M windows stream through."""
    _cycles(submission, "WS", "each of the folds takes rows to load, then rows + columns + m - 2")


@points(2)
def inputs_stay(submission: Submission) -> None:
    """`cycles` of "IS": inputs are shifted in, then N filters stream through."""
    _cycles(submission, "IS", "each of the folds takes rows to load, then rows + columns + n - 2")


@points(2)
def outputs_stay(submission: Submission) -> None:
    """`cycles` of "OS": nothing is loaded first, K products are added up in place."""
    _cycles(submission, "OS", "each of the folds takes rows + columns + k - 2")


@points(2)
def last_folds_take_as_long(submission: Submission) -> None:
    """`cycles` counts a fold that fills only a part of the array like a full one."""
    judged = [dataflow for dataflow in STAYS if _right(submission, dataflow)]  # the others cost points above already
    expect.true(bool(judged), "`cycles` is right for no dataflow where all folds are full")
    for dataflow in judged:
        case = _case(submission, dataflow, rest=1)
        got, want = _asked(submission, "cycles", dataflow, case), _counted(dataflow, case)
        hint = "folds = ceil(along the rows / rows) * ceil(along the columns / columns)"
        expect.true(got == want, f"`cycles` of {dataflow} is wrong where a fold is not full", expected=f"{want:,}",
                    got=f"{got:,g}", given=_given(dataflow, case), hint=hint)  # fmt: skip


def _right(submission: Submission, dataflow: str) -> bool:
    case = _case(submission, dataflow)
    return _asked(submission, "cycles", dataflow, case) == _counted(dataflow, case)


@points(4)
def utilisation_is_the_busy_part(submission: Submission) -> None:
    """`utilisation` is the part of all elements in all cycles that multiplies."""
    for dataflow in STAYS:
        for rest in (0, 1):
            rows, columns, m, n, k = case = _case(submission, dataflow, rest)
            got = _asked(submission, "utilisation", dataflow, case)
            want = m * n * k / (_counted(dataflow, case) * rows * columns)
            hint = "m * n * k multiply-accumulates over cycles * rows * columns: a fraction of 1"
            right = math.isclose(got, want, rel_tol=1e-6) or math.isclose(got, _own(submission, dataflow, case),
                                                                          rel_tol=1e-6)  # fmt: skip
            expect.true(right, "`utilisation` is wrong", expected=f"{want:.6g}", got=f"{got:.6g}",
                        given=_given(dataflow, case), hint=hint)  # fmt: skip


def _own(submission: Submission, dataflow: str, case: Case) -> float:
    """What follows from the student's own `cycles`, so that its fault is not counted again; NaN where it has none."""
    rows, columns, m, n, k = case
    try:
        cycles = _asked(submission, "cycles", dataflow, case)
    except expect.CheckFailed:
        return math.nan
    return m * n * k / (cycles * rows * columns) if cycles > 0 else math.nan


TASKS = (
    Task(
        "P4.6",
        "A systolic array",
        checks=(
            weights_stay,
            inputs_stay,
            outputs_stay,
            last_folds_take_as_long,
            utilisation_is_the_busy_part,
        ),
        forbidden=("mlhood.dataflow.systolic",),
    ),
)
