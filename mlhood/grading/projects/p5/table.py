"""Checks of P5.3: what compiling costs, when it pays, and the table of operators."""

from __future__ import annotations

import math
from typing import Any

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import check_agreed, check_by_the_clock, check_claim, check_comparisons, whole_rows
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing import Race
from mlhood.grading.projects.p5 import races
from mlhood.grading.rpc.codec import Remote
from mlhood.jaxlab.tables import FUSED, JAX, NETWORK, NO_JAX, operators_table
from mlhood.measure.claims import ratio
from mlhood.measure.table import Table

PROBES = "mlhood.grading.projects.p5.probes:"
OPERATORS = ("conv2d", "batch_norm", "relu")
NETWORK_OPERATORS = (*OPERATORS, "max_pool", "add", "global_average_pool", "dense")
SLEEP = 0.25  # seconds that tracing takes, of what the probe has compiled
FILL = 'table.fill(row, compare({"No-JAX": ..., "JAX": ...})), for every row'


def _breaks_even(submission: Submission, want: float, seconds: tuple[float, float, float], hint: str) -> None:
    given = "compile {:g} s, without JAX {:g} s, with JAX {:g} s".format(*seconds)
    with expect.case(given, hint):
        got = expect.number(submission.call("break_even", *seconds), "what `break_even` returns")
    expect.true(got == want, "`break_even` is wrong", expected=f"{want:g}", got=f"{got:g}", given=given, hint=hint)


@points(1)
def compiling_is_earned_back(submission: Submission) -> None:
    """`break_even` is the number of calls after which JAX has taken less time, compiling included."""
    for _ in range(4):
        gain, jax = (int(part) / 16 for part in submission.rng.integers(2, 40, 2))
        calls = int(submission.rng.integers(2, 30))
        compiling = calls * gain - gain / 2
        hint = "compile_seconds + n * jax < n * no_jax: n is more than compile_seconds / (no_jax - jax), a whole number"
        _breaks_even(submission, calls, (compiling, jax + gain, jax), hint)


@points(1)
def as_long_is_not_less(submission: Submission) -> None:
    """`break_even` takes one call more where both have taken the same time."""
    for calls in (0, 1, int(submission.rng.integers(2, 30))):
        gain, jax = (int(part) / 16 for part in submission.rng.integers(2, 40, 2))
        hint = "after compile_seconds / (no_jax - jax) calls both have taken as long: less is one call later"
        _breaks_even(submission, calls + 1, (calls * gain, jax + gain, jax), hint)


@points(1)
def slower_calls_never_pay(submission: Submission) -> None:
    """`break_even` is infinite where a call takes no less time with JAX."""
    hint = 'float("inf") unless jax < no_jax'
    for more in (0.0, 0.5):
        jax = int(submission.rng.integers(10, 40)) / 16
        _breaks_even(submission, math.inf, (1.0, jax - more, jax), hint)


def _times(submission: Submission) -> list[dict[str, float]]:
    """What `compile_seconds` says of functions that are slow to trace, and what really happened."""
    told = submission.call(PROBES + "compile_times", submission.value("compile_seconds"))
    keys = ("told", "whole", "traced", "ran")
    report: Any = expect.mapping(told, keys, "what happened meanwhile")
    count = min(len(report[key]) for key in keys)
    found = [{key: expect.number(report[key][i], f"what `compile_seconds` returns ({key})") for key in keys}
             for i in range(count)]  # fmt: skip
    expect.true(bool(found), "`compile_seconds` returns nothing")
    return found


@points(1)
def tracing_and_compiling_take_time(submission: Submission) -> None:
    """`compile_seconds` is the time that tracing, lowering and compiling take together."""
    for one in submission.once("compile times", lambda: _times(submission)):
        expect.true(one["traced"] >= 1, "the function was not traced", hint="jax.jit(function).lower(*arguments)")
        right = SLEEP <= one["told"] <= one["whole"]
        expect.true(right, "`compile_seconds` tells another time",
                    expected=f"at least {SLEEP} s, as long as tracing sleeps, and at most the {one['whole']:.3f} s of "
                    "the whole call", got=f"{one['told']:.6g} s",
                    hint="a clock before .lower(...) and after .compile(), in seconds")  # fmt: skip


@points(1)
def nothing_is_run(submission: Submission) -> None:
    """`compile_seconds` compiles ahead of time, and runs nothing."""
    for one in submission.once("compile times", lambda: _times(submission)):
        expect.true(one["traced"] >= 1, "the function was not traced", hint="jax.jit(function).lower(*arguments)")
        hint = "jax.jit(function).lower(*arguments).compile() makes the program, and does not call it"
        got = f"{one['ran']:.0f} runs"
        expect.true(one["ran"] == 0, "the function was run", expected="no run", got=got, hint=hint)


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(operators_table()))


@points(3)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row is filled by one comparison of both columns."""
    check_comparisons(_table(submission), FILL)


@points(2)
def columns_agree(submission: Submission) -> None:
    """Both columns compute the same in every row."""
    # The table's word, but nothing stands on it alone: JAX's column is the package's, the other one is what P5.2 checks
    check_agreed(whole_rows(_table(submission), FILL))


@points(2)
def jax_is_faster_where_it_fuses(submission: Submission) -> None:
    """JAX is faster in "conv + bn + relu" and in "ResNet-18", where this machine shows it."""
    hint = "compile once, before `compare`: compiled = jax.jit(case.with_jax), on arguments that are on the device"
    # Only these two rows claim a ratio. The others tell what was measured, whichever column is the faster.
    table = _table(submission)
    whole_rows(table, FILL)
    for row, verdict in zip((FUSED, NETWORK), table.verdicts()[1:], strict=True):
        if verdict.state == "fails" and _shown_here(submission, row):
            check_claim(verdict, "JAX is not faster", hint)
    what = "JAX is not faster as the table has it"
    check_by_the_clock(submission, _races(submission, table), what, "fill the table with `compare`, as measured")


def _shown_here(submission: Submission, row: str) -> bool:
    """Whether the package's own pair shows what is claimed: on some machines NumPy's library is the faster one."""
    found = submission.call(PROBES + "measured", row)
    return expect.number(found, "how much faster JAX is here") > 1


def _races(submission: Submission, table: Table) -> list[Race]:
    """The notebook's operators against JAX, in those of the two rows in which the table has JAX ahead.

    A row that leaves it open races, too, where this machine shows it: nobody gets away by telling noise.
    """
    told = {row: ratio(table[row, NO_JAX], table[row, JAX]) for row in (FUSED, NETWORK) if _filled(table, row)}
    ahead = {row: one for row, one in told.items() if one.low >= 1 or (1 in one and _shown_here(submission, row))}
    names = NETWORK_OPERATORS if NETWORK in ahead else OPERATORS
    operators = {name: submission.value(name) for name in names if ahead}
    for name, one in operators.items():
        expect.true(isinstance(one, Remote), f"`{name}` is no function", got=one)
    found = []
    if FUSED in ahead:
        found.append(races.fused(*(operators[name] for name in OPERATORS), told=ahead[FUSED]))
    if NETWORK in ahead:
        found.append(races.whole(operators, ahead[NETWORK], int(submission.rng.integers(2**31))))
    return found


def _filled(table: Table, row: str) -> bool:
    return (row, NO_JAX) in table and (row, JAX) in table


TASKS = (
    Task(
        "P5.3",
        "The table",
        checks=(
            compiling_is_earned_back,
            as_long_is_not_less,
            slower_calls_never_pay,
            tracing_and_compiling_take_time,
            nothing_is_run,
            rows_are_comparisons,
            columns_agree,
            jax_is_faster_where_it_fuses,
        ),
        seconds=600.0,  # twenty-one rounds of a whole network in NumPy, on whatever laptop
        timed=True,
    ),
)
