"""A claim that can be timed: its two sides, and the course's own version of the slower one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlhood.grading.checks.submission import Submission
from mlhood.measure.ratio import Ratio

ALLOWANCE = 1.4
"""By how much a ratio of the grader may be smaller than the table's beyond both errors: in the grader, each call
follows the preparation of its image and the selection of channels, which count for both sides, and finds other data in
the caches. Measured in one process, in alternation, on the course's pair of P3: 0.98 times in C1, 1.17 times in C4. The
round trip, of which nothing is subtracted, makes a ratio smaller by up to an eighth."""


@dataclass(frozen=True)
class Prepared:
    """A message that can be timed.

    Args:
        arguments: Sent while the clock runs, so they are small.
        check: Raises CheckFailed if the result of the message is wrong; may check a random part of it.
    """

    arguments: tuple[Any, ...]
    check: Callable[[Any], None]


@dataclass(frozen=True)
class TimedCall:
    """One side of a race.

    Args:
        target: As of `Submission.call`.
        prepare: Draws arguments that were never used before, for so many calls in one message. It may send messages of
            its own, which are not timed.
        calls: Calls in one message; more if they take less than eight times the round trip on this machine.
    """

    target: str
    prepare: Callable[[Submission, int], Prepared]
    calls: int = 1


@dataclass(frozen=True)
class Course:
    """The course's own version of the slower side, which runs in this process.

    Args:
        name: What it computes, for messages.
        run: Does the work of `calls` calls.
        most: How many times as long the student's version may take.
        calls: As of `run`.
    """

    name: str
    run: Callable[[], object]
    most: float
    calls: int = 1


@dataclass(frozen=True)
class TimingClaim:
    """The claim that one side is faster than another.

    Args:
        name: The claim in words, for messages.
        slow: The slower side.
        fast: The faster side, with as many calls in a message.
        claimed: Slow over fast, according to the table.
        course: The course's own version of the slower side; None if that is not the student's code.
        allowance: By how much the grader's ratio may be smaller than the table's beyond both errors.
        directed: Whether the fast side has to be faster; if not, only its ratio has to be as in the table.
    """

    name: str
    slow: TimedCall
    fast: TimedCall
    claimed: Ratio
    course: Course | None = None
    allowance: float = ALLOWANCE
    directed: bool = True

    def __post_init__(self) -> None:
        if self.slow.calls != self.fast.calls:
            raise ValueError(f"{self.name}: both sides need as many calls, not {self.slow.calls} and {self.fast.calls}")
