"""The parent's clock: which of two of a submission's functions is faster, whatever its process says.

A table of measurements is the student's word, so what it claims is measured again from outside:

1. The clock runs here, around the whole round trip. Timers that were patched over there do not matter, and what is
   computed late, or by a thread that ends later, is inside: the clock stops when the arrays have come.
2. Every call gets arguments that were never sent before, so there is nothing to replay, and what it returned is
   compared once the clock has stopped.
3. Each round calls both functions, a reference of ours and an empty call of as many bytes, in an order drawn anew.
   Rounds in which the reference took more than twice its median were disturbed and do not count; the other side may
   slow the reference down as it likes, half of the rounds remain.
4. The way there and back adds the same to both sides. The empty call says what it takes, and that is taken off; it is
   believed up to half of any call, since it, too, is measured over there. So a call that is short beside the way does
   its work several times (`Timed.times`), and what is left of the way is divided by them.

What is compared is the ratio of the table's two cells with that of the same two calls out here. A table is not refuted
by a ratio that is somewhat smaller here: it may have been measured on a quieter machine. So a claim of "faster" has to
show that it is, and one that tells a large ratio a SLACK-th of it. Times by themselves are compared with nothing: a
laptop that has become warm takes longer for everything.

A claim holds or fails by the interval of the median ratio (`mlhood.measure.ratio`). What lies between is open and
measured again, a failure has to be seen twice, and what stays open is inconclusive and costs nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mlhood.grading.checks.submission import Submission
from mlhood.grading.rpc.codec import Remote
from mlhood.measure.ratio import Ratio, median_ratio

FIRST_LOOK = 3  # rounds that are enough where all of them agree with the claim
ROUNDS = 5
TRIES = 4
DISTURBED = 2.0  # times the reference's median
MARGIN = 1.1  # by which a claim has to be missed
CLEAR = 1.2  # by which one has to be missed that tells a smaller ratio: so much is another order of calls worth
CERTAIN = 2.0  # a ratio that is told to be at least as large has to show
SLACK = 4.0  # by which it may be smaller: caches are colder here, and the machine is busier at times
TABLE_SECONDS = 6.0  # after which no other claim of a table is begun
NOTHING = "mlhood.grading.checks.probes:nothing"
State = Literal["holds", "fails", "inconclusive"]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Timed:
    """A call to be timed.

    Args:
        target: As of `Submission.call`.
        make: Draws arguments that were never used before.
        check: Looks at arguments and result, and raises CheckFailed if it is wrong. What it looks at may be drawn.
        times: How often one call does the work.
    """

    target: str | Remote
    make: Callable[[np.random.Generator], tuple[Any, ...]]
    check: Callable[[tuple[Any, ...], Any, np.random.Generator], None]
    times: int = 1


@dataclass(frozen=True)
class Race:
    """A claim that one call is faster than another.

    Args:
        name: What is claimed, for a report.
        slow: The slower one.
        fast: The faster one.
        reference: One of ours, of about as much work.
        told: Slow over fast as the table has it.
    """

    name: str
    slow: Timed
    fast: Timed
    reference: Timed
    told: Ratio


@dataclass(frozen=True)
class Verdict:
    """What the clock says of a claim: `holds`, `fails` or `inconclusive`, why, and the ratio that it has found."""

    state: State
    reason: str
    ratio: Ratio


def race(
    submission: Submission, one: Race, *, seconds: float = TABLE_SECONDS, clock: Clock = time.perf_counter
) -> Verdict:
    """Measure a claim until it is decided.

    Args:
        submission: Whose functions are called; its `rng` draws arguments and orders.
        one: The claim.
        seconds: After which an open claim is not measured once more. One that seems to fail is, in any case: so nobody
            gets away by being slow.
        clock: Seconds; only differences matter.

    Raises:
        CheckFailed: A call stops with an error, or returns what is wrong.
    """
    began, failures = clock(), 0
    calls = {"slow": one.slow, "fast": one.fast}
    for timed in calls.values():  # what is compiled when it is first called is not measured with it
        _once(submission, timed, clock)
    verdict = _look(submission, one, FIRST_LOOK, clock)
    for _ in range(1, TRIES):
        if verdict.state == "holds" or failures == 2:
            break
        verdict = _look(submission, one, ROUNDS, clock)
        failures += verdict.state == "fails"
        if verdict.state == "inconclusive" and clock() - began > seconds:
            break
    seen_once = verdict.state == "fails" and failures < 2
    return replace(verdict, state="inconclusive") if seen_once else verdict


def _look(submission: Submission, one: Race, rounds: int, clock: Clock) -> Verdict:
    calls = {"slow": one.slow, "fast": one.fast}
    return _judge(remeasure(submission, calls, one.reference, rounds=rounds, clock=clock), one)


def remeasure(
    submission: Submission,
    calls: Mapping[str, Timed],
    reference: Timed,
    *,
    rounds: int = ROUNDS,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Time calls, a reference and an empty call in rounds.

    Returns:
        Seconds by name, `reference` and `empty` among them, one for each round that was not disturbed.

    Raises:
        CheckFailed: A call stops with an error, or returns what is wrong.
    """
    timed = {**calls, "reference": reference, "empty": _empty(submission, reference)}
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name in submission.rng.permutation(list(timed)):
            seconds[name].append(_once(submission, timed[name], clock))
    most = DISTURBED * statistics.median(seconds["reference"])
    quiet = [number for number, lasted in enumerate(seconds["reference"]) if lasted <= most]
    return {name: [lasted[number] for number in quiet] for name, lasted in seconds.items()}


def _once(submission: Submission, timed: Timed, clock: Clock) -> float:
    arguments = timed.make(submission.rng)
    start = clock()
    result = submission.call(timed.target, *arguments)
    lasted = clock() - start
    timed.check(arguments, result, submission.rng)
    return lasted


def _empty(submission: Submission, reference: Timed) -> Timed:
    """A call that takes what the reference takes and returns as much. The reference is called for that, to warm up."""
    arguments = reference.make(submission.rng)
    result = submission.call(reference.target, *arguments)
    reference.check(arguments, result, submission.rng)
    shape = list(np.shape(result))
    return Timed(NOTHING, lambda rng: (shape, *reference.make(rng)), lambda *seen: None)


def _judge(found: Mapping[str, list[float]], one: Race) -> Verdict:
    way = statistics.median(found["empty"])
    slow, fast, reference = (
        [_work(lasted, way, timed.times) for lasted in found[name]]
        for name, timed in (("slow", one.slow), ("fast", one.fast), ("reference", one.reference))
    )
    ratio, needed = median_ratio(slow, fast, paired=True), _needed(one.told)
    pace = statistics.median(fast) / statistics.median(reference)
    reason = (
        f"{one.name}: {ratio} times as long by the clock outside, and {one.told} in the table "
        f"(at least {needed:.2f} is needed); the faster takes {pace:.1f} times as long as the course's"
    )
    if ratio.high * (CLEAR if one.told.low < CLEAR else MARGIN) < needed:
        return Verdict("fails", reason, ratio)
    return Verdict("holds" if ratio.low >= needed else "inconclusive", reason, ratio)


def _work(lasted: float, way: float, times: int) -> float:
    """Seconds of the work in a call, done once. What is slower stays so: the way takes off no more than half."""
    return (lasted - min(way, lasted / 2)) / times


def _needed(told: Ratio) -> float:
    """The ratio that has to show: 1, or a part of what the table tells if that is much."""
    return 1.0 if told.low < CERTAIN else max(1.0, told.low / SLACK)
