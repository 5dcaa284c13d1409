"""Timing by the judge: which of two functions of a submission is faster, whatever its process claims.

The numbers in a table are the student's word, so its claims are measured again from outside:

1. The clock runs in this process, around the whole round trip. Patched timers in the student's process have no effect,
   and work that is lazy or done by another thread is included: the clock stops when the arrays have arrived.
2. Every call gets arguments that were never sent before, so results cannot be replayed, and every result is compared
   after the clock has stopped.
3. Each round calls both functions, a reference implementation of ours and an empty call with as many bytes, in random
   order. Rounds in which the reference took more than twice its median were disturbed and are dropped; even if the
   submission slows the reference down, half of the rounds remain.
4. The round trip adds the same time to both sides. The empty call measures it, and it is subtracted, but never more
   than half of a call, since the empty call, too, runs in the student's process. A call that is short compared with the
   round trip repeats its work (`TimedCall.repetitions`), which divides what is left of the round trip.

The compared quantity is the ratio of the table's two cells and the ratio of the same two calls here. A somewhat smaller
ratio here does not refute a table, which may have been measured on a quieter machine: a claim of "faster" has to be
confirmed, and a large claimed ratio to within a factor of SLACK. Absolute times are compared with nothing: a laptop
that throttles takes longer for everything.

A claim is decided by the interval of the median ratio (`mlhood.measure.ratio`). Between the thresholds it is measured
again, a failure has to be repeated, and a claim that stays undecided is inconclusive and costs no points.
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

FIRST_ROUNDS = 3  # enough if all of them agree with the claim
ROUNDS = 5
MAX_MEASUREMENTS = 4
DISTURBED = 2.0  # times the reference's median
MARGIN = 1.1  # by which a claim has to be missed to fail
SMALL_MARGIN = 1.2  # the same for claimed ratios below it: the order of calls alone can make that much
LARGE = 2.0  # claimed ratios from here on have to be confirmed in size
SLACK = 4.0  # by which a large ratio may be smaller here: caches are colder, and the machine may be busier
TABLE_SECONDS = 6.0  # after which no other claim of a table is measured
EMPTY_CALL = "mlhood.grading.checks.probes:empty_call"
State = Literal["holds", "fails", "inconclusive"]
Clock = Callable[[], float]


@dataclass(frozen=True)
class TimedCall:
    """A call to be timed.

    Args:
        target: As of `Submission.call`.
        draw_arguments: Returns arguments that were never used before.
        check: Raises CheckFailed if the result for these arguments is wrong; may check a random part of it.
        repetitions: How often one call does the work.
    """

    target: str | Remote
    draw_arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    check: Callable[[tuple[Any, ...], Any, np.random.Generator], None]
    repetitions: int = 1


@dataclass(frozen=True)
class TimingClaim:
    """The claim that one call is faster than another.

    Args:
        name: The claim in words, for messages.
        slow: The slower call.
        fast: The faster call.
        reference: A call of ours with about as much work.
        claimed: Slow over fast, according to the table.
    """

    name: str
    slow: TimedCall
    fast: TimedCall
    reference: TimedCall
    claimed: Ratio


@dataclass(frozen=True)
class Verdict:
    """The state of a claim after measuring it, the reason, and the measured ratio."""

    state: State
    reason: str
    ratio: Ratio


def measure_claim(
    submission: Submission, claim: TimingClaim, *, seconds: float = TABLE_SECONDS, clock: Clock = time.perf_counter
) -> Verdict:
    """Measure a claim until it is decided.

    Args:
        submission: Its functions are called; its `rng` draws arguments and orders.
        seconds: Time after which an inconclusive claim is not measured again. A claim that seems to fail is measured
            again in any case, so being slow does not help.

    Raises:
        CheckFailed: A call stops with an error, or returns a wrong result.
    """
    began, failures = clock(), 0
    for call in (claim.slow, claim.fast):  # compilation at the first call is not measured
        _time_call(submission, call, clock)
    verdict = _measure(submission, claim, FIRST_ROUNDS, clock)
    for _ in range(1, MAX_MEASUREMENTS):
        if verdict.state == "holds" or failures == 2:
            break
        verdict = _measure(submission, claim, ROUNDS, clock)
        failures += verdict.state == "fails"
        if verdict.state == "inconclusive" and clock() - began > seconds:
            break
    failed_once = verdict.state == "fails" and failures < 2
    return replace(verdict, state="inconclusive") if failed_once else verdict


def _measure(submission: Submission, claim: TimingClaim, rounds: int, clock: Clock) -> Verdict:
    calls = {"slow": claim.slow, "fast": claim.fast}
    return _decide(time_calls(submission, calls, claim.reference, rounds=rounds, clock=clock), claim)


def time_calls(
    submission: Submission,
    calls: Mapping[str, TimedCall],
    reference: TimedCall,
    *,
    rounds: int = ROUNDS,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Time calls, a reference and an empty call in rounds.

    Returns:
        Seconds by name, including `reference` and `empty`, one for each round that was not disturbed.

    Raises:
        CheckFailed: A call stops with an error, or returns a wrong result.
    """
    all_calls = {**calls, "reference": reference, "empty": _empty_call(submission, reference)}
    seconds: dict[str, list[float]] = {name: [] for name in all_calls}
    for _ in range(rounds):
        for name in submission.rng.permutation(list(all_calls)):
            seconds[name].append(_time_call(submission, all_calls[name], clock))
    limit = DISTURBED * statistics.median(seconds["reference"])
    quiet = [i for i, duration in enumerate(seconds["reference"]) if duration <= limit]
    return {name: [durations[i] for i in quiet] for name, durations in seconds.items()}


def _time_call(submission: Submission, call: TimedCall, clock: Clock) -> float:
    arguments = call.draw_arguments(submission.rng)
    start = clock()
    result = submission.call(call.target, *arguments)
    duration = clock() - start
    call.check(arguments, result, submission.rng)
    return duration


def _empty_call(submission: Submission, reference: TimedCall) -> TimedCall:
    """Return a call with arguments and results as large as the reference's, which is warmed up by the way."""
    arguments = reference.draw_arguments(submission.rng)
    result = submission.call(reference.target, *arguments)
    reference.check(arguments, result, submission.rng)
    shape = list(np.shape(result))
    return TimedCall(EMPTY_CALL, lambda rng: (shape, *reference.draw_arguments(rng)), lambda *results: None)


def _decide(seconds: Mapping[str, list[float]], claim: TimingClaim) -> Verdict:
    round_trip = statistics.median(seconds["empty"])
    slow, fast, reference = (
        [_work_seconds(duration, round_trip, call.repetitions) for duration in seconds[name]]
        for name, call in (("slow", claim.slow), ("fast", claim.fast), ("reference", claim.reference))
    )
    ratio, required = median_ratio(slow, fast, paired=True), _required(claim.claimed)
    pace = statistics.median(fast) / statistics.median(reference)
    reason = (
        f"{claim.name}: {ratio} times as long when timed from outside, and {claim.claimed} in the table "
        f"(at least {required:.2f} is required); the faster takes {pace:.1f} times as long as the course's"
    )
    if ratio.high * (SMALL_MARGIN if claim.claimed.low < SMALL_MARGIN else MARGIN) < required:
        return Verdict("fails", reason, ratio)
    return Verdict("holds" if ratio.low >= required else "inconclusive", reason, ratio)


def _work_seconds(duration: float, round_trip: float, repetitions: int) -> float:
    """Return the seconds of the work in a call, done once; the round trip takes off at most half of the call."""
    return (duration - min(round_trip, duration / 2)) / repetitions


def _required(claimed: Ratio) -> float:
    """Return the ratio that confirms a claim: 1, or a part of a large claimed ratio."""
    return 1.0 if claimed.low < LARGE else max(1.0, claimed.low / SLACK)
