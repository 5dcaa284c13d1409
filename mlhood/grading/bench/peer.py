"""The same notebooks graded by nbgrader and by us, in turns on one machine.

nbgrader gets what it needs to do the same: a course of its own settings but for the time that a cell may take, and a
release that it has made itself. Both are called as an instructor calls them, from the start of the program to its end.
nbgrader runs a notebook once, in a kernel with our rights, and its check cells judge in there; we run it in a sandbox,
judge it from outside, and do not run the check cells.
"""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mlhood.errors import GradingError
from mlhood.grading.batch.grade_class import GRADEBOOK
from mlhood.grading.bench.calls import Say, call
from mlhood.grading.bench.variants import Variant
from mlhood.grading.bench.verdict import verdict
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.records import records
from mlhood.measure.ratio import Ratio, median_ratio

MOST_RATIO = 0.6
NBGRADER = "nbgrader"
CONFIG = """c = get_config()
c.CourseDirectory.course_id = "course"
c.Execute.timeout = 300  # as the course's README asks: 30 seconds do not train a network on every machine
c.NbGrader.logfile = ""
"""
SCORES = """
SELECT student.id, sum(coalesce(grade.manual_score, grade.auto_score, 0)) FROM grade
JOIN submitted_notebook ON grade.notebook_id = submitted_notebook.id
JOIN submitted_assignment ON submitted_notebook.assignment_id = submitted_assignment.id
JOIN student ON submitted_assignment.student_id = student.id GROUP BY student.id
"""
Scores = dict[str, float]


@dataclass
class Versus:
    """Seconds of each side, part by part, and the students to whom the sides gave different points.

    Args:
        sides: Names of the sides: nbgrader's, and ours by their number of jobs.
        sizes: Submissions of each part.
    """

    sides: tuple[str, ...]
    sizes: list[int] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)

    def ratio(self, side: str) -> Ratio | None:
        """Our time to nbgrader's: of all parts together, with the interval of the parts' median ratio."""
        pairs = list(zip(self.seconds.get(side, []), self.seconds.get(NBGRADER, []), strict=False))
        if not pairs:
            return None
        ours, theirs = zip(*pairs, strict=True)
        parts = median_ratio(ours, theirs, paired=True)
        return Ratio(sum(ours) / sum(theirs), parts.low, parts.high)

    @property
    def held(self) -> bool:
        """Whether the quickest side of ours was quick enough, and all points agree."""
        ratios = [ratio.value for side in self.sides if side != NBGRADER and (ratio := self.ratio(side))]
        return min(ratios, default=1.0) <= MOST_RATIO and not self.differing

    def text(self) -> str:
        """As people read it."""
        if not self.seconds:
            return "nothing was measured"
        rows = [_row(self, side) for side in self.sides if side in self.seconds]
        lines = [pd.DataFrame(rows).to_string(index=False)]
        lines.append(f"points that differ: {len(self.differing) or 'none'}")
        lines += [f"  {one}" for one in self.differing]
        promise = f"the quickest of ours takes at most {MOST_RATIO} of nbgrader's time, and the points are the same"
        lines.append(verdict(promise, self.held))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        ratios = {side: ratio for side in self.sides if side != NBGRADER and (ratio := self.ratio(side))}
        return {
            "sizes": self.sizes,
            "seconds": self.seconds,
            "ratios": {side: [one.value, one.low, one.high] for side, one in ratios.items()},
            "differing": self.differing,
            "held": self.held,
        }


def _row(versus: Versus, side: str) -> dict[str, object]:
    seconds = versus.seconds[side]
    graded = sum(versus.sizes[: len(seconds)])
    return {
        "side": side,
        "notebooks": graded,
        "seconds": f"{sum(seconds):.1f}",
        "of each part": " ".join(f"{one:.1f}" for one in seconds),
        "s a notebook": f"{sum(seconds) / graded:.1f}",
        "of nbgrader's": "" if side == NBGRADER else str(versus.ratio(side) or ""),
    }


def require_nbgrader() -> None:
    """See that nbgrader is there.

    Raises:
        GradingError: It is not.
    """
    if importlib.util.find_spec("nbgrader") is None:
        raise GradingError(
            "nbgrader is not installed, so there is nothing to compare with",
            expected="nbgrader 0.9.5 or newer",
            todo='install it: pip install -e ".[test]"',
        )


@dataclass(frozen=True)
class Course:
    """A course of nbgrader's: a folder with a release of one assignment, and what was handed in for it."""

    folder: Path
    assignment: str

    @property
    def submitted(self) -> Path:
        """Folder of the submissions."""
        return self.folder / "submitted"


def course(folder: Path, master: Path, handed: Sequence[Variant]) -> Course:
    """Make a course in a new folder.

    Args:
        folder: Where.
        master: A master notebook; its name is the assignment's.
        handed: The submissions.

    Raises:
        GradingError: nbgrader is missing, or does not take the notebook.
    """
    require_nbgrader()
    made = Course(folder, master.stem)
    source = folder / "source" / made.assignment
    source.mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    (source / f"{made.assignment}.ipynb").write_bytes(master.read_bytes())
    _nbgrader(folder, "generate_assignment", made.assignment)
    for one in handed:
        place = made.submitted / one.student / made.assignment
        place.mkdir(parents=True)
        (place / f"{made.assignment}.ipynb").write_bytes(one.content)
    return made


def autograde(made: Course) -> float:
    """Let nbgrader grade all that was handed in; the seconds that it takes.

    Raises:
        GradingError: It fails.
    """
    began = time.perf_counter()
    _nbgrader(made.folder, "autograde", made.assignment)
    return time.perf_counter() - began


def _nbgrader(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "nbgrader", *arguments]
    tools = str(Path(sys.executable).parent)  # nbgrader calls alembic by its bare name
    environment = os.environ | {"PATH": os.pathsep.join([tools, os.environ.get("PATH", "")])}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise GradingError(
            f"`nbgrader {arguments[0]}` has failed",
            where=folder,
            expected="exit code 0",
            got=f"{done.returncode}: {done.stderr[-1500:]}",
        )


def their_scores(made: Course) -> Scores:
    """Points by student, from nbgrader's gradebook."""
    with closing(sqlite3.connect(made.folder / "gradebook.db")) as base:
        return dict(base.execute(SCORES).fetchall())


def our_scores(gradebook: Path) -> Scores:
    """Points by student, from ours."""
    with Gradebook(gradebook, must_exist=True) as book:
        return {record.student: record.earned for record in records(book)}


@dataclass(frozen=True)
class Sides:
    """What is compared: a master notebook, and our numbers of jobs."""

    master: Path
    jobs: tuple[int, ...] = (1, 2)

    @property
    def names(self) -> tuple[str, ...]:
        """nbgrader's name and ours."""
        return (NBGRADER, *(f"mlhood --jobs {jobs}" for jobs in self.jobs))


def compare(versus: Versus, sides: Sides, parts: Sequence[Sequence[Variant]], place: Path, say: Say) -> None:
    """Let all sides grade part after part, in an order that turns round; `versus` takes up what comes of it.

    Args:
        versus: Keeps what there is after Ctrl-C, too.
        sides: Who.
        parts: The submissions of each part.
        place: An empty folder.
        say: Told how it goes.

    Raises:
        GradingError: nbgrader is missing, or a side could not do its work.
    """
    for number, handed in enumerate(parts, start=1):
        made = course(place / f"part-{number}", sides.master, handed)
        versus.sizes.append(len(handed))
        _part(versus, sides, made, say, turned=number % 2 == 0)


def warm_up(sides: Sides, first: Variant, place: Path, say: Say) -> None:
    """Let both grade a notebook untimed, so that nobody pays for files that were never read.

    Args:
        sides: Who.
        first: The notebook.
        place: An empty folder.
        say: Told how it goes.

    Raises:
        GradingError: nbgrader is missing, or a side could not do its work.
    """
    say("warming up, untimed")
    made = course(place / "warm-up", sides.master, [first])
    autograde(made)
    _ours(sides.jobs[0], made, place / "warm-up-graded", say)


def _part(versus: Versus, sides: Sides, made: Course, say: Say, *, turned: bool) -> None:
    found: dict[str, Scores] = {}
    turns = list(zip(sides.names, (0, *sides.jobs), strict=True))
    for name, jobs in reversed(turns) if turned else turns:
        out = made.folder.with_name(f"{made.folder.name}-graded-{jobs}")
        seconds = _ours(jobs, made, out, say) if jobs else autograde(made)
        versus.seconds.setdefault(name, []).append(seconds)
        found[name] = our_scores(out / GRADEBOOK) if jobs else their_scores(made)
        say(f"{made.folder.name}: {name}: {seconds:.1f} s")
    versus.differing += [
        f"{made.folder.name}, {student}: {theirs:g} by nbgrader, {found[name].get(student)} by {name}"
        for name in sides.names[1:]
        for student, theirs in found[NBGRADER].items()
        if found[name].get(student) != theirs
    ]


def _ours(jobs: int, made: Course, out: Path, say: Say) -> float:
    arguments = [made.submitted, "--out", out, "--jobs", jobs, "--format-hint", "nbgrader"]
    return call(arguments, say).seconds
