"""Checks of a table of measurements: that it is filled, by side-by-side comparisons, and that its claims hold."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mlhood.grading.checks import expect, timing
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing_claim import TimingClaim
from mlhood.measure.claims import Verdict
from mlhood.measure.comparison import MIN_ROUNDS
from mlhood.measure.measurement import Measurement
from mlhood.measure.table import Table
from mlhood.measure.threading import threads as one_thread

SINGLE_THREAD = "mlhood.grading.checks.probes:single_thread"
UNDERSTATED = 4.0  # times the table's ratio: from here on a student is told
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
    """Check that every row is filled by its own comparison of all columns.

    Raises:
        CheckFailed: A cell is empty, not measured together with its row, measured in too few rounds, or made up.
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
        _check_row(row, cells, hint)


def _check_row(row: str, cells: list[Measurement], hint: str) -> None:
    expect.true(
        _side_by_side(cells),
        "the columns of a row are not from one comparison",
        expected="all measured side by side, in the same rounds",
        got="measured separately, or not by `compare`",
        given=row,
        hint=hint,
    )
    rounds = min(cell.rounds for cell in cells)
    enough = rounds >= MIN_ROUNDS
    expected = f"{MIN_ROUNDS} or more"
    expect.true(enough, "a cell has too few rounds", expected=expected, got=rounds, given=row, hint=UNMODIFIED)
    varied = all(len(set(cell.seconds)) > 1 for cell in cells)
    expect.true(varied, "all rounds of a cell took the same time to the last digit", given=row, hint=UNMODIFIED)


def check_compared_functions(submission: Submission, table: str, functions: Sequence[str]) -> None:
    """Check that what the notebook compares for a table calls these functions of its own, somewhere.

    What stands in a table is only the student's word; that the columns are these functions, the source says.

    Args:
        submission: Its source is read.
        table: The name of the table.
        functions: Their names.

    Raises:
        CheckFailed: One is not among the names that statements with `compare` and the table refer to.
    """
    names = submission.session.references.names_referred_with("compare", table)
    missing = [name for name in functions if name not in names]
    expect.true(
        not names or not missing,
        f"what is compared never calls {' and '.join(f'`{name}`' for name in missing)}",
        expected=f"measurements of {' and '.join(f'`{name}`' for name in functions)}",
        hint="each alternative of `compare` is a function without arguments that calls yours on the row's arguments",
    )


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


def check_claim(verdict: Verdict, what: str, hint: str) -> None:
    """Check that a claim does not fail; one that the table leaves open is decided by `check_remeasured_claims`.

    Raises:
        CheckFailed: It fails.
    """
    reasons = "; ".join(verdict.reasons)
    expect.true(verdict.state != "fails", what, expected=verdict.text, got=reasons, hint=hint)


def check_remeasured_claims(submission: Submission, claims: Sequence[TimingClaim], what: str, hint: str) -> None:
    """Check that the judge's own timing confirms the claims of a table.

    The claims are measured in random order until the time for a table is used up, so a submission cannot know which
    ones are left out. They are measured with one thread, as the task demands; a claim that fails is measured again with
    the process's own number of threads, in case the table was, too.

    Args:
        submission: Its functions are timed, unless its session does not remeasure. An understated ratio gets a note and
            costs no points.
        claims: The claims of the table; at least one.

    Raises:
        CheckFailed: A claim fails.
        CheckHeld: None fails, but one stayed open although it was measured several times, or the table has the slower
            side ahead by no more than what noise may do.
    """
    if not submission.session.remeasure:
        return
    stop, opened = time.monotonic() + timing.TABLE_SECONDS, []
    for i in submission.rng.permutation(len(claims)):
        verdict = _verdict(submission, claims[i])
        if verdict.state != "fails" and claims[i].claimed.high < 1:
            _check_reversed(claims[i], verdict, hint)
            opened.append(verdict.reason)
        elif verdict.state == "inconclusive":
            opened.append(verdict.reason)
        elif verdict.ratio.low > UNDERSTATED * claims[i].claimed.high:
            submission.notes.append(f"the table understates the ratio: {verdict.reason}; it costs no points")
        expect.true(
            verdict.state != "fails",
            verdict.what or what,
            expected="what the table claims, when your functions are timed from outside on new arguments",
            got=verdict.reason,
            hint=hint,
        )
        if time.monotonic() > stop:
            break
    if opened:
        raise expect.CheckHeld(f"{UNDECIDED}: {'; '.join(opened)}")


def _check_reversed(claim: TimingClaim, verdict: timing.Verdict, hint: str) -> None:
    """Check that a table has the slower side ahead by no more than what noise may do."""
    expect.true(
        claim.claimed.high * claim.allowance > verdict.ratio.value,
        f"{claim.name}: the table has the one ahead that is not faster",
        expected="the order that your functions have when they are timed from outside on new arguments",
        got=verdict.reason,
        hint=hint,
    )


def _verdict(submission: Submission, claim: TimingClaim) -> timing.Verdict:
    """Measure a claim with one thread, and if it fails, with the process's own number of threads."""
    with single_thread(submission):
        verdict = timing.measure_claim(submission, claim)
    if verdict.state != "fails" or verdict.what:  # more threads do not make the slower side right
        return verdict
    return timing.measure_claim(submission, claim)


@contextmanager
def single_thread(submission: Submission) -> Iterator[None]:
    """Limit the submission's libraries and ours to one thread; outside the timed section, since it takes time."""
    threads = submission.call(SINGLE_THREAD)
    try:
        with one_thread(1):
            yield
    finally:
        submission.call(threads, method="restore")


def _side_by_side(cells: list[Measurement]) -> bool:
    """Whether all cells are from the same run of `compare`."""
    runs = {cell.run for cell in cells}
    return len(runs) == 1 and "" not in runs
