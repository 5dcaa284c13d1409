"""A claim that can be timed, and what the rounds of a race say about it: whether it holds, fails, or is left open.

The data are the ratios of the slower to the faster side, one per round. Their logarithms are averaged, since a ratio
and its inverse are then equally far from 1, and three questions are asked. A claim holds if all three are answered yes.

1. Is the faster side faster at all? Both sides are called equally often, in equally many messages, in random order. So
   for two identical functions the log ratio of a round is as likely positive as negative, by the same amount: it is
   symmetric about 0, whatever the noise. Under symmetry, Student's t rejects too rarely, not too often, at small levels
   (B. Efron, "Student's t-test under symmetry conditions", JASA 64, 1969). Of two identical functions one is thus found
   faster in at most one of 2 / (1 - DIRECTION) looks, be the machine quiet or not.
2. Is it as much faster as the table claims? Both ratios estimate the same number, from independent rounds, and the
   error of their log difference is the root of the sum of the squares of their errors. What exceeds it has to be
   explained by what the grader does differently from `compare`: the claim's allowance. If the error is so large that a
   factor of PRECISION may hide in it, the answer is neither yes nor no: noise does not confirm a claim. A table whose
   interval contains 1, such as one whose columns time the same function, shows no difference: that is refused where
   both intervals are further apart than the allowance, and open where they are apart at all.
   Of a claim without a direction this is the only question, and what lies within the allowance holds, unless the
   table's own interval is so wide that it says nothing.
3. Is the slower side as fast as it should be? The grader times the course's own version of the same algorithm in the
   same rounds, and the slower side may take at most so many times as long (`Course.most`).

The mean is trimmed by a fifth on both sides, with the standard error that belongs to it (J. Tukey, D. McLaughlin, "Less
vulnerable confidence and significance procedures for location based on a single sample", Sankhya A 25, 1963): a single
stall of the machine would otherwise widen an interval beyond use.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mlhood.grading.checks.submission import Submission
from mlhood.measure.ratio import Ratio

DIRECTION = 0.998  # confidence that the faster side is faster
SIZE = 0.95  # confidence of all other intervals
PRECISION = 1.5  # the largest error of a comparison of two ratios that still confirms anything
TRIMMED = 0.2  # of the rounds, at each end
ALLOWANCE = 1.4
"""By how much a ratio of the grader may be smaller than the table's beyond both errors: in the grader, each call
follows the preparation of its image and the selection of channels, which count for both sides, and finds other data in
the caches. Measured in one process, in alternation, on the course's pair of P3: 0.98 times in C1, 1.17 times in C4. The
round trip, of which nothing is subtracted, makes a ratio smaller by up to an eighth."""
ANOTHER = "the columns of the table do not differ as your functions do"
State = Literal["holds", "inconclusive", "fails"]
STATES: tuple[State, ...] = ("holds", "inconclusive", "fails")  # a claim has the last of those of its questions


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
class CourseVersion:
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
    course: CourseVersion | None = None
    allowance: float = ALLOWANCE
    directed: bool = True


@dataclass
class Rounds:
    """Seconds of the messages of a race, one of each kind per round; of the course's version, seconds of one call."""

    slow: list[float] = field(default_factory=list)
    fast: list[float] = field(default_factory=list)
    course: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.slow)


@dataclass(frozen=True)
class TimingVerdict:
    """The verdict on a claim.

    Args:
        state: Of the claim.
        reason: The measurements, in words.
        ratio: Slower over faster side, with its interval.
        what: The fault in one sentence, if the claim fails for another reason than its ratio.
    """

    state: State
    reason: str
    ratio: Ratio
    what: str = ""


def decide(rounds: Rounds, claim: TimingClaim) -> TimingVerdict:
    """Return the verdict on a claim.

    Args:
        rounds: At least two.
        claim: The claim that they are of.
    """
    ratios = [slow / fast for slow, fast in zip(rounds.slow, rounds.fast, strict=True)]
    ratio = trimmed_mean(ratios, SIZE)
    direction = _direction(ratios, ratio) if claim.directed else "holds"
    answers: list[State] = [direction, _size(claim, ratio)]
    reason = f"{claim.name}: {ratio} times as long when timed from outside, and {claim.claimed} in the table"
    what = ANOTHER if claim.claimed.low <= 1 and answers[-1] == "fails" else ""
    if claim.course:
        calls = [seconds / claim.slow.calls for seconds in rounds.slow]
        factor = trimmed_mean([own / ours for own, ours in zip(calls, rounds.course, strict=False)], SIZE)
        answers.append(_pace(factor, claim.course))
        reason += f"; the slower takes {factor} times as long as the course's"
        what = too_slow(factor.value, claim.course) if answers[-1] == "fails" else what
    return TimingVerdict(max(answers, key=STATES.index), reason, ratio, what)


def too_slow(factor: float, course: CourseVersion) -> str:
    """Return the sentence for a slower side that is slower than any honest version."""
    return (
        f"your {course.name} takes {factor:.0f} times as long as the course's own version of the same algorithm; "
        f"at most {course.most:g} is allowed"
    )


def _direction(ratios: Sequence[float], ratio: Ratio) -> State:
    if trimmed_mean(ratios, DIRECTION).low > 1:
        return "holds"
    return "fails" if ratio.high < 1 else "inconclusive"


def _size(claim: TimingClaim, ratio: Ratio) -> State:
    claimed = claim.claimed
    if claimed.low <= 1:  # the table shows no difference
        apart = max(ratio.low / claimed.high, claimed.low / ratio.high)
        if apart > claim.allowance:
            return "fails"
        wide = claimed.high > PRECISION**2 * claimed.low
        return "inconclusive" if (apart > 1 if claim.directed else wide) else "holds"
    gap = math.log(claimed.value / ratio.value) - math.log(claim.allowance)
    error = math.hypot(math.log(claimed.value / claimed.low), math.log(ratio.high / ratio.value))
    if gap > error:
        return "fails"
    return "inconclusive" if gap > -error and error > math.log(PRECISION) else "holds"


def _pace(factor: Ratio, course: CourseVersion) -> State:
    if factor.value <= course.most:
        return "holds"
    return "fails" if factor.low > course.most else "inconclusive"


def trimmed_mean(ratios: Sequence[float], confidence: float) -> Ratio:
    """Return the trimmed geometric mean of positive ratios, at least two, with its confidence interval."""
    from scipy.special import stdtrit

    logs, cut = sorted(math.log(ratio) for ratio in ratios), int(TRIMMED * len(ratios))
    kept = logs[cut : len(logs) - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = statistics.stdev(winsorized) * math.sqrt(len(logs)) / len(kept)
    half, mean = float(stdtrit(len(kept) - 1, (1 + confidence) / 2)) * error, statistics.fmean(kept)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))
