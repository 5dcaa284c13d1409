"""Checks of P3.7: the performance that the roofline model allows."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points


def _draw_machine(submission: Submission) -> tuple[float, float]:
    """Draw a machine's peak (FLOP/s) and bandwidth (bytes/s)."""
    return float(submission.rng.integers(50, 400)) * 1e9, float(submission.rng.integers(5, 40)) * 1e9


def _attainable(submission: Submission, intensity: float, peak: float, bandwidth: float) -> float:
    got = submission.call("attainable", intensity, peak, bandwidth)
    return expect.number(got, "what `attainable` returns", given=_given(intensity, peak, bandwidth))


def _given(intensity: object, peak: float, bandwidth: float) -> str:
    return f"intensity={intensity}, peak={peak:g}, bandwidth={bandwidth:g}"


@points(2)
def the_lower_roof_counts(submission: Submission) -> None:
    """`attainable` is the lower of the two roofs: memory bandwidth and peak arithmetic."""
    peak, bandwidth = _draw_machine(submission)
    for share in (0.1, 0.7, 1.5, 30.0):
        intensity = round(share * peak / bandwidth, 3)
        got, want = _attainable(submission, intensity, peak, bandwidth), min(peak, intensity * bandwidth)
        hint = "memory allows intensity * bandwidth FLOP/s, and arithmetic never more than peak"
        given = _given(intensity, peak, bandwidth)
        expect.close_number(got, want, "`attainable` is wrong", given=given, hint=hint)


@points(2)
def roofs_of_many_at_once(submission: Submission) -> None:
    """`attainable` also takes an array of intensities."""
    peak, bandwidth = _draw_machine(submission)
    intensity = submission.rng.uniform(0.1, 2.5, 9) * peak / bandwidth
    # compared with the student's own scalar results, so that a wrong roof does not count twice
    want = np.array([_attainable(submission, float(value), peak, bandwidth) for value in intensity])
    with expect.case("nine intensities", "np.minimum takes arrays; min and `if` need a single number"):
        got = submission.call("attainable", intensity, peak, bandwidth)
        expect.close(got, want, "what `attainable` returns")


@points(2)
def roofs_meet_at_the_ridge(submission: Submission) -> None:
    """`ridge` is the intensity at which the two roofs meet."""
    for _ in range(2):
        peak, bandwidth = _draw_machine(submission)
        got = expect.number(submission.call("ridge", peak, bandwidth), "what `ridge` returns")
        hint = "where intensity * bandwidth = peak: FLOP/s divided by bytes/s is FLOP per byte"
        given = f"peak={peak:g}, bandwidth={bandwidth:g}"
        expect.close_number(got, peak / bandwidth, "`ridge` is wrong", given=given, hint=hint)


TASKS = (
    Task("P3.7", "Under the roof", checks=(the_lower_roof_counts, roofs_of_many_at_once, roofs_meet_at_the_ridge)),
)
