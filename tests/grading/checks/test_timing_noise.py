"""Honest and forged tables on simulated laptops, whose clock only simulated work advances, with random noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from mlhood.grading.checks import timing
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.checks.timing import TimedCall, TimingClaim
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.measure.ratio import Ratio, median_ratio

ROUNDS = 21  # of the table


@dataclass(frozen=True)
class Claim:
    """Seconds of the slower and the faster call and of the round trip; how often each timed call repeats the work."""

    slow: float
    fast: float
    round_trip: float
    repetitions: tuple[int, int] = (1, 1)


# as measured on two cores of a server; of P3 the rows with the shortest and the longest round trip
CLAIMS = {
    "P3 C1": Claim(0.110, 0.0027, 0.008, (1, 8)),
    "P3 C4": Claim(0.110, 0.0028, 0.042, (1, 8)),
    "P4": Claim(0.0143, 0.0112, 0.007),
    "P5 fused": Claim(0.0028, 0.0014, 0.008, (8, 8)),
    "P5 ResNet-18": Claim(0.061, 0.036, 0.006),
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


def scaled(ratio: Ratio, factor: float) -> Ratio:
    return Ratio(ratio.value * factor, ratio.low * factor, ratio.high * factor)


def honest(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    return claim, measured(laptop, claim)


def ten_times(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    """One column times 10, as patched timers or invented numbers may show."""
    return claim, scaled(measured(laptop, claim), 10)


def swapped(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    """The slower function is the fast one, and the columns were exchanged to hide it."""
    return replace(claim, slow=claim.fast, fast=claim.slow), measured(laptop, claim)


def elsewhere(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    """Measured on another machine, where the ratio is twice as large."""
    return claim, scaled(measured(laptop, claim), 2)


def verdict(kind: str, name: str, table, seed: int, folder) -> timing.Verdict:
    rng = np.random.default_rng(seed)
    laptop = Laptop(rng, **LAPTOPS[kind])
    claim, claimed = table(laptop, CLAIMS[name])

    names = {}

    def call(seconds, repetitions):
        def function(x):
            for _ in range(repetitions):
                laptop.work(seconds)
            return 2 * x

        names[f"call{seconds}"] = function
        return TimedCall(f"call{seconds}", lambda rng: (rng.standard_normal(2),), lambda *results: None, repetitions)

    slow, fast = call(claim.slow, claim.repetitions[0]), call(claim.fast, claim.repetitions[1])
    transport = LocalTransport(names)
    send = transport.send

    def timed_send(request, seconds):
        laptop.work(claim.round_trip)
        return send(request, seconds)

    transport.send = timed_send  # type: ignore[method-assign]
    submission = Submission(Session(transport, folder, folder), CheckContext(rng))
    timing_claim = TimingClaim(name, slow, fast, call(0.005, 1), claimed)
    return timing.measure_claim(submission, timing_claim, seconds=3, clock=laptop)


def states(kind: str, name: str, table, folder, seeds: int = 6) -> list[str]:
    return [verdict(kind, name, table, seed, folder).state for seed in range(seeds)]


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("kind", LAPTOPS)
def test_honest_tables_never_fail(kind, name, tmp_path):
    assert "fails" not in states(kind, name, honest, tmp_path)
    assert "fails" not in states(kind, name, elsewhere, tmp_path)


@pytest.mark.parametrize("name", CLAIMS)
def test_tables_are_decided_on_a_quiet_machine(name, tmp_path):
    assert set(states("quiet", name, honest, tmp_path)) == {"holds"}
    assert set(states("quiet", name, ten_times, tmp_path)) == {"fails"}
    assert set(states("quiet", name, swapped, tmp_path)) == {"fails"}


@pytest.mark.parametrize("table", [ten_times, swapped])
@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("kind", ["noisy", "throttled", "very slow"])
def test_noise_rarely_confirms_a_forged_table(kind, name, table, tmp_path):
    assert states(kind, name, table, tmp_path).count("holds") <= 1
