"""Checks of P3.9: what a faster part is worth to the whole (Amdahl, 1967)."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p3.probes:"
NAMES = ("convolution", "pooling", "dense")


def _draw_parts(submission: Submission) -> dict[str, float]:
    """Draw seconds by part, in sixteenths, so that their sums are exact."""
    return {name: int(number) / 16 for name, number in zip(NAMES, submission.rng.integers(4, 40, 3), strict=True)}


def _check_prediction(
    submission: Submission, total: float, parts: dict[str, float], speedups: dict[str, float], hint: str
) -> None:
    remainder = total - sum(parts.values())
    want = remainder + sum(seconds / speedups.get(name, 1.0) for name, seconds in parts.items())
    with expect.case(f"total={total}, parts={parts}, speedups={speedups}", hint):
        got = expect.number(submission.call("predict", total, parts, speedups), "what `predict` returns")
        expect.close_number(got, want, "`predict` is wrong")


@points(3)
def parts_are_divided_by_their_factors(submission: Submission) -> None:
    """`predict` divides the seconds of each part by its factor; the remaining time stays."""
    hint = "total - sum(parts) stays; each part takes seconds / factor"
    for remainder in (1.5, 0.25):
        parts = _draw_parts(submission)
        drawn = submission.rng.permutation(np.arange(2, 9))[:3]  # in another order than the parts: names decide
        factors = {name: float(factor) for name, factor in zip(reversed(parts), drawn, strict=True)}
        _check_prediction(submission, sum(parts.values()) + remainder, parts, factors, hint)


@points(2)
def parts_not_named_keep_their_time(submission: Submission) -> None:
    """`predict` keeps the time of a part that has no factor."""
    parts = _draw_parts(submission)
    hint = "a part without a factor is as fast as before: speedups.get(name, 1)"
    total = sum(parts.values()) + 2.0
    for speedups in ({}, {"dense": 1.0}):
        _check_prediction(submission, total, parts, speedups, hint)
    arguments = [total, dict(parts), {"dense": 2.0}]
    after = submission.call(PROBES + "after_call", submission.value("predict"), arguments, [])
    unchanged = isinstance(after, list) and len(after) == len(arguments) and after[1] == parts
    hint = "work on a copy: a caller that predicts twice from the same dictionary needs it unchanged"
    expect.true(unchanged, "`predict` changes `parts`", expected="the original values", got="other values", hint=hint)


@points(2)
def the_rest_limits_the_speedup(submission: Submission) -> None:
    """`best_possible` is the speed-up if the parts took no time at all."""
    for remainder in (0.5, 3.0):
        parts = _draw_parts(submission)
        total = sum(parts.values()) + remainder
        got = expect.number(submission.call("best_possible", total, parts), "what `best_possible` returns")
        hint = "the time before over the time that is left: total / (total - sum(parts))"
        given = f"total={total}, parts={parts}"
        expect.close_number(got, total / remainder, "`best_possible` is wrong", given=given, hint=hint)


@points(1)
def without_a_rest_there_is_no_limit(submission: Submission) -> None:
    """`best_possible` is infinite if the parts are the whole."""
    parts = _draw_parts(submission)
    total = sum(parts.values())
    with expect.case(f"total={total}, parts={parts}", "return float('inf') if total - sum(parts) is 0"):
        got = expect.number(submission.call("best_possible", total, parts), "what `best_possible` returns")
        expect.equal(got, float("inf"), "`best_possible` is not infinite")


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
