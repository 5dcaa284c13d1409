"""Checks of P4.3: how many tiles are loaded into each level of memory, and how long that takes.

A level loads what it holds whenever the loop that needs it starts an iteration. Where groups are neither single tiles
nor all there are, memories with least-recently-used replacement arrive at the same counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Task
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.variants.parameter import Parameter

LEVELS = ("L1", "L2", "L3")
LOADS_KEYS = Parameter("loads_keys", (LEVELS, (1, 2, 3), ("into L1", "into L2", "into L3"), ("near", "middle", "far")))
MISTAKES = {"the stationary tiles come first, then the streamed tiles": lambda pair, *sizes: pair[::-1]}


def full_groups(submission: Submission) -> Iterator[Arguments]:
    """Draw stationary and streamed tiles, k2 and k3 such that all groups are full."""
    for groups3 in (2, 3, 4):
        k2, k3 = (int(size) for size in submission.rng.permutation([3, 4, 5, 7])[:2])
        yield groups3 * k3, int(submission.rng.integers(2, 6)) * k2, k2, k3


def partial_groups(submission: Submission) -> Iterator[Arguments]:
    """Likewise, but the last group of each kind is smaller, though of at least two tiles."""
    for groups3 in (1, 2, 3):
        k2, k3 = (int(size) for size in submission.rng.permutation([4, 5, 6, 7])[:2])
        groups2 = int(submission.rng.integers(1, 4))
        staying = groups3 * k3 + int(submission.rng.integers(2, k3))
        passing = groups2 * k2 + int(submission.rng.integers(2, k2))
        yield staying, passing, k2, k3


def lasting_groups(submission: Submission) -> Iterator[Arguments]:
    """Likewise, but a tile or a group that is loaded is still there from before: groups of one tile, or of all."""
    first, second, k2, k3 = (int(size) for size in submission.rng.permutation(np.arange(3, 9))[:4])
    yield first * k3, k2, k2, k3  # one group of streamed tiles
    yield first * k3, k2 - 1, k2 + 2, k3  # not even a full one
    yield first, second * k2, k2, 1  # groups of one stationary tile
    yield first * k3, second, 1, k3  # groups of one streamed tile
    yield first, second, 1, 1
    yield k3, second * k2, k2, k3  # one group of stationary tiles
    yield first * k3, 1, k2, k3  # a single streamed tile, and a single stationary one
    yield 1, second * k2, k2, k3


def _of_level(level: int) -> Callable[[Any], Any]:
    return lambda parameters: parameters.loads_keys[level]


@compared(
    2,
    "loads",
    key=_of_level(0),
    mistakes=MISTAKES,
    hint="which loop of the nest brings another tile of each kind, and how often does it begin an iteration?",
)
def tiles_into_l1(submission: Submission) -> Iterator[Arguments]:
    """`loads` counts the tiles loaded into L1, which holds one tile of each kind."""
    return full_groups(submission)


@compared(
    2,
    "loads",
    key=_of_level(1),
    mistakes=MISTAKES,
    hint="when does a group of streamed tiles begin, and how many stationary tiles does it meet before the next one?",
)
def tiles_into_l2(submission: Submission) -> Iterator[Arguments]:
    """`loads` counts the tiles loaded into L2, which holds one stationary tile and a group of k2 streamed tiles."""
    return full_groups(submission)


@compared(
    2,
    "loads",
    key=_of_level(2),
    mistakes=MISTAKES,
    hint="how often does a group of stationary tiles begin, and how many groups of streamed tiles pass it?",
)
def tiles_into_l3(submission: Submission) -> Iterator[Arguments]:
    """`loads` counts the tiles loaded into L3, which also holds a group of k3 stationary tiles."""
    return full_groups(submission)


LEVELS_RIGHT: dict[int | str, Check] = dict(enumerate((tiles_into_l1, tiles_into_l2, tiles_into_l3)))


@compared(1, "loads", presupposes=LEVELS_RIGHT, hint="a group that is not full is a group, with fewer tiles")
def last_groups_count(submission: Submission) -> Iterator[Arguments]:
    """`loads` counts groups that are not full."""
    return partial_groups(submission)


@compared(
    1,
    "loads",
    presupposes=LEVELS_RIGHT,
    hint="whenever a loop moves on, its next tile or group is loaded, even if it is the only one there is",
)
def what_is_still_there_is_loaded(submission: Submission) -> Iterator[Arguments]:
    """`loads` counts what is loaded again although it happens to be there still."""
    return lasting_groups(submission)


@compared(
    2,
    "duration",
    hint="it takes the longer of two times if it never waits, their sum if it always does; where between them is it?",
)
def time_is_between_the_bounds(submission: Submission) -> Iterator[Arguments]:
    """`duration` lies between the time of a nest that never waits and that of one that always waits."""
    for waiting in (0.0, 1.0, *submission.rng.uniform(0.2, 0.8, 2).tolist()):
        reading, multiplying = submission.rng.uniform(1e-3, 2e-3), submission.rng.uniform(3e-3, 5e-3)
        for reads in (1, int(submission.rng.integers(6, 10))):  # takes less time than multiplying, and more
            yield reads, float(reading), float(multiplying), waiting


P4_3 = Task(
    "P4.3",
    "Traffic by hand",
    seconds=30,
    varies=(LOADS_KEYS,),
    libraries=NESTS,
    minutes=30,
    builds_on=("P4.2",),
)
