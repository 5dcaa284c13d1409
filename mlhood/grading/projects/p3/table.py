"""Checks of P3.5 and P3.6: the tables of convolutions and of the model, what a core could do, and rates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlhood.grading.bare.libraries import ARRAYS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import (
    Rows,
    check_agreed,
    check_claim,
    check_comparisons,
    check_operations,
    check_remeasured_claims,
    filled_rows,
)
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3 import timed
from mlhood.grading.rpc.codec import Remote
from mlhood.grading.variants.parameter import Parameter
from mlhood.jaxlab.operators import no_jax
from mlhood.kernels.tables import RESNET18, convolution_table, model_table
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table

FILL = "for every row, one call of `compare` with one alternative for each column, and its result into the row"
MEASURED = "fill the table with results of `compare`, of the functions that the task names"
FUNCTIONS = ("conv_direct", "conv_blas")
PROBES = "mlhood.grading.projects.p3.probes:"
# the unit of the times that `gflops` takes
TIME_UNIT = Parameter("time_unit", ("seconds", "milliseconds", "microseconds"))
PER_SECOND = {"seconds": 1, "milliseconds": 1000, "microseconds": 1_000_000}


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(convolution_table()))


@compared(
    1,
    "headroom",
    hint="one multiply-add of the loop takes all of the latency: how many instructions could have been started in this "
    "time, and on how many numbers does each of them work?",
    mistakes={
        "the loop does not start one multiply-add in each cycle: it waits for its sum": (
            lambda right, lanes, units, latency: lanes * units
        )
    },
)
def idle_units_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`headroom` is how many times as fast as a loop that waits for its sum a core could be."""
    for _ in range(3):
        yield tuple(int(number) for number in submission.rng.permutation([2, 3, 4, 5, 6, 8, 16])[:3])
    yield 1, 1, 1


@compared(
    1,
    "gflops",
    hint="operations, not multiply-accumulates, for each second; giga is 10**9",
    mistakes={
        "a multiply-accumulate is two operations": lambda rate, macs, time: rate / 2,
        '{% if time_unit != "seconds" %}the time is in {{ time_unit }}{% endif %}': (
            lambda rate, macs, time: 2 * macs / time / 1e9
        ),
    },
)
def rates_are_told(submission: Submission) -> Iterator[Arguments]:
    """`gflops` converts multiply-accumulates and {{ time_unit }} to GFLOP/s."""
    rng, units = submission.rng, PER_SECOND[submission.parameters.time_unit]
    for _ in range(3):
        yield int(rng.integers(10**6, 10**9)), float(rng.uniform(1e-4, 1e-1)) * units


@points(2)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row is filled by one comparison of both columns."""
    check_comparisons(_table(submission), FILL)
    _check_remeasured(submission, filled_rows(_table(submission), FILL))


@points(2)
def operations_are_told(submission: Submission) -> None:
    """Every cell records its operations: two for each multiply-accumulate of its layer."""
    flops = {row: layer.geometry.flops for row, layer in RESNET18.items()}
    check_operations(filled_rows(_table(submission), FILL), flops)


@points(2)
def blas_is_faster_and_agrees(submission: Submission) -> None:
    """The convolution by BLAS is faster in every row and computes the same."""
    # Both claims are verified from outside: the rows are timed again in random order, and the results are compared.
    # Times that are scaled by a common factor go unnoticed, but earn nothing: no point depends on an absolute time.
    table = _table(submission)
    rows = filled_rows(table, FILL)
    check_agreed(rows)
    hint = "the column BLAS is `conv_blas`, no-BLAS is `conv_direct`, both on the arguments of the row's layer"
    check_claim(submission, table.verdicts()[0], "BLAS is not faster", hint)
    _check_remeasured(submission, rows)


P3_5 = Task(
    "P3.5",
    "The table",
    varies=(TIME_UNIT,),
    seconds=600.0,  # a hundred convolutions by the definition, on a slow laptop
    libraries=ARRAYS,
    timed=True,
    minutes=20,
    builds_on=("P3.2", "P3.4"),
)


def _check_remeasured(submission: Submission, rows: Rows) -> None:
    what = "`conv_blas` is not as much faster than `conv_direct` as the table claims"
    check_remeasured_claims(
        submission, lambda: timed.convolutions(_functions(submission), _claimed(rows)), what, MEASURED
    )


def _claimed(rows: Rows) -> dict[str, Ratio]:
    """Return the ratio no-BLAS / BLAS of each row."""
    return {row: no_blas.ratio(blas) for row, (no_blas, blas) in rows.items()}


def _functions(submission: Submission) -> timed.Functions:
    functions = {name: submission.value(name) for name in FUNCTIONS}
    for function in functions.values():
        expect.true(isinstance(function, Remote), "a convolution of the table is not a function", got=function)
    return functions


def _models(submission: Submission) -> Table:
    return submission.once("models", lambda: submission.table(model_table()))


@points(2)
def convolutions_are_chosen_by_their_weights(submission: Submission) -> None:
    """`mixed` computes the chosen convolutions by the given function, and all others correctly."""
    shapes = [[3, 2, 3, 3], [4, 4, 1, 3], [2, 3, 3, 3], [3, 2, 1, 1], [4, 4, 3, 1]]
    chosen, draw = shapes[:2], submission.normal
    cases = [[draw(1, shape[1], 6, 7), draw(*shape), draw(shape[0])] for shape in shapes]
    hint = (
        "the target of `mlhood.compile` is a function (x, w, bias, stride, padding): which of these tells C1 from C2?"
    )
    what, name = "what the function of `mixed` returns", "`mixed` makes the wrong choice of the given function"
    for stride in (1, 2):
        given = f"the chosen shapes {chosen}, and weights of the shapes {shapes}, with stride {stride}"
        computed = [no_jax.conv2d(*case, stride, 1) for case in cases]  # type: ignore[arg-type]
        # what the given function returns is known here alone, so only who calls it gets it
        drawn = [submission.normal(*each.shape) for each in computed]
        with expect.case(given, hint):
            results = submission.probe(PROBES + "choices", "mixed", chosen, cases, [stride, 1], drawn)
            results = expect.sequence(results, list, what)
            for shape, result, of_given, right in zip(shapes, results, drawn, computed, strict=True):
                want, other = (of_given, right) if shape in chosen else (right, of_given)
                same = isinstance(result, np.ndarray) and result.shape == other.shape and np.allclose(result, other)
                expect.true(not same, name, expected=f"{'it' if shape in chosen else '`direct`'} for {shape}")
                expect.close(result, want, what, atol=1e-3, dtype=np.float32)


@points(2)
def models_are_comparisons(submission: Submission) -> None:
    """Every row of the model's table is filled by one comparison of both columns."""
    check_comparisons(_models(submission), FILL)
    _check_remeasured_models(submission, filled_rows(_models(submission), FILL))


@points(3)
def blas_speeds_up_the_model(submission: Submission) -> None:
    """The model is faster with BLAS in every row, as much as the table claims, and computes the same."""
    table = _models(submission)
    rows = filled_rows(table, FILL)
    check_agreed(rows)
    hint = "the models of a row differ only in what the chosen convolutions are computed by"
    check_claim(submission, table.verdicts()[0], "the model with BLAS is not faster", hint)
    _check_remeasured_models(submission, rows)


def _check_remeasured_models(submission: Submission, rows: Rows) -> None:
    what = "the model with `conv_blas` is not as much faster than that with `conv_direct` as the table claims"
    check_remeasured_claims(
        submission, lambda: timed.models(submission, _functions(submission), _claimed(rows)), what, MEASURED
    )


P3_6 = Task(
    "P3.6",  # in the notebook's kernel: it compiles the model with mlhood.compile
    "The table of the model",
    seconds=600.0,  # a model by the definition takes a second, a hundred times, on a slow laptop longer
    timed=True,
    minutes=20,
    builds_on=("P3.5",),
)
