"""Checks of P4.3: how many tiles come into each level of memory.

A level fetches what it holds when the loop that needs it begins a round, as `reference.loads` says. The sizes asked
about are such that memories which keep the tiles used last come to the same counts.
"""

from __future__ import annotations

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4.reference import LEVELS, loads

Sizes = tuple[int, int, int, int]


def full_groups(submission: Submission) -> list[Sizes]:
    """Staying and passing tiles, k2 and k3, where all groups are full."""
    found = []
    for groups3 in (2, 3, 4):
        k2, k3 = (int(size) for size in submission.rng.permutation([3, 4, 5, 7])[:2])
        found.append((groups3 * k3, int(submission.rng.integers(2, 6)) * k2, k2, k3))
    return found


def smaller_groups(submission: Submission) -> list[Sizes]:
    """Likewise, where the last group of each kind is smaller, but has two tiles."""
    found = []
    for groups3 in (1, 2, 3):
        k2, k3 = (int(size) for size in submission.rng.permutation([4, 5, 6, 7])[:2])
        groups2 = int(submission.rng.integers(1, 4))
        found.append((groups3 * k3 + int(submission.rng.integers(2, k3)),
                      groups2 * k2 + int(submission.rng.integers(2, k2)), k2, k3))  # fmt: skip
    return found


def _given(sizes: Sizes) -> str:
    return ", ".join(f"{name} {size}" for name, size in zip(("staying", "passing", "k2", "k3"), sizes, strict=True))


def _told(submission: Submission, sizes: Sizes, level: str) -> tuple[float, float]:
    """What `loads` says of a level."""
    given = _given(sizes)
    with expect.case(given):
        found = expect.mapping(submission.call("loads", *sizes), (level,), "what `loads` returns")[level]
    found = list(found) if isinstance(found, tuple) else found
    pair = expect.array(found, (2,), f"what `loads` says of {level}", given=given)
    return float(pair[0]), float(pair[1])


def _counts(submission: Submission, level: str, hint: str) -> None:
    for sizes in full_groups(submission):
        got, want = _told(submission, sizes, level), loads(*sizes)[level]
        if got == want[::-1] != want:
            hint = "the staying tiles come first, then the passing ones"
        _equal(got, want, level, sizes, hint)


def _equal(got: tuple[float, float], want: tuple[int, int], level: str, sizes: Sizes, hint: str) -> None:
    wanted, told = f"{want[0]} staying, {want[1]} passing", f"{got[0]:g} and {got[1]:g}"
    what = f"{level} gets other numbers of tiles"
    expect.true(got == want, what, expected=wanted, got=told, given=_given(sizes), hint=hint)


@points(3)
def tiles_into_l1(submission: Submission) -> None:
    """`loads` counts what comes into L1, which holds one tile of each kind."""
    hint = "a passing tile in every step; a staying tile comes anew with each group of passing tiles"
    _counts(submission, "L1", hint)


@points(3)
def tiles_into_l2(submission: Submission) -> None:
    """`loads` counts what comes into L2, which holds a staying tile and a group of k2 passing ones."""
    hint = "a group of passing tiles is fetched when it begins, and meets all staying tiles of a group then"
    _counts(submission, "L2", hint)


@points(3)
def tiles_into_l3(submission: Submission) -> None:
    """`loads` counts what comes into L3, which holds a group of k3 staying tiles as well."""
    hint = "a group of staying tiles is fetched once; for each such group all passing tiles come by"
    _counts(submission, "L3", hint)


@points(3)
def last_groups_count(submission: Submission) -> None:
    """`loads` counts groups that are not full."""
    judged = [level for level in LEVELS if _right(submission, level)]  # the others cost points above already
    expect.true(bool(judged), "no level is right where all groups are full")
    hint = "groups = ceil(tiles / k), that is -(-tiles // k)"
    for sizes in smaller_groups(submission):
        for level in judged:
            got, want = _told(submission, sizes, level), loads(*sizes)[level]
            _equal(got, want, level, sizes, hint)


def _right(submission: Submission, level: str) -> bool:
    try:
        return all(_told(submission, sizes, level) == loads(*sizes)[level] for sizes in full_groups(submission))
    except expect.CheckFailed as failure:
        if "not written" in failure.what:
            raise
        return False


TASKS = (
    Task(
        "P4.3",
        "Traffic by hand",
        checks=(
            tiles_into_l1,
            tiles_into_l2,
            tiles_into_l3,
            last_groups_count,
        ),
        forbidden=("mlhood.dataflow.slicing.traffic",),
    ),
)
