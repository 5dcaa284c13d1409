"""Checks of P3.5: the table of convolutions, and the rate that stands behind a time."""

from __future__ import annotations

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import (
    check_agreed,
    check_by_the_clock,
    check_claim,
    check_comparisons,
    check_operations,
    whole_rows,
)
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing import Race
from mlhood.grading.projects.p3 import races
from mlhood.grading.projects.p3.costs import right, same
from mlhood.grading.rpc.codec import Remote
from mlhood.kernels.tables import RESNET18, convolution_table
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table

FILL = 'table.fill(row, compare({"no-BLAS": ..., "BLAS": ...}, flops=2 * layer.macs)), for every row'


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(convolution_table()))


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
    check_comparisons(_table(submission), FILL)


@points(3)
def operations_are_told(submission: Submission) -> None:
    """Every cell knows its operations: two for each multiply-accumulate of its layer."""
    flops = {row: layer.geometry.flops for row, layer in RESNET18.items()}
    check_operations(whole_rows(_table(submission), FILL), flops)


@points(4)
def blas_is_faster_and_agrees(submission: Submission) -> None:
    """The library's product is faster in every row, and computes the same."""
    # Both are seen from outside: the rows race in an order that is drawn, and what comes of a race is compared. That
    # a table tells other times in the same ratio is not seen, and earns nothing: no point stands on a time by itself.
    table = _table(submission)
    rows = whole_rows(table, FILL)
    check_agreed(rows)
    hint = "BLAS is `conv_blas`, no-BLAS is `conv_direct`, both on the arguments of the row's layer"
    check_claim(table.verdicts()[0], "BLAS is not faster", hint)
    told = {row: by_loops.ratio(by_blas) for row, (by_loops, by_blas) in rows.items()}
    what = "`conv_blas` is not faster than `conv_direct` as the table has it"
    check_by_the_clock(submission, _races(submission, told), what, "fill the table with `compare`, as measured")


def _races(submission: Submission, told: dict[str, Ratio]) -> list[Race]:
    direct, blas, ours = (submission.value(name) for name in ("conv_direct", "conv_blas", races.REFERENCE))
    for function in (direct, blas):
        expect.true(isinstance(function, Remote), "a convolution of the table is no function", got=function)
    return races.convolutions(direct, blas, ours, told)


TASKS = (
    Task(
        "P3.5",
        "The table",
        checks=(
            rates_are_told,
            rows_are_comparisons,
            operations_are_told,
            blas_is_faster_and_agrees,
        ),
        seconds=600.0,  # a hundred convolutions by the definition, on whatever laptop
        timed=True,
    ),
)
