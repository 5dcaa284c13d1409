"""Checks of a table of measurements: that it is filled, by side-by-side comparisons, and that its claims hold.

What stands in a table is the student's word. Its form earns nothing: each check of a table also demands that the
grader's own measurement of the functions, which it calls by their names, confirms what the table shows of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from mlhood.grading.checks import expect, timing
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing_verdict import TimingClaim
from mlhood.measure.claims import Verdict
from mlhood.measure.comparison import MIN_ROUNDS
from mlhood.measure.measurement import Measurement
from mlhood.measure.table import Table

UNDERSTATED = 4.0  # times the table's ratio: above this, the failure says so
UNDECIDED = "measured several times, and still undecided"
UNMODIFIED = "put the result of `compare` into the table unmodified"

Rows = Mapping[str, list[Measurement]]


def filled_rows(table: Table, hint: str) -> Rows:
    """Return the cells of every row.

    Raises:
        CheckFailed: A cell is empty: a table with gaps earns nothing, whatever its other rows show.
    """
    empty = ", ".join(f"{row}/{column}" for row, column in table.missing)
    expect.true(not empty, "cells of the table are empty", expected="every row, all columns", got=empty, hint=hint)
    return {row: [table[row, column] for column in table.columns] for row in table.rows}  # type: ignore[misc]


def check_comparisons(table: Table, hint: str) -> None:
    """Check that every row is filled by its own comparison of all columns, on one thread.

    Raises:
        CheckFailed: A cell is empty, not measured together with its row, measured in too few rounds or on other
            threads, or made up.
    """
    rows = filled_rows(table, hint)
    runs = [cells[0].run for cells in rows.values()]
    shared = ", ".join(row for row, run in zip(rows, runs, strict=True) if run and runs.count(run) > 1)
    expect.true(
        not shared,
        "several rows hold the same comparison",
        expected="one for each row, of its own callables",
        got=shared,
        hint="call `compare` inside the loop, on the callables of the row",
    )
    for row, cells in rows.items():
        check_one_comparison(cells, row, hint)
        threads = cells[0].threads or 1  # without a number, they may have been set before
        expect.true(
            threads == 1,
            "the comparison was not made on one core",
            expected="1 thread",
            got=threads,
            given=row,
            hint="compare(..., threads=1)",
        )


def check_one_comparison(cells: Sequence[Measurement], given: str, hint: str) -> None:
    """Check that cells are filled by one comparison.

    Raises:
        CheckFailed: They were not measured together, were measured in too few rounds, or are made up.
    """
    expect.true(
        _side_by_side(cells),
        "the cells are not from one comparison",
        expected="all measured side by side, in the same rounds",
        got="measured separately, or not by `compare`",
        given=given,
        hint=hint,
    )
    rounds = min(cell.rounds for cell in cells)
    enough = rounds >= MIN_ROUNDS
    expected = f"{MIN_ROUNDS} or more"
    expect.true(enough, "a cell has too few rounds", expected=expected, got=rounds, given=given, hint=UNMODIFIED)
    varied = all(len(set(cell.seconds)) > 1 for cell in cells)
    expect.true(varied, "all rounds of a cell took the same time to the last digit", given=given, hint=UNMODIFIED)


def check_operations(rows: Rows, flops: Mapping[str, int]) -> None:
    """Check that every cell states the right number of operations.

    Args:
        rows: From `filled_rows`.
        flops: Operations of one call, by row; two for each multiply-accumulate.

    Raises:
        CheckFailed: A cell states another number, or none.
    """
    for row, cells in rows.items():
        expected = flops[row]
        for cell in cells:
            hint = "compare(..., flops=2 * layer.macs)"
            if cell.flops is not None and 2 * cell.flops == expected:
                hint = "these are multiply-accumulates, each of which is two operations: flops=2 * layer.macs"
            got = "none" if cell.flops is None else f"{cell.flops:,.0f}"
            matches = cell.flops == expected
            expect.true(matches, "wrong number of operations", expected=f"{expected:,}", got=got, given=row, hint=hint)


def check_agreed(rows: Rows) -> None:
    """Check that the results of each row's columns were compared; separately measured rows cost other points.

    Raises:
        CheckFailed: They were not.
    """
    for row, cells in rows.items():
        hint = "let `compare` check the results: remove check=False"
        agreed = not _side_by_side(cells) or all(cell.agreed for cell in cells)
        expect.true(agreed, "the results were never compared", given=row, hint=hint)


def check_claim(submission: Submission, verdict: Verdict, what: str, hint: str) -> None:
    """Check that a claim holds; what the table leaves open is decided by `check_remeasured_claims`, if it is called.

    Raises:
        CheckFailed: It fails, or is open and will not be measured again.
    """
    holds = verdict.state == "holds" or (verdict.state == "open" and submission.session.remeasure)
    expect.true(holds, what, expected=verdict.text, got="; ".join(verdict.reasons), hint=hint)


def check_remeasured_claims(
    submission: Submission, claims: Callable[[], Sequence[TimingClaim]], what: str, hint: str
) -> None:
    """Check that the grader's own timing confirms the claims of a table; it is done once for all checks of a task.

    The claims are measured in random order until the time for a table is used up, so a submission cannot know which
    ones are left out.

    Args:
        submission: Its functions are timed, unless its session does not remeasure. An understated ratio gets a note and
            costs no points.
        claims: Returns the claims of the table; at least one.
        what: The fault, if a claim fails.
        hint: What to do about it.

    Raises:
        CheckFailed: A claim fails.
        CheckUndecided: None fails, but one stayed open although it was measured several times.
    """
    if submission.session.remeasure:
        submission.once("remeasured", lambda: _measure(submission, claims(), what, hint))


def _measure(submission: Submission, claims: Sequence[TimingClaim], what: str, hint: str) -> None:
    """Measure claims; raises what `check_remeasured_claims` does."""
    stop, opened = time.monotonic() + timing.TABLE_SECONDS, []
    for i in submission.rng.permutation(len(claims)):
        verdict = timing.measure_claim(submission, claims[i])
        expect.true(
            verdict.state != "fails",
            verdict.what or what,
            expected="what the table claims, when your functions are timed from outside on new arguments",
            got=verdict.reason,
            hint=hint,
        )
        if verdict.state == "inconclusive":
            opened.append(verdict.reason)
        elif verdict.ratio.low > UNDERSTATED * claims[i].claimed.high:
            submission.notes.append(f"the table understates the ratio: {verdict.reason}; it costs no points")
        if time.monotonic() > stop:
            break
    if opened:
        raise expect.CheckUndecided(f"{UNDECIDED}: {'; '.join(opened)}")


def _side_by_side(cells: Sequence[Measurement]) -> bool:
    """Whether all cells are from the same run of `compare`."""
    runs = {cell.run for cell in cells}
    return len(runs) == 1 and "" not in runs
