"""What checks ask of a table of measurements: whether it was measured, side by side, and of the right thing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mlhood.grading.checks import expect, timing
from mlhood.grading.checks.submission import Submission
from mlhood.measure.claims import Verdict
from mlhood.measure.comparison import FEWEST_ROUNDS
from mlhood.measure.measurement import Measurement
from mlhood.measure.table import Table

ONE_THREAD = "mlhood.grading.checks.probes:one_thread"
AS_IT_IS = "put the result of `compare` into the table as it is"

Rows = Mapping[str, list[Measurement]]


def whole_rows(table: Table, hint: str) -> Rows:
    """The rows whose cells are all filled, so that a row that is missing is counted once; at least one.

    Args:
        table: A submission's.
        hint: How a row is filled.

    Raises:
        CheckFailed: There is none.
    """
    cells = {row: [table[row, column] for column in table.columns if (row, column) in table] for row in table.rows}
    whole = {row: found for row, found in cells.items() if len(found) == len(table.columns)}
    expect.true(bool(whole), "no row of the table is filled", got="empty cells", hint=hint)
    return whole  # type: ignore[return-value]


def check_comparisons(table: Table, hint: str) -> None:
    """Check that every row is filled by a comparison of its own, of all columns.

    Args:
        table: A submission's.
        hint: How a row is filled.

    Raises:
        CheckFailed: A cell is empty, measured apart from its row, in too few rounds, or made up.
    """
    empty = ", ".join(f"{row}/{column}" for row, column in table.missing)
    expect.true(not empty, "cells of the table are empty", expected="every row, all columns", got=empty, hint=hint)
    rows = whole_rows(table, hint)
    runs = [cells[0].run for cells in rows.values()]
    shared = ", ".join(row for row, run in zip(rows, runs, strict=True) if run and runs.count(run) > 1)
    expect.true(
        not shared,
        "several rows hold the same comparison",
        expected="one for each row, of its own callables",
        got=shared,
        hint="call `compare` inside of the loop, on what belongs to the row",
    )
    for row, cells in rows.items():
        _check_row(row, cells, hint)


def _check_row(row: str, cells: list[Measurement], hint: str) -> None:
    expect.true(
        _side_by_side(cells),
        "the columns of a row are not from one comparison",
        expected="all measured side by side, in the same rounds",
        got="measured apart, or not by `compare`",
        given=row,
        hint=hint,
    )
    rounds = min(cell.rounds for cell in cells)
    enough = rounds >= FEWEST_ROUNDS
    expected = f"{FEWEST_ROUNDS} or more"
    expect.true(enough, "a cell has too few rounds", expected=expected, got=rounds, given=row, hint=AS_IT_IS)
    varied = all(len(set(cell.seconds)) > 1 for cell in cells)
    expect.true(varied, "all rounds of a cell took the same time to the last digit", given=row, hint=AS_IT_IS)


def check_operations(rows: Rows, flops: Mapping[str, int]) -> None:
    """Check that every cell tells its operations.

    Args:
        rows: As `whole_rows` gives them.
        flops: Of one call, by row; two for each multiply-accumulate.

    Raises:
        CheckFailed: A cell tells others, or none.
    """
    for row, cells in rows.items():
        want = flops[row]
        for cell in cells:
            hint = "compare(..., flops=2 * layer.macs)"
            if cell.flops is not None and 2 * cell.flops == want:
                hint = "these are multiply-accumulates, each of which is two operations: flops=2 * layer.macs"
            got = "none" if cell.flops is None else f"{cell.flops:,.0f}"
            expect.true(cell.flops == want, "wrong number of operations", expected=f"{want:,}", got=got, given=row,
                        hint=hint)  # fmt: skip


def check_agreed(rows: Rows) -> None:
    """Check that the results of each row's columns were compared; rows that were measured apart cost other points.

    Raises:
        CheckFailed: They were not.
    """
    for row, cells in rows.items():
        hint = "let `compare` check the results: leave check=False out"
        agreed = not _side_by_side(cells) or all(cell.agreed for cell in cells)
        expect.true(agreed, "the results were never compared", given=row, hint=hint)


def check_claim(verdict: Verdict, what: str, hint: str) -> None:
    """Check that a claim does not fail; what the noise leaves open costs nothing.

    Raises:
        CheckFailed: It fails.
    """
    reasons = "; ".join(verdict.reasons)
    expect.true(verdict.state != "fails", what, expected=verdict.text, got=reasons, hint=hint)


def check_by_the_clock(submission: Submission, races: Sequence[timing.Race], what: str, hint: str) -> None:
    """Check that the parent's clock does not contradict what a table claims.

    The claims are measured in an order that nobody knows before, until the time for a table is used up: which of them
    are left out then, no row can know. As the task asks for one thread, so do we; what fails is measured again with as
    many as the process has of itself, in case the table was, too.

    Args:
        submission: Whose functions race, if it is `clocked`. What the clock leaves open costs nothing, and is noted;
            likewise a table that tells much less than there is, for what it claims is true.
        races: What the table claims of them; at least one.
        what: Says what is wrong if it does.
        hint: Where to look.

    Raises:
        CheckFailed: It does.
    """
    if not submission.clocked:
        return
    stop = time.monotonic() + timing.TABLE_SECONDS
    for number in submission.rng.permutation(len(races)):
        verdict = _verdict(submission, races[number], timing.TABLE_SECONDS / len(races))
        if verdict.state == "inconclusive":
            submission.notes.append(f"inconclusive: {verdict.reason}; measured again, and it costs no points")
        elif verdict.ratio.low > timing.SLACK * races[number].told.high:
            submission.notes.append(f"the table tells less than there is: {verdict.reason}; it costs no points")
        expect.true(verdict.state != "fails", what, expected="what the table claims, when your functions are timed "
                    "from outside on new arguments", got=verdict.reason, hint=hint)  # fmt: skip
        if time.monotonic() > stop:
            break


def _verdict(submission: Submission, one: timing.Race, seconds: float) -> timing.Verdict:
    """What the clock says with one thread, or, if that contradicts the claim, with the process's own."""
    with _one_thread(submission):
        verdict = timing.race(submission, one, seconds=seconds)
    return timing.race(submission, one, seconds=seconds) if verdict.state == "fails" else verdict


@contextmanager
def _one_thread(submission: Submission) -> Iterator[None]:
    """Fix the threads of the submission's libraries, outside of what is timed: telling them takes milliseconds."""
    fixed = submission.call(ONE_THREAD)
    try:
        yield
    finally:
        submission.call(fixed, method="restore")


def _side_by_side(cells: list[Measurement]) -> bool:
    """Whether all are from the same run of `compare`."""
    runs = {cell.run for cell in cells}
    return len(runs) == 1 and "" not in runs
