"""Checks of P5.3: the cost of compilation, when it pays off, and the table of operators."""

from __future__ import annotations

import itertools
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
STAGES = Parameter(  # the times that `compile_seconds` returns
    "stages",
    (
        ("tracing, lowering and compiling",),
        ("tracing", "lowering and compiling"),
        ("tracing and lowering", "compiling"),
        ("tracing", "lowering", "compiling"),
    ),
)
SIDES = Parameter("sides_returned", ("dictionary", "JAX, No-JAX", "No-JAX, JAX"))
COUNTS = ("traced", "compiled", "ran")
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
        reported: What it returned, one number for each stage.
        counts: What the probe has counted in this call, for the messages and against what costs points only.
    """

    tracing: float
    compiling: float
    elapsed: float
    reported: tuple[float, ...]
    counts: dict[str, int]

    def check_traced(self) -> None:
        """Fail unless the function was traced."""
        hint = "JAX remembers what it has traced, by the function object: give it a new one in each call"
        what, expected = (
            "`compile_seconds` has not traced the function",
            "traced in each call, also of the same function",
        )
        traced = self.counts["traced"] > 0 and self.elapsed >= self.tracing
        expect.true(traced, what, expected=expected, got=f"{self.counts['traced']} times", hint=hint)


def _compilations(submission: Submission) -> list[Compilation]:
    """Call the student's `compile_seconds` twice on each of two functions that are slow to trace and to compile."""
    compilations, stages = [], len(submission.parameters.stages)
    for size in (3, 5):
        tracing, compiling = (float(seconds) for seconds in submission.rng.uniform(0.2, 0.5, 2))
        function = submission.call(PROBES + "Sleepy", tracing, compiling)
        for _ in range(2):
            start = time.monotonic()
            arguments, keys = (function, size), ("seconds", "counts")
            report = submission.probe(PROBES + "compile_time", "compile_seconds", *arguments, keys=keys)
            elapsed = time.monotonic() - start
            counted, seconds = expect.mapping(report["counts"], COUNTS, "the counts"), report["seconds"]
            counts = {name: expect.integer(counted[name], "a count") for name in COUNTS}
            if stages > 1:
                seconds = expect.sequence(seconds, tuple, f"the {stages} times of `compile_seconds`")
                expect.equal(len(seconds), stages, "the wrong number of times that `compile_seconds` returns")
            parts = seconds if isinstance(seconds, tuple) else (seconds,)
            reported = tuple(expect.number(each, "what `compile_seconds` returns") for each in parts)
            compilations.append(Compilation(tracing, compiling, elapsed, reported, counts))
    return compilations


@points(0.5)
def tracing_and_compiling_take_time(submission: Submission) -> None:
    """`compile_seconds` is the time of tracing, lowering and compiling{{ " together" if stages|length == 1 else ", each of the parts that the text names" }}."""  # noqa: E501
    stages = submission.parameters.stages
    for call in submission.once("compilations", lambda: _compilations(submission)):
        call.check_traced()
        total = sum(call.reported)
        what, most = "`compile_seconds` returns the wrong time", f"at most the {call.elapsed:.3f} s of the call"
        expected = f"for {stages[0]} at least the {call.tracing:.3f} s of tracing, and {most} in all"
        got = f"{call.reported[0]:.6g} s, and {total:.6g} s in all"
        right = min(call.reported) >= 0 and call.tracing <= call.reported[0] and total <= call.elapsed
        hint = "the clock runs from before the tracing to after the compilation, in seconds"
        expect.true(right, what, expected=expected, got=got, hint=hint)
        if not call.counts["ran"]:  # a call compiles, too, which the probe does not see
            _check_compiled(call, stages[-1])


def _check_compiled(call: Compilation, stage: str) -> None:
    what, expected = "`compile_seconds` does not compile the function", "its program is compiled once in each call"
    compiled, hint = call.counts["compiled"], "what .lower(...) returns is not compiled yet: its .compile() does that"
    expect.true(compiled >= 1, what, expected=expected, got=f"{compiled} times", hint=hint)
    least = call.compiling + (call.tracing if stage == STAGES.values[0][0] else 0)
    what, expected = "`compile_seconds` leaves out the compiling", f"at least {least:.3f} s for {stage}"
    expect.true(call.reported[-1] >= least, what, expected=expected, got=f"{call.reported[-1]:.6g} s", hint=hint)


@points(0.5)
def nothing_is_run(submission: Submission) -> None:
    """`compile_seconds` compiles ahead of time and runs nothing."""
    compilations = submission.once("compilations", lambda: _compilations(submission))
    compilations[0].check_traced()
    for call in compilations:
        hint = "jax.jit(function).lower(*arguments).compile() compiles the program and does not call it"
        what, ran = "`compile_seconds` runs the function", call.counts["ran"]
        expect.true(ran == 0, what, expected="no run", got=f"{ran} runs", hint=hint)


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(operators_table()))


def _sides(submission: Submission) -> tuple[Any, np.ndarray, np.ndarray, dict[str, Any]]:
    """Return the report on the student's `sides` of a case, x and y, and the drawn numbers (`probes.called_sides`)."""
    x, y = submission.normal(5, 3), submission.normal(5, 3)
    drawn: dict[str, Any] = {name: submission.rng.uniform(1, 9, 30) for name in ("factors", "traced", "runs")}
    drawn["amount"] = int(submission.rng.integers(1, 9))
    with expect.case(f"a case with arguments {x.shape} and {y.shape}"):
        form = submission.parameters.sides_returned
        report = submission.probe(PROBES + "called_sides", "sides", x, y, form, drawn, keys=("sides",))
        what, expected = "`sides` does not return the two calls", 'a dictionary of functions, "No-JAX" and "JAX"'
        if form != "dictionary":
            expected = f"a tuple of two functions: {form}"
        expect.true(report["sides"] == ["No-JAX", "JAX"], what, expected=expected, got=report["sides"])
    return report, x, y, drawn


def _differences(results: object, want: np.ndarray, scale: np.ndarray | float = 1.0) -> list[float]:
    """Return by how many times the scale each of two results exceeds what is wanted; fail if these are not numbers.

    NaN where that is not one number for all elements.
    """
    differences = []
    for result in results if isinstance(results, list | tuple) and len(results) == 2 else [None]:
        quotients = (expect.array(result, want.shape, "what a side of `sides` returns") - want) / scale
        same = np.ptp(quotients) <= 1e-2
        differences.append(float(quotients.mean()) if same else math.nan)
    return differences


def _follow(got: list[float], numbers: np.ndarray) -> bool:
    """Whether these are two of the numbers, one after the other."""
    return any(np.allclose(got, pair, atol=1e-2) for pair in itertools.pairwise(numbers))


@points(1)
def one_side_is_numpy(submission: Submission) -> None:
    """The side "No-JAX" of `sides` calls the case's function without JAX, on NumPy's arrays, whenever it is called."""
    report, x, y, drawn = submission.once("sides", lambda: _sides(submission))
    what, expected = (
        'the side "No-JAX" of `sides` is not NumPy',
        "case.no_jax, once a call, on the NumPy arrays of the case, and its result",
    )
    hint = "call case.no_jax(*case.arguments) in the side itself: an array of JAX's would be converted in each call"
    with expect.case(None, hint):
        factors = _differences(report["no_jax"], y + drawn["amount"], x)
        expect.true(_follow(factors, drawn["factors"]), what, expected=expected)


@points(1.5)
def the_other_side_is_compiled(submission: Submission) -> None:
    """The side "JAX" of `sides` calls the case's function with JAX, compiled once, on arrays of the device."""
    report, x, y, drawn = submission.once("sides", lambda: _sides(submission))
    runs, traced = drawn["runs"], drawn["traced"]
    what, hint = 'the side "JAX" of `sides` transfers its arguments in each call', "put them on the device before"
    for factor, (dx, dy) in itertools.product(traced, ((1, 1), (1, 0), (0, 1))):
        moved = _differences(report["with_jax"], (x + dx) * np.float32(factor) + y + dy)
        expect.true(not _follow(moved, runs), what, expected="arrays that are on the device already", hint=hint)
    once = _differences(report["with_jax"], x * np.float32(traced[0]) + y)
    what, expected = 'the side "JAX" of `sides` is not compiled', "case.with_jax, called once, on tracers"
    called = "pass the arrays to what jax.jit returns: it calls the function only once, and knows no numbers then"
    expect.true(not any(map(math.isnan, once)), what, expected=expected, hint=called)
    what, hint = 'the side "JAX" of `sides` does not run in each call', "each call of the side calls what is compiled"
    expect.true(_follow(once, runs), what, expected="2 runs in two calls", hint=hint)


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
    varies=(PRICE, STAGES, SIDES),
)
