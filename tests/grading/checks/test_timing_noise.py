"""Honest and forged tables on simulated laptops: time passes only where somebody works, and noise is drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from mlhood.grading.checks import timing
from mlhood.grading.checks.submission import LocalTransport, Submission
from mlhood.grading.checks.timing import Race, Timed
from mlhood.measure.ratio import Ratio, median_ratio

ROUNDS = 21  # of the table


@dataclass(frozen=True)
class Claim:
    """Seconds of the slower and of the faster call and of the way; how often a timed call does the work."""

    slow: float
    fast: float
    way: float
    times: tuple[int, int] = (1, 1)


# as measured on two cores of a server; of P3 the rows with the shortest and the longest way
CLAIMS = {
    "P3 C1": Claim(0.110, 0.0027, 0.008, (1, 8)),
    "P3 C4": Claim(0.110, 0.0028, 0.042, (1, 8)),
    "P4": Claim(0.0143, 0.0112, 0.007),
    "P5 fused": Claim(0.0028, 0.0014, 0.008, (8, 8)),
    "P5 ResNet-18": Claim(0.061, 0.036, 0.006),
}


class Laptop:
    """Its clock, and how long work takes on it.

    Args:
        rng: Draws the noise.
        slower: Times as slow as the machine of `CLAIMS`.
        spread: Of the logarithm of a time.
        stalls: How often in a second of work another program interrupts it, for 5 to 100 ms.
        throttled: By what everything is slower in about half of the spells, of half a second on average.
    """

    def __init__(self, rng, slower=1.0, spread=0.03, stalls=0.0, throttled=1.0):
        self.rng, self.slower, self.spread, self.stalls, self.throttled = rng, slower, spread, stalls, throttled
        self.now, self.pace, self.turns = 0.0, 1.0, 0.0

    def __call__(self):
        return self.now

    def work(self, seconds):
        while self.now >= self.turns:
            self.pace = self.throttled if self.rng.random() < 0.5 else 1.0
            self.turns += self.slower * self.rng.exponential(0.5)
        lasts = seconds * self.slower * self.pace * self.rng.lognormal(0, self.spread)
        lasts += self.rng.uniform(0.005, 0.1, self.rng.poisson(self.stalls * lasts)).sum()
        self.now += lasts
        return lasts


LAPTOPS = {
    "quiet": {},
    "noisy": {"spread": 0.15, "stalls": 5.0},
    "throttled": {"spread": 0.05, "throttled": 4.0},
    "very slow": {"slower": 30.0, "spread": 0.1, "stalls": 1.0},
}


def measured(laptop: Laptop, claim: Claim) -> Ratio:
    """What `compare` puts into a table: rounds of both calls."""
    both = [[laptop.work(seconds) for seconds in (claim.slow, claim.fast)] for _ in range(ROUNDS)]
    slow, fast = zip(*both, strict=True)
    return median_ratio(slow, fast, paired=True)


def times(ratio: Ratio, factor: float) -> Ratio:
    return Ratio(ratio.value * factor, ratio.low * factor, ratio.high * factor)


def honest(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    return claim, measured(laptop, claim)


def ten_times(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    """One column times 10; as well what patched timers, or invented numbers, may tell."""
    return claim, times(measured(laptop, claim), 10)


def swapped(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    """The functions are the other way round, and the columns were exchanged to hide it."""
    return replace(claim, slow=claim.fast, fast=claim.slow), measured(laptop, claim)


def elsewhere(laptop: Laptop, claim: Claim) -> tuple[Claim, Ratio]:
    """Measured on another machine, where it comes out twice as well."""
    return claim, times(measured(laptop, claim), 2)


def verdict(kind: str, name: str, table, seed: int, folder) -> timing.Verdict:
    rng = np.random.default_rng(seed)
    laptop = Laptop(rng, **LAPTOPS[kind])
    claim, told = table(laptop, CLAIMS[name])

    def function(seconds, often):
        def call(x):
            for _ in range(often):
                laptop.work(seconds)
            return 2 * x

        return Timed(f"call{seconds}", lambda rng: (rng.standard_normal(2),), lambda *seen: None, often), call

    slow, fast, ours = function(claim.slow, claim.times[0]), function(claim.fast, claim.times[1]), function(0.005, 1)
    submission = Submission(LocalTransport({one.target: call for one, call in (slow, fast, ours)}), folder, folder)
    submission.rng, ask = rng, submission.transport.ask

    def slowly(request, seconds):
        laptop.work(claim.way)
        return ask(request, seconds)

    submission.transport.ask = slowly  # type: ignore[method-assign]
    return timing.race(submission, Race(name, slow[0], fast[0], ours[0], told), seconds=3, clock=laptop)


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
def test_noise_hides_a_forged_table_and_seldom_confirms_it(kind, name, table, tmp_path):
    assert states(kind, name, table, tmp_path).count("holds") <= 1
