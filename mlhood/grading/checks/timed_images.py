"""Timed calls of a function of images, each on an image that it has not seen: one kept image, shifted circularly.

A message returns the sum of the results of its calls, each times another random number, of some channels only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.probes import Kept
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing import KEEP
from mlhood.grading.checks.timing_verdict import CourseVersion, Prepared, TimedCall
from mlhood.grading.rpc.codec import Remote

SUMMED = "mlhood.grading.checks.timed_images:summed"
CHECKED_CHANNELS = 16  # of a result


@dataclass(frozen=True)
class Placed:
    """A function of images in the student's process.

    Args:
        function: It takes an image, and returns channels along the second axis.
        image: The first image, [1, C, H, W].
        channels: Of a result.
        right: Returns some channels of the right result for an image.
    """

    function: Remote
    image: np.ndarray
    channels: int
    right: Callable[[np.ndarray, list[int]], np.ndarray]


def timed_on_images(
    place: Callable[[Submission], Placed], what: str, *, calls: int = 1, atol: float = 2e-3, checked: float = 1.0
) -> TimedCall:
    """Return a timed call of a function of images.

    Args:
        place: Makes the function, when it is first called.
        what: Names its result in messages.
        calls: As of `TimedCall`.
        atol: Absolute tolerance, as a share of the largest number.
        checked: The share of messages whose values are checked.
    """
    made: list[tuple[Placed, Remote]] = []

    def prepare(submission: Submission, calls: int) -> Prepared:
        if not made:
            placed = place(submission)
            made.append((placed, submission.call(KEEP, placed.image)))
        (placed, kept), rng = made[0], submission.rng
        shifts, factors = rng.integers(1, placed.image.size, calls).tolist(), rng.uniform(0.5, 2, calls).tolist()
        channels = rng.choice(placed.channels, min(placed.channels, CHECKED_CHANNELS), replace=False).tolist()
        skipped = rng.random() >= checked

        def check(result: Any) -> None:
            if skipped:
                return
            drawn = zip(shifts, factors, strict=True)
            results = (np.float32(f) * placed.right(np.roll(placed.image, shift), channels) for shift, f in drawn)
            want = np.asarray(sum(results))
            expect.close(result, want, what, rtol=1e-3, atol=atol * float(np.abs(want).max()))

        return Prepared((placed.function, kept, shifts, factors, channels), check)

    return TimedCall(SUMMED, prepare, calls)


def course_on_images(
    name: str, make: Callable[[], tuple[Callable[[np.ndarray], Any], np.ndarray]], most: float, calls: int = 1
) -> CourseVersion:
    """Return the course's version of a timed call.

    Args:
        name: As of `CourseVersion`.
        make: Returns the function and an image, when it is first called.
        most: As of `CourseVersion`.
        calls: As of `CourseVersion`.
    """
    ready = cache(make)

    def run() -> None:
        function, image = ready()
        summed(function, Kept([image]), [1] * calls, [1.0] * calls, [0])

    return CourseVersion(name, run, most, calls)


def summed(
    function: Callable[[np.ndarray], Any], kept: Any, shifts: list[int], factors: list[float], channels: list[int]
) -> np.ndarray:
    """Return the sum of the results for a kept image that is shifted, times these factors, some channels of it.

    A result that lacks the channels is returned as it is.
    """
    (image,) = kept.arrays
    total: Any = np.float32(0)
    for shift, factor in zip(shifts, factors, strict=True):
        result = np.asarray(function(np.roll(image, shift)))
        if result.ndim < 2 or result.shape[1] <= max(channels):
            return result
        total = total + np.float32(factor) * result[:, channels]
    return np.asarray(total)
