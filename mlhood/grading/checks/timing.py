"""Timing by the grader: which of two functions of a submission is faster, whatever its process claims.

The numbers in a table are the student's word, so its claims are measured again from outside:

1. The clock is read in this process, before and after the whole round trip of a message. Patched timers in the
   student's process have no effect, and work that is lazy or done by another thread is included: the clock stops when
   the results have arrived. It is the CPU time of the student's process, where that can start no other (a bare kernel)
   or is trusted (see `Transport.cpu_seconds`): other programs do not add to it, nor does waiting. Elsewhere it is the
   time on the wall.
2. Both sides are treated alike. A message makes several calls of one side, as many for the slower as for the faster,
   and so many that those of the faster side take much longer than the round trip, of which nothing is subtracted: what
   the student's process says of it is a claim. A round has one message of each side, in random order. Two identical
   functions thus have the ratio 1, apart from noise that is alike for both.
3. Large arrays are sent before the clock starts. Every call of the student's code is on arguments that were not used
   before, so results cannot be replayed, and a random part of the results of all calls is checked after the clock has
   stopped.
4. Where the slower side is the student's, the course's own version of the same algorithm runs in this process, in the
   same rounds, by its CPU time: being slow on purpose makes no function fast (`CourseVersion`), and nothing that the
   submission runs makes this version slower.
5. Both processes run on one core meanwhile (`one_core`): threads make nothing faster.

The compared quantity is the ratio of the table's two cells and the ratio of the same two functions here; how, is said
in `timing_verdict`. Absolute times are compared with nothing: a laptop that throttles takes longer for everything.

A claim is measured until it is decided (LOOKS). One that fails or stays open is measured again, up to ATTEMPTS times,
when the machine has become quiet. It is refused if two of these refuse it, and open if the last leaves it open.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from mlhood.grading.checks.one_core import one_core
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing_verdict import (
    CourseVersion,
    Prepared,
    Rounds,
    TimedCall,
    TimingClaim,
    TimingVerdict,
    decide,
    too_slow,
)

LOOKS = (3, 6, 12, 24)  # rounds after which a claim may be decided
REFUSAL = 6  # rounds that a refusal needs
ATTEMPTS = 3
ROUND_TRIP_SHARE = 1 / 8  # of a message of the faster side, at most
MAX_DOUBLINGS = 4  # of the calls in a message
COURSE_ROUNDS = 6  # in which the course's version is timed, too
GROSS = 5.0  # times what is allowed: so much slower than the course's version is refused without a race
QUIET_SECONDS = 10.0  # to wait for a free core before another attempt
RETRY_SECONDS = 40.0  # after which another attempt adds no rounds: few claims need one, and it should decide
FIRST_SECONDS = 2.0  # after which the first attempt adds no rounds
TABLE_SECONDS = 1.0  # after which no other claim of a table is measured
EMPTY_CALL = "mlhood.grading.checks.probes:empty_call"
KEEP = "mlhood.grading.checks.probes:keep"
Clock = Callable[[], float]
course_clock: Clock = time.process_time  # which no other process adds to


def clock_of(submission: Submission) -> Clock:
    """Return a clock of CPU time, if that of the submission is known; else the clock on the wall."""
    cpu: Any = submission.session.transport.cpu_seconds
    return time.perf_counter if cpu() is None else cpu


def measure_claim(submission: Submission, claim: TimingClaim) -> TimingVerdict:
    """Measure a claim until it is decided.

    Raises:
        CheckFailed: A call stops with an error, or returns a wrong result.
    """
    with one_core(submission):
        if refusal := _warm_up(submission, claim):
            return refusal
        claim = _with_enough_calls(submission, claim)
        verdict = _attempt(submission, claim, FIRST_SECONDS)
    refusals = int(verdict.state == "fails")
    for _ in range(1, ATTEMPTS):
        if verdict.state == "holds" or refusals == 2:
            return verdict
        wait_until_quiet()
        with one_core(submission):
            verdict = _attempt(submission, claim, RETRY_SECONDS)
        refusals += verdict.state == "fails"
    decided = verdict.state == "holds" or refusals == 2
    return verdict if decided else replace(verdict, state="inconclusive")


def _warm_up(submission: Submission, claim: TimingClaim) -> TimingVerdict | None:
    """Call both sides once, since they may compile; refuse a slower side that would take minutes to race."""
    _time_message(submission, claim.fast, 1)
    taken = _time_message(submission, claim.slow, 1)
    if claim.course is None:
        return None
    factor = float("inf")
    for _ in range(2):  # the first call of either may have compiled
        factor = min(factor, taken / _time_course(claim.course))
        if factor <= GROSS * claim.course.most:
            return None
        taken = _time_message(submission, claim.slow, 1)
    reason = f"{claim.name}: the slower takes {factor:.0f} times as long as the course's"
    return TimingVerdict("fails", reason, claim.claimed, too_slow(factor, claim.course))


def _with_enough_calls(submission: Submission, claim: TimingClaim) -> TimingClaim:
    """Return the claim with as many calls in a message as make the round trip small beside the faster side's work.

    A round trip that the student's process makes longer only adds calls.
    """
    trip = statistics.median(_time_message(submission, EMPTY, 1) for _ in range(3))
    for _ in range(MAX_DOUBLINGS):
        if ROUND_TRIP_SHARE * _time_message(submission, claim.fast, claim.fast.calls) >= trip:
            break
        slow, fast = (replace(call, calls=2 * call.calls) for call in (claim.slow, claim.fast))
        claim = replace(claim, slow=slow, fast=fast)
    return claim


def _attempt(submission: Submission, claim: TimingClaim, seconds: float) -> TimingVerdict:
    clock = clock_of(submission)
    stop, rounds = clock() + seconds, Rounds()
    for look in LOOKS:
        time_rounds(submission, claim, rounds, look)
        state = decide(rounds, claim).state
        if state == "fails" and look < REFUSAL:
            continue
        if state != "inconclusive" or clock() > stop:
            break
    return decide(rounds, claim)


def time_rounds(submission: Submission, claim: TimingClaim, rounds: Rounds, total: int) -> None:
    """Time rounds, each with one message of both sides, and in the first ones the course's version.

    Args:
        rounds: The rounds are added to these.
        total: How many there are then.

    Raises:
        CheckFailed: A call stops with an error, or returns a wrong result.
    """

    sides = {"slow": claim.slow, "fast": claim.fast}
    timed = {name: partial(_time_message, submission, call, call.calls) for name, call in sides.items()}
    if claim.course and len(rounds) < COURSE_ROUNDS:
        timed["course"] = partial(_time_course, claim.course)
    while len(rounds) < total:
        seconds = {str(name): timed[name]() for name in submission.rng.permutation(list(timed))}
        for name, duration in seconds.items():
            getattr(rounds, name).append(duration)


def _time_message(submission: Submission, call: TimedCall, calls: int) -> float:
    prepared, clock = call.prepare(submission, calls), clock_of(submission)
    start = clock()
    result = submission.call(call.target, *prepared.arguments)
    duration = clock() - start
    prepared.check(result)
    return duration


def _time_course(course: CourseVersion) -> float:
    """Return the seconds of one call of the course's version."""
    start = course_clock()
    course.run()
    return (course_clock() - start) / course.calls


EMPTY = TimedCall(EMPTY_CALL, lambda submission, calls: Prepared((16,), lambda result: None))


def wait_until_quiet() -> None:
    """Wait until a core of this machine is free, or for QUIET_SECONDS."""
    import psutil

    stop, cores = time.monotonic() + QUIET_SECONDS, psutil.cpu_count() or 1
    while time.monotonic() < stop:
        if cores * psutil.cpu_percent(interval=0.5) / 100 <= cores - 1:
            return
