"""Checks of P3.5 and P3.6: the tables of convolutions and of the model, and the conversion of times to rates."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import (
    check_agreed,
    check_claim,
    check_compared_functions,
    check_comparisons,
    check_operations,
    check_remeasured_claims,
    filled_rows,
)
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing_claim import TimingClaim
from mlhood.grading.projects.p3 import model_races, races
from mlhood.grading.projects.p3.reference import convolution
from mlhood.grading.rpc.codec import Remote
from mlhood.kernels.tables import RESNET18, convolution_table, model_table
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table

FILL = "for every row, one call of `compare` with one alternative for each column, and its result into the row"
FUNCTIONS = ("conv_direct", "conv_blas")
PROBES = "mlhood.grading.projects.p3.probes:"
MARK = 500.0  # what the probe adds to each result is twice as much


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(convolution_table()))


@points(2)
def rates_are_told(submission: Submission) -> None:
    """`gflops` converts multiply-accumulates and seconds to GFLOP/s."""
    for _ in range(3):
        macs, seconds = int(submission.rng.integers(10**6, 10**9)), float(submission.rng.uniform(1e-4, 1e-1))
        got = expect.number(submission.call("gflops", macs, seconds), "what `gflops` returns")
        want = 2 * macs / seconds / 1e9
        hint = "operations, not multiply-accumulates, for each second; giga is 10**9"
        if expect.same_number(2 * got, want):
            hint = "a multiply-accumulate is two operations"
        given = f"macs={macs}, seconds={seconds:.6g}"
        expect.close_number(got, want, "`gflops` is wrong", given=given, hint=hint)


@points(4)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row is filled by one comparison of both columns."""
    check_comparisons(_table(submission), FILL)
    check_compared_functions(submission, "table", FUNCTIONS)


@points(2)
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
    return races.convolutions(*_functions(submission), claimed)


def _functions(submission: Submission) -> tuple[Remote, Remote]:
    direct, blas = (submission.value(name) for name in FUNCTIONS)
    for function in (direct, blas):
        expect.true(isinstance(function, Remote), "a convolution of the table is not a function", got=function)
    return direct, blas


def _models(submission: Submission) -> Table:
    return submission.once("models", lambda: submission.table(model_table()))


@points(2)
def convolutions_are_chosen_by_their_weights(submission: Submission) -> None:
    """`mixed` computes the chosen convolutions by the given function, and all others right."""
    chosen = [[3, 2, 3, 3], [4, 4, 1, 3]]
    shapes = [*chosen, [2, 3, 3, 3], [3, 2, 1, 1], [4, 4, 3, 1]]
    cases = [
        [submission.normal(1, shape[1], 6, 7), submission.normal(*shape), submission.normal(shape[0])]
        for shape in shapes
    ]
    hint = (
        "the target of `mlhood.compile` is a function (x, w, bias, stride, padding); which of these tells C1 from C2?"
    )
    with expect.case(f"the chosen shapes {chosen}, and weights of the shapes {shapes}", hint):
        report = submission.call(PROBES + "choices", submission.value("mixed"), chosen, cases, [1, 1])
        report = expect.mapping(report, ("results", "called"), "what `mixed` returns")
        wanted = [int(shape in chosen) for shape in shapes]
        expect.equal(report["called"], wanted, "`mixed` makes the wrong choice of the given function")
        results = expect.sequence(report["results"], list, "the results of what `mixed` returns")
        for case, result, called in zip(cases, results, wanted, strict=True):
            want = convolution(*case, 1, 1) + 2 * MARK * called  # type: ignore[arg-type]
            expect.close(result, want, "what the function of `mixed` returns", atol=1e-3, dtype=np.float32)


@points(2)
def models_are_comparisons(submission: Submission) -> None:
    """Every row of the model's table is filled by one comparison of both columns."""
    check_comparisons(_models(submission), FILL)
    check_compared_functions(submission, "models_table", FUNCTIONS)


@points(4)
def blas_speeds_up_the_model(submission: Submission) -> None:
    """The model is faster with BLAS in every row, as much as the table claims, and computes the same."""
    table = _models(submission)
    rows = filled_rows(table, FILL)
    check_agreed(rows)
    hint = "the models of a row differ only in what the chosen convolutions are computed by"
    check_claim(table.verdicts()[0], "the model with BLAS is not faster", hint)
    if not submission.session.remeasure:
        return
    direct, blas = _functions(submission)
    claimed = {row: no_blas.ratio(blas) for row, (no_blas, blas) in rows.items()}
    what = "the model with `conv_blas` is not as much faster than that with `conv_direct` as the table claims"
    claims = model_races.models(submission, direct, blas, claimed)
    check_remeasured_claims(submission, claims, what, "fill the table with results of `compare`")


TASKS = (
    Task(
        "P3.5",
        "The table",
        checks=(rates_are_told, rows_are_comparisons, operations_are_told, blas_is_faster_and_agrees),
        seconds=600.0,  # a hundred convolutions by the definition, on a slow laptop
        timed=True,
        minutes=20,
        builds_on=("P3.2", "P3.4"),
    ),
    Task(
        "P3.6",
        "The table of the model",
        checks=(convolutions_are_chosen_by_their_weights, models_are_comparisons, blas_speeds_up_the_model),
        seconds=600.0,  # a model by the definition takes a second, a hundred times, on a slow laptop longer
        timed=True,
        minutes=20,
        builds_on=("P3.5",),
    ),
)
