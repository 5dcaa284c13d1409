"""Checks of P5.3: the cost of compilation, when it pays off, and the table of operators."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import (
    check_agreed,
    check_comparisons,
    check_remeasured_claims,
    filled_rows,
)
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing_verdict import TimingClaim
from mlhood.grading.projects.p5 import timed
from mlhood.grading.rpc.codec import Remote
from mlhood.grading.variants.parameter import Parameter
from mlhood.jaxlab.operators.cases import FUSED, NETWORK
from mlhood.jaxlab.operators.layouts import Layout
from mlhood.jaxlab.tables import JAX, NO_JAX, operators_table
from mlhood.measure.claims import ratio
from mlhood.measure.table import Table

PROBES = "mlhood.grading.projects.p5.probes:"
OPERATORS = ("conv2d", "batch_norm", "relu", "max_pool", "add", "global_average_pool", "dense")
# what a second with JAX costs, in units of a second without
PRICE = Parameter("price", (1, 2, 3, 4))
FILL = "table.fill(row, ...) with the comparison of both sides, for every row"


def _seconds(submission: Submission, calls: float) -> Arguments:
    """Draw seconds with which both sides have cost the same after so many calls."""
    gain, jax = (int(part) / 16 for part in submission.rng.integers(2, 40, 2))
    return calls * gain, submission.parameters.price * (jax + gain), jax


@compared(
    0.5,
    "break_even",
    hint="each call gains no_jax - {{ '' if price == 1 else '%d * ' % price }}jax: how many of these gains are more "
    "than {{ 'compile_seconds' if price == 1 else 'what compiling costs' }}?",
)
def compiling_is_earned_back(submission: Submission) -> Iterator[Arguments]:
    """`break_even` is the number of calls after which JAX has {{ "taken less time" if price == 1 else "cost less" }}, compilation included."""  # noqa: E501
    for most, ahead in ((30, 1 / 2), (30, 1 / 128), (30, 127 / 128), (2_000_000, 1 / 2)):
        yield _seconds(submission, int(submission.rng.integers(most // 2, most)) - ahead)


@compared(0.5, "break_even", hint="when both have cost the same, JAX is not ahead yet: it is one call later")
def as_long_is_not_less(submission: Submission) -> Iterator[Arguments]:
    """`break_even` counts one more call where both have {{ "taken the same time" if price == 1 else "cost the same" }}."""  # noqa: E501
    for calls in (0, 1, int(submission.rng.integers(2, 30))):
        yield _seconds(submission, calls)


@compared(
    0.5,
    "break_even",
    hint='where no number of calls is enough, float("inf"); else a number',
    view=lambda calls: "infinite" if expect.number(calls, "what `break_even` returns") == math.inf else "a number",
)
def slower_calls_never_pay(submission: Submission) -> Iterator[Arguments]:
    """`break_even` is infinite if a call is not {{ "faster" if price == 1 else "cheaper" }} with JAX."""
    price = submission.parameters.price
    for more in (0.0, 0.5):
        jax = int(submission.rng.integers(10, 40)) / 16
        yield 1.0, price * (jax - more), jax
    yield 1.0, 2.0 * price, 1.0


@dataclass(frozen=True)
class Compilation:
    """A call of the student's `compile_seconds`.

    Args:
        tracing: Seconds that the function sleeps while it is traced.
        compiling: Seconds that its program takes more to be compiled ahead of time.
        elapsed: Seconds of the call, by the grader's clock.
        reported: What it returned.
        ran: How often the function's program ran, according to the probe.
    """

    tracing: float
    compiling: float
    elapsed: float
    reported: float
    ran: int


def _compilations(submission: Submission) -> list[Compilation]:
    """Call the student's `compile_seconds` twice on each of two functions that are slow to trace and to compile."""
    compilations = []
    for size in (3, 5):
        tracing, compiling = (float(seconds) for seconds in submission.rng.uniform(0.2, 0.5, 2))
        function = submission.call(PROBES + "Sleepy", tracing, compiling)
        for _ in range(2):
            start = time.monotonic()
            report = submission.probe(
                PROBES + "compile_time", "compile_seconds", function, size, keys=("seconds", "ran")
            )
            elapsed = time.monotonic() - start
            reported = expect.number(report["seconds"], "what `compile_seconds` returns")
            compilations.append(
                Compilation(tracing, compiling, elapsed, reported, expect.integer(report["ran"], "runs"))
            )
    return compilations


@points(0.5)
def tracing_and_compiling_take_time(submission: Submission) -> None:
    """`compile_seconds` is the time of tracing, lowering and compiling together."""
    for call in submission.once("compilations", lambda: _compilations(submission)):
        # a call compiles, too, which the probe does not see
        least = call.tracing + (0 if call.ran else call.compiling)
        hint = (
            "the clock runs from before the tracing to after the compilation (what .lower(...) returns is not compiled "
            "yet), in seconds; JAX remembers what it has traced, by the function object: give it a new one in each call"
        )
        what, expected = "`compile_seconds` returns the wrong time", f"from {least:.3f} s to {call.elapsed:.3f} s"
        right = least <= call.reported <= call.elapsed
        expect.true(right, what, expected=expected, got=f"{call.reported:.6g} s", hint=hint)


@points(0.5)
def nothing_is_run(submission: Submission) -> None:
    """`compile_seconds` compiles ahead of time and runs nothing."""
    compilations = submission.once("compilations", lambda: _compilations(submission))
    first, hint = (
        compilations[0],
        "jax.jit(function).lower(*arguments).compile() compiles the program and does not call it",
    )
    expect.true(first.elapsed >= first.tracing, "`compile_seconds` has not traced the function", hint=hint)
    expect.equal([call.ran for call in compilations], [0] * len(compilations), "`compile_seconds` runs it", hint=hint)


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(operators_table()))


def _check_side(submission: Submission, side: str, what: str, hint: str) -> None:
    """Check the results of a side of the student's `sides`, which tell how it has called the case (`called_sides`)."""

    def call() -> tuple[dict[str, Any], dict[str, list[np.ndarray]]]:
        x, y, numbers = submission.normal(5, 3), submission.normal(5, 3), submission.rng.uniform(1, 9, 8)
        report = submission.probe(PROBES + "called_sides", "sides", x, y, numbers, keys=(NO_JAX, JAX))
        traced, *called = numbers[:3].astype(np.float32)
        wanted = {NO_JAX: [x * factor + y for factor in called], JAX: [x * traced + y + more for more in called]}
        return dict(report), wanted

    report, wanted = submission.once("sides", call)
    right = expect.holds(expect.close, report[side], np.array(wanted[side]), "", rtol=1e-3, atol=1e-3)
    expect.true(right, f'the side "{side}" of `sides` is not {what}', hint=hint)


@points(1)
def one_side_is_numpy(submission: Submission) -> None:
    """The side "No-JAX" of `sides` calls the case's function without JAX, on NumPy's arrays, whenever it is called."""
    hint = "call case.no_jax(*case.arguments) in the side itself: an array of JAX's would be converted in each call"
    _check_side(submission, NO_JAX, "NumPy: case.no_jax, once a call, on the NumPy arrays of the case", hint)


@points(1.5)
def the_other_side_is_compiled(submission: Submission) -> None:
    """The side "JAX" of `sides` calls the case's function with JAX, compiled once, on arrays of the device."""
    hint = (
        "put the arrays on the device before, and pass them to what jax.jit returns in each call of the side: it calls "
        "the function only once, and knows no numbers then"
    )
    _check_side(submission, JAX, "case.with_jax, compiled once and run in each call, without transfers", hint)


@points(0.5)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row is filled by one comparison of both columns."""
    check_comparisons(_table(submission), FILL)
    _check_remeasured(submission)


@points(0.5)
def columns_agree(submission: Submission) -> None:
    """Both columns compute the same in every row."""
    check_agreed(filled_rows(_table(submission), FILL))
    _check_remeasured(submission)


@points(1)
def ratios_are_measured_again(submission: Submission) -> None:
    """The speed-ups of "conv + bn + relu" and "ResNet-18" in the table agree with the grader's."""
    _check_remeasured(submission)


def _check_remeasured(submission: Submission) -> None:
    # Which column is faster depends on the machine, and is no task; how much faster has to be as in the table.
    table = _table(submission)
    filled_rows(table, FILL)
    what = "the column that the table has ahead is not as much faster as it says"
    hint = "fill it with results of `compare`; is the side compiled, once, before that, with arguments on the device?"
    check_remeasured_claims(submission, lambda: _timing_claims(submission, table), what, hint)


def _timing_claims(submission: Submission, table: Table) -> list[TimingClaim]:
    """Return timed comparisons of both columns in two of the rows, the slower column of the table first."""
    operators = {name: submission.value(name) for name in OPERATORS}
    for name, operator in operators.items():
        expect.true(isinstance(operator, Remote), f"`{name}` is not a function", got=operator)
    layout = Layout(submission.parameters.images, submission.parameters.filters, submission.parameters.dense)
    claimed = {row: ratio(table[row, NO_JAX], table[row, JAX]) for row in (FUSED, NETWORK)}
    return timed.claims(operators, layout, claimed, seed=int(submission.rng.integers(2**31)))


P5_3 = Task(
    "P5.3",  # in the notebook's kernel: both columns run the package's network, which solves P5.1 and P5.2
    "The table",
    seconds=600.0,  # twenty-one rounds of a whole network in NumPy, on whatever laptop
    timed=True,
    minutes=40,
    builds_on=("P5.2",),
    varies=(PRICE,),
)
