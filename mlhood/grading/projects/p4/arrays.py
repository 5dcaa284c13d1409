"""Checks of P4.8: cycles and utilisation of a systolic array, in closed form."""

from __future__ import annotations

import math

from mlhood.dataflow.systolic import Array, count, gemm_layer
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.variants.parameter import Parameter

Case = tuple[int, int, int, int, int]
# the dimensions along the rows, along the columns, and in time
# the cycles that WS and IS take to shift in what the array holds, and those that OS takes to shift its sums out
LOADED_IN = Parameter("loaded_in", ("rows", "columns", "rows + columns", "2 * rows"))
TAKEN_OUT_IN = Parameter("taken_out_in", ("", "rows", "columns", "2 * columns"))
# what `utilisation` returns
SHARE = Parameter("share", ("used", "used, in percent", "idle", "idle, in percent"))
CYCLES = {
    "": lambda rows, columns: 0,
    "rows": lambda rows, columns: rows,
    "columns": lambda rows, columns: columns,
    "rows + columns": lambda rows, columns: rows + columns,
    "2 * rows": lambda rows, columns: 2 * rows,
    "2 * columns": lambda rows, columns: 2 * columns,
}
MAPPING = {"WS": ("K", "N", "M"), "IS": ("K", "M", "N"), "OS": ("M", "N", "K")}


def _draw_case(submission: Submission, dataflow: str, remainder: int = 0) -> Case:
    """Draw rows, columns, m, n and k: a few full folds of the array, and a partial one if there is a remainder."""
    rng = submission.rng
    rows, columns = (int(size) for size in rng.permutation([4, 8, 12, 16])[:2])
    down, across, time = MAPPING[dataflow]
    sizes = {
        down: rows * int(rng.integers(2, 5)) + remainder,
        across: columns * int(rng.integers(2, 5)) + remainder,
        time: int(rng.integers(40, 90)),
    }
    return rows, columns, sizes["M"], sizes["N"], sizes["K"]


def _given(dataflow: str, case: Case) -> str:
    labelled = zip(("rows", "columns", "m", "n", "k"), case, strict=True)
    return ", ".join([dataflow, *(f"{name} {size}" for name, size in labelled)])


def _reference_cycles(submission: Submission, dataflow: str, case: Case) -> int:
    """Return the cycles, with those that this variant of the course counts for what is shifted in or out."""
    rows, columns, m, n, k = case
    counted = count(gemm_layer("product", m, n, k), Array(rows, columns, dataflow.lower())).cycles
    sizes = {"M": m, "N": n, "K": k}
    down, across, _ = MAPPING[dataflow]
    folds = -(-sizes[down] // rows) * -(-sizes[across] // columns)
    if dataflow == "OS":
        return counted + folds * CYCLES[submission.parameters.taken_out_in](rows, columns)
    return counted + folds * (CYCLES[submission.parameters.loaded_in](rows, columns) - rows)


def _share(submission: Submission, used: float) -> float:
    """Return what `utilisation` is to return, for the fraction of the array that is used."""
    share = submission.parameters.share
    return (1 - used if "idle" in share else used) * (100 if "percent" in share else 1)


def _cycles(submission: Submission, dataflow: str, case: Case) -> int:
    """Return the student's `cycles`, a whole number."""
    with expect.case(_given(dataflow, case)):
        return expect.integer(submission.call("cycles", dataflow, *case), "what `cycles` returns")


def _call(submission: Submission, name: str, dataflow: str, case: Case) -> float:
    with expect.case(_given(dataflow, case)):
        return expect.number(submission.call(name, dataflow, *case), f"what `{name}` returns")


def _check_cycles(submission: Submission, dataflow: str, formula: str) -> None:
    """Compare the cycles of products that fill the array in every fold."""
    for _ in range(3):
        case = _draw_case(submission, dataflow)
        got, want = _cycles(submission, dataflow, case), _reference_cycles(submission, dataflow, case)
        down, across, _ = MAPPING[dataflow]
        hint = f"{formula}; {down} is mapped to the rows, {across} to the columns"
        if got == want - 1:
            hint = "one too few: the first operand enters in cycle 0, and the last cycle counts, too"
        expect.close_number(got, want, f"`cycles` of {dataflow} is wrong", given=_given(dataflow, case), hint=hint)


@points(2)
def weights_stay(submission: Submission) -> None:
    """`cycles` for "WS": weights are shifted in, then M windows stream through."""
    _check_cycles(
        submission,
        "WS",
        "when are the weights loaded, when does the last window enter, when does its last sum leave?",
    )


@points(2)
def inputs_stay(submission: Submission) -> None:
    """`cycles` for "IS": inputs are shifted in, then N filters stream through."""
    _check_cycles(submission, "IS", "like WS, but the filters stream: which of the dimensions is time now?")


@points(2)
def outputs_stay(submission: Submission) -> None:
    """`cycles` for "OS": nothing is loaded first, K products are accumulated in place."""
    hint = "nothing is loaded first: when do the last operands meet at the lower right?"
    if submission.parameters.taken_out_in:
        hint += f" Then the sums are taken out, in {submission.parameters.taken_out_in} cycles"
    _check_cycles(submission, "OS", hint)


@points(2)
def last_folds_take_as_long(submission: Submission) -> None:
    """`cycles` counts a fold that fills only part of the array like a full one."""
    dataflows = [dataflow for dataflow in MAPPING if _right(submission, dataflow)]  # the others have lost points above
    expect.true(bool(dataflows), "`cycles` is right for no dataflow, even where all folds are full")
    m, n, k = (int(size) for size in submission.rng.integers(2, 7, 3))
    cases = [(dataflow, _draw_case(submission, dataflow, remainder=1)) for dataflow in dataflows]
    cases += [(dataflow, (16, 8, m, n, k)) for dataflow in dataflows]  # smaller than the array
    for dataflow, case in cases:
        got, want = _cycles(submission, dataflow, case), _reference_cycles(submission, dataflow, case)
        hint = "how many folds lie along the rows, how many along the columns? The last of each is one, too"
        what = f"`cycles` of {dataflow} is wrong where a fold is not full"
        expect.close_number(got, want, what, given=_given(dataflow, case), hint=hint)


def _right(submission: Submission, dataflow: str) -> bool:
    case = _draw_case(submission, dataflow)
    return _call(submission, "cycles", dataflow, case) == _reference_cycles(submission, dataflow, case)


@points(2)
def utilisation_is_the_busy_part(submission: Submission) -> None:
    """`utilisation` is the {{ "percentage" if "percent" in share else "fraction" }} of all elements in all cycles {{ \
    "that do no" if "idle" in share else "that do a" }} multiply-accumulate.
    """
    whole = "percentage" if "percent" in submission.parameters.share else "fraction of 1"
    hint = f"a {whole}: every multiplier could do one multiply-accumulate in each cycle"
    if "idle" in submission.parameters.share:
        hint += "; asked for is the part in which it does not"
    small_is_right = submission.passed(last_folds_take_as_long)  # another check has its points
    for dataflow in MAPPING:
        cases = [_draw_case(submission, dataflow, remainder) for remainder in (0, 1)]
        for case in (*cases, *([(8, 4, 1, 3, 5)] if small_is_right else [])):
            rows, columns, m, n, k = case
            got = _call(submission, "utilisation", dataflow, case)
            if expect.same_number(got, _own_utilisation(submission, dataflow, case)):
                continue
            want = _share(submission, m * n * k / (_reference_cycles(submission, dataflow, case) * rows * columns))
            expect.close_number(got, want, "`utilisation` is wrong", given=_given(dataflow, case), hint=hint)


def _own_utilisation(submission: Submission, dataflow: str, case: Case) -> float:
    """The utilisation by the student's own `cycles`, so that an error in it does not count twice; NaN if it fails."""
    rows, columns, m, n, k = case
    try:
        cycles = _call(submission, "cycles", dataflow, case)
    except expect.CheckFailed:
        return math.nan
    return _share(submission, m * n * k / (cycles * rows * columns)) if cycles > 0 else math.nan


TASKS = (
    Task(
        "P4.8",
        "A systolic array",
        checks=(weights_stay, inputs_stay, outputs_stay, last_folds_take_as_long, utilisation_is_the_busy_part),
        seconds=30,
        varies=(LOADED_IN, TAKEN_OUT_IN, SHARE),
        libraries=NESTS,
        minutes=30,
        builds_on=("P4.1",),
    ),
)
