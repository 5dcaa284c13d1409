"""Checks of P3.5: the table of convolutions, and the conversion of times to rates."""

from __future__ import annotations

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import (
    check_agreed,
    check_claim,
    check_comparisons,
    check_operations,
    check_remeasured_claims,
    filled_rows,
)
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing_claim import TimingClaim
from mlhood.grading.projects.p3 import races
from mlhood.grading.rpc.codec import Remote
from mlhood.kernels.tables import RESNET18, convolution_table
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table

FILL = 'table.fill(row, compare({"no-BLAS": ..., "BLAS": ...}, flops=2 * layer.macs)), for every row'


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(convolution_table()))


@points(2)
def rates_are_told(submission: Submission) -> None:
    """`gflops` converts multiply-accumulates and seconds to GFLOP/s."""
    for _ in range(3):
        macs, seconds = int(submission.rng.integers(10**6, 10**9)), float(submission.rng.uniform(1e-4, 1e-1))
        got = expect.number(submission.call("gflops", macs, seconds), "what `gflops` returns")
        want = 2 * macs / seconds / 1e9
        hint = "2 * macs / seconds, in units of 1e9"
        if expect.same_number(2 * got, want):
            hint = "a multiply-accumulate is two operations"
        given = f"macs={macs}, seconds={seconds:.6g}"
        expect.close_number(got, want, "`gflops` is wrong", given=given, hint=hint)


@points(5)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row is filled by one comparison of both columns."""
    check_comparisons(_table(submission), FILL)


@points(3)
def operations_are_told(submission: Submission) -> None:
    """Every cell records its operations: two for each multiply-accumulate of its layer."""
    flops = {row: layer.geometry.flops for row, layer in RESNET18.items()}
    check_operations(filled_rows(_table(submission), FILL), flops)


@points(4)
def blas_is_faster_and_agrees(submission: Submission) -> None:
    """The convolution by BLAS is faster in every row and computes the same."""
    # Both claims are verified from outside: the rows are timed again in random order, and the results are compared.
    # Times that are scaled by a common factor go unnoticed, but earn nothing: no point depends on an absolute time.
    table = _table(submission)
    rows = filled_rows(table, FILL)
    check_agreed(rows)
    hint = "the column BLAS is `conv_blas`, no-BLAS is `conv_direct`, both on the arguments of the row's layer"
    check_claim(table.verdicts()[0], "BLAS is not faster", hint)
    claimed = {row: no_blas.ratio(blas) for row, (no_blas, blas) in rows.items()}
    what = "`conv_blas` is not as much faster than `conv_direct` as the table claims"
    check_remeasured_claims(submission, _races(submission, claimed), what, "fill the table with results of `compare`")


def _races(submission: Submission, claimed: dict[str, Ratio]) -> list[TimingClaim]:
    direct, blas = (submission.value(name) for name in ("conv_direct", "conv_blas"))
    for function in (direct, blas):
        expect.true(isinstance(function, Remote), "a convolution of the table is not a function", got=function)
    return races.convolutions(direct, blas, claimed)


TASKS = (
    Task(
        "P3.5",
        "The table",
        checks=(rates_are_told, rows_are_comparisons, operations_are_told, blas_is_faster_and_agrees),
        seconds=600.0,  # a hundred convolutions by the definition, on a slow laptop
        timed=True,
    ),
)
