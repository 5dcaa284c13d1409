"""Checks of P4.3: how many tiles are loaded into each level of memory.

A level loads what it holds whenever the loop that needs it starts an iteration, see `reference.loads`. Where groups are
neither single tiles nor all there are, memories with least-recently-used replacement arrive at the same counts.
"""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.projects.p4.reference import LEVELS, loads
from mlhood.grading.variants.parameter import Parameter

Sizes = tuple[int, int, int, int]
# what the two numbers of each level count, of each kind of tile
COUNTED = Parameter("counted", ("the tiles loaded", "the tiles loaded again", "the loads of each tile"))
LOADS_KEYS = Parameter("loads_keys", (LEVELS, (1, 2, 3), ("into L1", "into L2", "into L3"), ("near", "middle", "far")))


def full_groups(submission: Submission) -> list[Sizes]:
    """Draw stationary and streamed tiles, k2 and k3 such that all groups are full."""
    cases = []
    for groups3 in (2, 3, 4):
        k2, k3 = (int(size) for size in submission.rng.permutation([3, 4, 5, 7])[:2])
        cases.append((groups3 * k3, int(submission.rng.integers(2, 6)) * k2, k2, k3))
    return cases


def partial_groups(submission: Submission) -> list[Sizes]:
    """Likewise, but the last group of each kind is smaller, though of at least two tiles."""
    cases = []
    for groups3 in (1, 2, 3):
        k2, k3 = (int(size) for size in submission.rng.permutation([4, 5, 6, 7])[:2])
        groups2 = int(submission.rng.integers(1, 4))
        staying = groups3 * k3 + int(submission.rng.integers(2, k3))
        passing = groups2 * k2 + int(submission.rng.integers(2, k2))
        cases.append((staying, passing, k2, k3))
    return cases


def lasting_groups(submission: Submission) -> list[Sizes]:
    """Likewise, but a tile or a group that is loaded is still there from before: groups of one tile, or of all."""
    first, second, k2, k3 = (int(size) for size in submission.rng.permutation(np.arange(3, 9))[:4])
    return [
        (first * k3, k2, k2, k3),  # one group of streamed tiles
        (first * k3, k2 - 1, k2 + 2, k3),  # not even a full one
        (first, second * k2, k2, 1),  # groups of one stationary tile
        (first, second, 1, 1),
        (k3, second * k2, k2, k3),  # one group of stationary tiles
        (1, 1, k2, k3),
    ]


def _given(sizes: Sizes) -> str:
    return ", ".join(f"{name} {size}" for name, size in zip(("stationary", "streamed", "k2", "k3"), sizes, strict=True))


def _loads(submission: Submission, sizes: Sizes, level: str) -> tuple[int, int]:
    """Return the student's `loads` of a level."""
    key = submission.parameters.loads_keys[LEVELS.index(level)]
    with expect.case(_given(sizes)):
        what = f"what `loads` returns for {key}"
        pair = expect.mapping(submission.call("loads", *sizes), (key,), "what `loads` returns")[key]
        pair = expect.sequence(pair, tuple, what)
        expect.equal(len(pair), 2, f"the wrong number of items in {what}")
    return expect.integer(pair[0], what), expect.integer(pair[1], what)


def _right_loads(submission: Submission, sizes: Sizes, level: str) -> tuple[int, int]:
    return loads(*sizes, counted=submission.parameters.counted)[level]


def _check_level(submission: Submission, level: str, hint: str) -> None:
    for sizes in full_groups(submission):
        got, want = _loads(submission, sizes, level), _right_loads(submission, sizes, level)
        if got == want[::-1] != want:
            hint = "the stationary tiles come first, then the streamed tiles"
        if got == loads(*sizes)[level] != want:
            hint = f"these are the tiles loaded; the text asks for {submission.parameters.counted}"
        _check_equal(got, want, level, sizes, hint)


def _check_equal(got: tuple[int, int], want: tuple[int, int], level: str, sizes: Sizes, hint: str) -> None:
    expected, shown = f"{want[0]} stationary, {want[1]} streamed", f"{got[0]} and {got[1]}"
    what = f"`loads` has the wrong number of tiles loaded into {level}"
    expect.true(got == want, what, expected=expected, got=shown, given=_given(sizes), hint=hint)


@points(2)
def tiles_into_l1(submission: Submission) -> None:
    """`loads` counts {{ counted }} into L1, which holds one tile of each kind."""
    hint = "which loop of the nest brings another tile of each kind, and how often does it begin an iteration?"
    _check_level(submission, "L1", hint)


@points(2)
def tiles_into_l2(submission: Submission) -> None:
    """`loads` counts {{ counted }} into L2, which holds one stationary tile and a group of k2 streamed tiles."""
    hint = "when does a group of streamed tiles begin, and how many stationary tiles does it meet before the next one?"
    _check_level(submission, "L2", hint)


@points(2)
def tiles_into_l3(submission: Submission) -> None:
    """`loads` counts {{ counted }} into L3, which also holds a group of k3 stationary tiles."""
    hint = "how often does a group of stationary tiles begin, and how many groups of streamed tiles pass it?"
    _check_level(submission, "L3", hint)


@points(2)
def last_groups_count(submission: Submission) -> None:
    """`loads` counts groups that are not full."""
    levels = [level for level in LEVELS if _right(submission, level)]  # the others have lost points above already
    expect.true(bool(levels), "no level of `loads` is right, even where all groups are full")
    hint = "a group that is not full is a group, with fewer tiles"
    for sizes in partial_groups(submission):
        for level in levels:
            _check_equal(_loads(submission, sizes, level), _right_loads(submission, sizes, level), level, sizes, hint)


@points(2)
def what_is_still_there_is_loaded(submission: Submission) -> None:
    """`loads` counts what is loaded again although it happens to be there still."""
    levels = [level for level in LEVELS if _right(submission, level)]
    expect.true(bool(levels), "no level of `loads` is right, even where all groups are full")
    hint = "the text counts every beginning of an iteration, whatever was loaded last"
    for sizes in lasting_groups(submission):
        for level in levels:
            _check_equal(_loads(submission, sizes, level), _right_loads(submission, sizes, level), level, sizes, hint)


def _right(submission: Submission, level: str) -> bool:
    try:
        return all(
            _loads(submission, sizes, level) == _right_loads(submission, sizes, level)
            for sizes in full_groups(submission)
        )
    except expect.CheckFailed as failure:
        if "not written" in failure.what:
            raise
        return False


TASKS = (
    Task(
        "P4.3",
        "Traffic by hand",
        checks=(tiles_into_l1, tiles_into_l2, tiles_into_l3, last_groups_count, what_is_still_there_is_loaded),
        seconds=30,
        varies=(COUNTED, LOADS_KEYS),
        libraries=NESTS,
        minutes=30,
        builds_on=("P4.2",),
    ),
)
