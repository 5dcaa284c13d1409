"""Checks of P3.9: what a faster part is worth to the whole (Amdahl, 1967)."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3.costs import right

PROBES = "mlhood.grading.projects.p3.probes:"
NAMES = ("convolution", "pooling", "dense")


def _parts(submission: Submission) -> dict[str, float]:
    """Seconds by part; sixteenths, so that sums of them are exact."""
    return {name: int(number) / 16 for name, number in zip(NAMES, submission.rng.integers(4, 40, 3), strict=True)}


def _predicts(
    submission: Submission, total: float, parts: dict[str, float], speedups: dict[str, float], hint: str
) -> None:
    rest = total - sum(parts.values())
    want = rest + sum(seconds / speedups.get(name, 1.0) for name, seconds in parts.items())
    given = f"total={total}, parts={parts}, speedups={speedups}"
    with expect.case(given, hint):
        got = expect.number(submission.call("predict", total, parts, speedups), "what `predict` returns")
    right(got, want, "predict", given=given, hint=hint)


@points(3)
def parts_are_divided_by_their_factors(submission: Submission) -> None:
    """`predict` divides the seconds of every part by its factor; the rest stays."""
    hint = "total - sum(parts) stays as it is; every part takes seconds / factor"
    for rest in (1.5, 0.25):
        parts = _parts(submission)
        drawn = submission.rng.permutation(np.arange(2, 9))[:3]  # in another order than the parts: names count
        factors = {name: float(factor) for name, factor in zip(reversed(parts), drawn, strict=True)}
        _predicts(submission, sum(parts.values()) + rest, parts, factors, hint)


@points(2)
def parts_not_named_keep_their_time(submission: Submission) -> None:
    """`predict` leaves a part that has no factor as it is."""
    parts = _parts(submission)
    hint = "a part without a factor is as fast as before: speedups.get(name, 1)"
    total = sum(parts.values()) + 2.0
    for speedups in ({}, {"dense": 1.0}):
        _predicts(submission, total, parts, speedups, hint)
    asked = [total, dict(parts), {"dense": 2.0}]
    found = submission.call(PROBES + "after_call", submission.value("predict"), asked, [])
    same_parts = isinstance(found, list) and len(found) == len(asked) and found[1] == parts
    hint = "add up numbers of your own: who predicts twice from the same dictionary needs it as it was"
    expect.true(same_parts, "`predict` changes `parts`", expected="as it was", got="other values", hint=hint)


@points(2)
def the_rest_limits_the_speedup(submission: Submission) -> None:
    """`best_possible` is what remains to be gained if the parts took no time at all."""
    for rest in (0.5, 3.0):
        parts = _parts(submission)
        total = sum(parts.values()) + rest
        got = expect.number(submission.call("best_possible", total, parts), "what `best_possible` returns")
        hint = "the time before over the time that is left: total / (total - sum(parts))"
        given = f"total={total}, parts={parts}"
        right(got, total / rest, "best_possible", given=given, hint=hint)


@points(1)
def without_a_rest_there_is_no_limit(submission: Submission) -> None:
    """`best_possible` is infinite if nothing else remains."""
    parts = _parts(submission)
    total = sum(parts.values())
    hint = "return float('inf') where total - sum(parts) is 0"
    given = f"total={total}, parts={parts}"
    with expect.case(given, hint):
        got = expect.number(submission.call("best_possible", total, parts), "what `best_possible` returns")
    expect.equal(got, float("inf"), "`best_possible` is not infinite", given=given, hint=hint)


TASKS = (
    Task(
        "P3.9",
        "What is a faster kernel worth?",
        checks=(
            parts_are_divided_by_their_factors,
            parts_not_named_keep_their_time,
            the_rest_limits_the_speedup,
            without_a_rest_there_is_no_limit,
        ),
    ),
)
