"""The groups of a class that get different versions: who is in which is drawn from the seed of the course."""

from __future__ import annotations

import hmac
import itertools
import string
from dataclasses import replace

from mlhood.errors import GradingError
from mlhood.files.csv_cells import csv_text
from mlhood.grading.gradebook.roster import COLUMNS, Roster

MAX_GROUPS = 100


def group_names(count: int) -> list[str]:
    """Return A, B, ..., Z, AA, AB, ...

    Raises:
        GradingError: There are fewer than two groups, or more than a hundred.
    """
    if not 2 <= count <= MAX_GROUPS:
        raise GradingError(
            "this cannot be the number of groups",
            where="--groups",
            expected=f"2 to {MAX_GROUPS}",
            got=count,
            todo="for one version for all, leave out --roster",
        )
    lengths = itertools.count(1)
    words = ("".join(word) for n in lengths for word in itertools.product(string.ascii_uppercase, repeat=n))
    return list(itertools.islice(words, count))


def deal(roster: Roster, count: int, seed: int) -> Roster:
    """Return the roster with a group for every student: the one it has, else the smallest so far, in a random order.

    Args:
        roster: Of the class.
        count: Number of groups.
        seed: Of the course. The same students are dealt alike each time; who comes later fills up the groups.

    Raises:
        GradingError: There are no students, or it cannot be the number of groups.
    """
    if not roster.students:
        raise GradingError("the roster has no students", where="--roster", expected="one row for each student")
    sizes = dict.fromkeys(group_names(count), 0) | {student.group: 0 for student in roster.students if student.group}
    groups = {student.student: student.group for student in roster.students if student.group}
    for group in groups.values():
        sizes[group] += 1
    for student in sorted((student.student for student in roster.students), key=lambda name: _order(seed, name)):
        if student not in groups:
            groups[student] = min(sizes, key=lambda group: sizes[group])
            sizes[groups[student]] += 1
    return Roster(replace(student, group=groups[student.student]) for student in roster.students)


def _order(seed: int, student: str) -> bytes:
    return hmac.digest(str(seed).encode(), f"group of {student}".encode(), "sha256")


def roster_csv(roster: Roster) -> str:
    """Return a roster as CSV, as `read_roster` reads it."""
    return csv_text([COLUMNS, *([getattr(student, column) for column in COLUMNS] for student in roster.students)])
