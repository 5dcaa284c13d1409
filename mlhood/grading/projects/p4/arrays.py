"""Checks of P4.8: cycles and utilisation of a systolic array, in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.variants.parameter import Parameter

# the cycles that WS and IS take to shift in what the array holds, and those that OS takes to shift its sums out
LOADED_IN = Parameter("loaded_in", ("rows", "columns", "rows + columns", "2 * rows"))
TAKEN_OUT_IN = Parameter("taken_out_in", ("", "rows", "columns", "2 * columns"))
# the dimensions along the rows, along the columns, and in time
MAPPING = {"WS": ("k", "n", "m"), "IS": ("k", "m", "n"), "OS": ("m", "n", "k")}
TOO_FEW = {
    "one too few: the first operand enters in cycle 0, and the last cycle counts, too": lambda cycles, *case: cycles - 1
}


def _draw_case(submission: Submission, dataflow: str, remainder: int = 0, most: int = 90) -> Arguments:
    """Draw rows, columns, m, n and k: a few full folds of the array, and a partial one if there is a remainder.

    The dimension that moves is less than `most`.
    """
    rng = submission.rng
    rows, columns = (int(size) for size in rng.permutation([4, 8, 12, 16])[:2])
    down, across, time = MAPPING[dataflow]
    sizes = {
        down: rows * int(rng.integers(2, 5)) + remainder,
        across: columns * int(rng.integers(2, 5)) + remainder,
        time: int(rng.integers(min(40, most - 1), most)),
    }
    return dataflow, rows, columns, sizes["m"], sizes["n"], sizes["k"]


@compared(
    2,
    "cycles",
    hint="when are the weights loaded, when does the last window enter, when does its last sum leave? K is mapped to "
    "the rows, N to the columns",
    mistakes=TOO_FEW,
)
def weights_stay(submission: Submission) -> Iterator[Arguments]:
    """`cycles` for "WS": weights are shifted in, then M windows stream through."""
    for _ in range(3):
        yield _draw_case(submission, "WS")


@compared(
    2,
    "cycles",
    hint="like WS, but the filters stream: which of the dimensions is time now? K is mapped to the rows, M to the "
    "columns",
    mistakes=TOO_FEW,
)
def inputs_stay(submission: Submission) -> Iterator[Arguments]:
    """`cycles` for "IS": inputs are shifted in, then N filters stream through."""
    for _ in range(3):
        yield _draw_case(submission, "IS")


@compared(
    2,
    "cycles",
    hint="nothing is loaded first: when do the last operands meet at the lower right?{% if taken_out_in %} Then the "
    "sums are taken out, in {{ taken_out_in }} cycles{% endif %}; M is mapped to the rows, N to the columns",
    mistakes=TOO_FEW,
)
def outputs_stay(submission: Submission) -> Iterator[Arguments]:
    """`cycles` for "OS": nothing is loaded first, K products are accumulated in place."""
    for _ in range(3):
        yield _draw_case(submission, "OS")


@compared(
    2,
    "cycles",
    presupposes={"WS": weights_stay, "IS": inputs_stay, "OS": outputs_stay},
    hint="how many folds lie along the rows, how many along the columns? The last of each is one, too, even if it is "
    "not full",
)
def last_folds_take_as_long(submission: Submission) -> Iterator[Arguments]:
    """`cycles` counts a fold that fills only part of the array like a full one."""
    for dataflow in MAPPING:
        yield _draw_case(submission, dataflow, remainder=1)
        yield _draw_case(submission, dataflow, remainder=1, most=2)
        yield dataflow, 16, 8, *submission.rng.integers(2, 7, 3).tolist()  # smaller than the array


def _own_utilisation(
    submission: Submission, result: Any, dataflow: str, rows: int, columns: int, m: int, n: int, k: int
) -> float | None:
    """The utilisation that follows from the submission's own `cycles`, if these are any."""
    cycles = 0
    with suppress(expect.CheckFailed):
        cycles = expect.integer(submission.call("cycles", dataflow, rows, columns, m, n, k), "what `cycles` returns")
    return m * n * k / (cycles * rows * columns) if cycles > 0 else None


@compared(
    2,
    "utilisation",
    own=_own_utilisation,
    hint="a fraction of 1: every multiplier could do one multiply-accumulate in each cycle",
)
def utilisation_is_the_busy_part(submission: Submission) -> Iterator[Arguments]:
    """`utilisation` is the fraction of all elements in all cycles that do a multiply-accumulate."""
    for dataflow in MAPPING:
        for remainder in (0, 1):
            yield _draw_case(submission, dataflow, remainder)
    if submission.passed(last_folds_take_as_long):
        for dataflow in MAPPING:
            yield dataflow, 8, 4, 1, 3, 5


P4_8 = Task(
    "P4.8",
    "A systolic array",
    seconds=30,
    varies=(LOADED_IN, TAKEN_OUT_IN),
    libraries=NESTS,
    minutes=30,
    builds_on=("P4.1",),
)
