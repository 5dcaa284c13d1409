"""Checks of P3.5: the table of convolutions, and the rate that stands behind a time."""

from __future__ import annotations

from mlhood.grading import expect
from mlhood.grading.projects.p3.costs import right, same, told
from mlhood.grading.submission import Submission
from mlhood.grading.task import points
from mlhood.kernels.tables import RESNET18, convolution_table
from mlhood.measure.comparison import FEWEST_ROUNDS
from mlhood.measure.measurement import Measurement
from mlhood.measure.table import Table

FILL = 'table.fill(row, compare({"no-BLAS": ..., "BLAS": ...}, flops=2 * layer.macs)), for every row'


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(convolution_table()))


def _whole_rows(submission: Submission) -> dict[str, list[Measurement]]:
    """The rows whose cells are all filled, so that a row that is missing is counted once; at least one."""
    table = _table(submission)
    cells = {row: [table[row, column] for column in table.columns if (row, column) in table] for row in table.rows}
    whole = {row: found for row, found in cells.items() if len(found) == len(table.columns)}
    expect.true(bool(whole), "no row of the table is filled", got="empty cells", hint=FILL)
    return whole  # type: ignore[return-value]


def _side_by_side(cells: list[Measurement]) -> bool:
    """Whether all are from the same run of `compare`."""
    runs = {cell.run for cell in cells}
    return len(runs) == 1 and "" not in runs


@points(2)
def rates_are_told(submission: Submission) -> None:
    """`gflops` turns multiply-accumulates and seconds into GFLOP/s."""
    for _ in range(3):
        macs, seconds = int(submission.rng.integers(10**6, 10**9)), float(submission.rng.uniform(1e-4, 1e-1))
        got = expect.number(submission.call("gflops", macs, seconds), "what `gflops` returns")
        want = 2 * macs / seconds / 1e9
        hint = "2 * macs / seconds, in units of 1e9"
        if same(2 * got, want):
            hint = "a multiply-accumulate is two operations"
        given = f"macs={macs}, seconds={seconds:.6g}"
        right(got, want, "gflops", given=given, hint=hint)


@points(5)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row is filled by one comparison of both columns."""
    table = _table(submission)
    empty = ", ".join(f"{row}/{column}" for row, column in table.missing)
    expect.true(not empty, "cells of the table are empty", expected="every row, both columns", got=empty, hint=FILL)
    rows = _whole_rows(submission)
    runs = [cells[0].run for cells in rows.values()]
    shared = ", ".join(row for row, run in zip(rows, runs, strict=True) if run and runs.count(run) > 1)
    expect.true(
        not shared,
        "several rows hold the same comparison",
        expected="one for each row, of its layer",
        got=shared,
        hint="call `compare` inside of the loop, on the arguments of the row's layer",
    )
    for row, cells in rows.items():
        rounds = min(cell.rounds for cell in cells)
        expect.true(
            _side_by_side(cells),
            "the columns of a row are not from one comparison",
            expected="both measured side by side, in the same rounds",
            got="measured apart, or not by `compare`",
            given=row,
            hint=FILL,
        )
        expect.true(
            rounds >= FEWEST_ROUNDS,
            "a cell has too few rounds",
            expected=f"{FEWEST_ROUNDS} or more",
            got=rounds,
            given=row,
            hint="`compare` takes them: put its result into the table as it is",
        )
        varied = all(len(set(cell.seconds)) > 1 for cell in cells)
        hint = "put the result of `compare` into the table as it is"
        expect.true(varied, "all rounds of a cell took the same time to the last digit", given=row, hint=hint)


@points(3)
def operations_are_told(submission: Submission) -> None:
    """Every cell knows its operations: two for each multiply-accumulate of its layer."""
    for row, cells in _whole_rows(submission).items():
        want = RESNET18[row].geometry.flops
        for cell in cells:
            hint = "compare(..., flops=2 * layer.macs)"
            if cell.flops is not None and same(2 * cell.flops, want):
                hint = "these are multiply-accumulates, each of which is two operations: flops=2 * layer.macs"
            got = "none" if cell.flops is None else told(cell.flops)
            fits = cell.flops is not None and same(cell.flops, want)
            expect.true(fits, "wrong number of operations", expected=told(want), got=got, given=row, hint=hint)


@points(4)
def blas_is_faster_and_agrees(submission: Submission) -> None:
    """The library's product is faster in every row, and computes the same."""
    rows = _whole_rows(submission)
    for row, cells in rows.items():
        if not _side_by_side(cells):
            continue  # which costs the points of the rows
        hint = "let `compare` check the results: leave check=False out"
        expect.true(all(cell.agreed for cell in cells), "the results were never compared", given=row, hint=hint)
    faster = _table(submission).verdicts()[0]
    hint = "BLAS is `conv_blas`, no-BLAS is `conv_direct`, both on the arguments of the row's layer"
    expect.true(
        faster.state != "fails", "BLAS is not faster", expected=faster.text, got="; ".join(faster.reasons), hint=hint
    )
