"""Checks of P3.7: what the roofline allows."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3.costs import right


def _machine(submission: Submission) -> tuple[float, float]:
    """FLOP/s and bytes a second of a machine."""
    return float(submission.rng.integers(50, 400)) * 1e9, float(submission.rng.integers(5, 40)) * 1e9


def _attainable(submission: Submission, intensity: float, peak: float, bandwidth: float) -> float:
    got = submission.call("attainable", intensity, peak, bandwidth)
    return expect.number(got, "what `attainable` returns", given=_given(intensity, peak, bandwidth))


def _given(intensity: object, peak: float, bandwidth: float) -> str:
    return f"intensity={intensity}, peak={peak:g}, bandwidth={bandwidth:g}"


@points(2)
def the_lower_roof_counts(submission: Submission) -> None:
    """`attainable` is the lower of the two roofs: memory's and arithmetic's."""
    peak, bandwidth = _machine(submission)
    for share in (0.1, 0.7, 1.5, 30.0):
        intensity = round(share * peak / bandwidth, 3)
        got, want = _attainable(submission, intensity, peak, bandwidth), min(peak, intensity * bandwidth)
        hint = "intensity * bandwidth FLOP/s come from memory, and never more than peak"
        right(got, want, "attainable", given=_given(intensity, peak, bandwidth), hint=hint)


@points(2)
def roofs_of_many_at_once(submission: Submission) -> None:
    """`attainable` takes arrays of intensities, too."""
    peak, bandwidth = _machine(submission)
    intensity = submission.rng.uniform(0.1, 2.5, 9) * peak / bandwidth
    # against the student's own numbers, so that a wrong roof is not counted twice
    want = np.array([_attainable(submission, float(one), peak, bandwidth) for one in intensity])
    hint = "np.minimum takes arrays; min and `if` want a single number"
    with expect.case("nine intensities", hint):
        got = submission.call("attainable", intensity, peak, bandwidth)
    expect.close(got, want, "what `attainable` returns", given="nine intensities", hint=hint)


@points(2)
def roofs_meet_at_the_ridge(submission: Submission) -> None:
    """`ridge` is the intensity at which the two roofs meet."""
    for _ in range(2):
        peak, bandwidth = _machine(submission)
        got = expect.number(submission.call("ridge", peak, bandwidth), "what `ridge` returns")
        hint = "where intensity * bandwidth = peak: FLOP/s over bytes/s gives FLOP per byte"
        given = f"peak={peak:g}, bandwidth={bandwidth:g}"
        right(got, peak / bandwidth, "ridge", given=given, hint=hint)


TASKS = (
    Task(
        "P3.7",
        "Under the roof",
        checks=(the_lower_roof_counts, roofs_of_many_at_once, roofs_meet_at_the_ridge),
    ),
)
