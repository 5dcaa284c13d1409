"""Honest and forged tables on simulated laptops, whose clock only simulated work advances, with random noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from mlhood.grading.checks import timing
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.checks.timing_verdict import CourseVersion, Prepared, TimedCall, TimingClaim
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.measure.ratio import Ratio, median_ratio

ROUNDS = 21  # of the table


@dataclass(frozen=True)
class Claim:
    """Seconds of a call of the slower and the faster side and of the round trip; calls in a message."""

    slow: float
    fast: float
    round_trip: float
    calls: int


# as measured on two cores of a server
CLAIMS = {
    "P3": Claim(0.110, 0.0028, 0.005, 4),
    "P4": Claim(0.00119, 0.00093, 0.005, 16),
    "P5 fused": Claim(0.0028, 0.0014, 0.005, 8),
    "P5 ResNet-18": Claim(0.061, 0.036, 0.005, 1),
}


class Laptop:
    """A simulated machine: its clock, and how long work takes on it.

    Args:
        rng: Draws the noise.
        slower: Factor by which it is slower than the machine of `CLAIMS`.
        spread: Standard deviation of the logarithm of a time.
        stalls: Interruptions by other programs per second of work, each of 5 to 100 ms.
        throttled: Factor by which it is slower in about half of its periods, which last half a second on average.
    """

    def __init__(self, rng, slower=1.0, spread=0.03, stalls=0.0, throttled=1.0):
        self.rng, self.slower, self.spread, self.stalls, self.throttled = rng, slower, spread, stalls, throttled
        self.now, self.pace, self.period_end = 0.0, 1.0, 0.0

    def __call__(self):
        return self.now

    def work(self, seconds):
        while self.now >= self.period_end:
            self.pace = self.throttled if self.rng.random() < 0.5 else 1.0
            self.period_end += self.slower * self.rng.exponential(0.5)
        duration = seconds * self.slower * self.pace * self.rng.lognormal(0, self.spread)
        duration += self.rng.uniform(0.005, 0.1, self.rng.poisson(self.stalls * duration)).sum()
        self.now += duration
        return duration


LAPTOPS = {
    "quiet": {},
    "noisy": {"spread": 0.15, "stalls": 5.0},
    "throttled": {"spread": 0.05, "throttled": 4.0},
    "very slow": {"slower": 30.0, "spread": 0.1, "stalls": 1.0},
}


def measured(laptop: Laptop, claim: Claim) -> Ratio:
    """The ratio that `compare` puts into a table: rounds of both calls."""
    both = [[laptop.work(seconds) for seconds in (claim.slow, claim.fast)] for _ in range(ROUNDS)]
    slow, fast = zip(*both, strict=True)
    return median_ratio(slow, fast, paired=True)


def inflated(factor: float):
    """A table whose ratio is so many times too large."""

    def table(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
        ratio = measured(laptop, claim)
        return claim, Ratio(ratio.value * factor, ratio.low * factor, ratio.high * factor)

    return table


honest = inflated(1)


def swapped(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    """The slower function is the fast one, and the columns were exchanged to hide it."""
    return replace(claim, slow=claim.fast, fast=claim.slow), measured(laptop, claim)


def identical(claimed: float):
    """Both sides are the same function, and the table claims this ratio, with a narrow interval."""

    def table(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
        return replace(claim, slow=claim.fast), Ratio(claimed, claimed * 0.99, claimed * 1.01)

    return table


def verdict(kind: str, name: str, table, seed: int, folder: Path) -> timing.TimingVerdict:
    rng = np.random.default_rng(seed)
    laptop = Laptop(rng, **LAPTOPS[kind])
    claim, claimed = table(laptop, CLAIMS[name])

    def side(target: str) -> TimedCall:
        return TimedCall(target, lambda submission, calls: Prepared((calls,), lambda result: None), claim.calls)

    def work(seconds: float):
        return lambda calls: sum(laptop.work(seconds) for _ in range(calls))

    transport = LocalTransport({"slow": work(claim.slow), "fast": work(claim.fast)})
    send = transport.send

    def timed_send(request, seconds):
        laptop.work(claim.round_trip)
        return send(request, seconds)

    transport.send = timed_send  # type: ignore[method-assign]
    submission = Submission(Session(transport, folder, folder), CheckContext(rng))
    course = CourseVersion("loops", lambda: laptop.work(claim.slow), most=8.0)
    timing_claim = TimingClaim(name, side("slow"), side("fast"), claimed, course)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(timing, "clock_of", lambda submission: laptop)
        monkeypatch.setattr(timing, "course_clock", laptop)
        return timing.measure_claim(submission, timing_claim)


def states(kind: str, name: str, table, folder: Path, seeds: int = 6) -> list[str]:
    return [verdict(kind, name, table, seed, folder).state for seed in range(seeds)]


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch):
    monkeypatch.setattr(timing, "wait_until_quiet", lambda: None)


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("kind", LAPTOPS)
def test_honest_tables_never_fail(kind, name, tmp_path):
    assert "fails" not in states(kind, name, honest, tmp_path)


@pytest.mark.parametrize("name", CLAIMS)
def test_tables_are_decided_on_a_quiet_machine(name, tmp_path):
    assert set(states("quiet", name, honest, tmp_path)) == {"holds"}
    assert set(states("quiet", name, inflated(2), tmp_path)) == {"fails"}
    assert set(states("quiet", name, swapped, tmp_path)) == {"fails"}
    assert set(states("quiet", name, identical(1.5), tmp_path)) == {"fails"}


@pytest.mark.parametrize("table", [inflated(4), swapped, identical(1.05), identical(2)])
@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("kind", ["noisy", "throttled", "very slow"])
def test_noise_does_not_confirm_a_forged_table(kind, name, table, tmp_path):
    assert "holds" not in states(kind, name, table, tmp_path, seeds=3)
