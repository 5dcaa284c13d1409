"""Grade the same notebooks with nbgrader and with `mlhood grade`, alternating on one machine.

nbgrader gets a course with its own default settings, except for the time limit of a cell, and a release that it has
made itself. Both are called as an instructor calls them and timed from the start of the program to its end. nbgrader
runs a notebook once, in a kernel with our rights, and its check cells run in that kernel; we run it in a sandbox, check
the answers from outside, and do not run the check cells.
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
from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE, Gradebook
from mlhood.grading.gradebook.records import records
from mlhood.measure.ratio import Ratio, median_ratio
from tests.tools.grading.calls import Log, run_grade, verdict
from tests.tools.grading.variants import Variant

MAX_RATIO = 0.6
NBGRADER = "nbgrader"
CONFIG = """c = get_config()
c.CourseDirectory.course_id = "course"
c.Execute.timeout = 300  # as in the README of the course: 30 seconds do not train a network on every machine
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
class NbgraderComparison:
    """The outcome: seconds of each grader for each part of the class, and the students whose points differ.

    Args:
        sides: Names of the graders: nbgrader, and ours with a number of jobs.
        sizes: Submissions of each part.
    """

    sides: tuple[str, ...]
    sizes: list[int] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)

    def ratio(self, side: str) -> Ratio | None:
        """Return our time relative to nbgrader's: of all parts together, with the interval of their median ratio."""
        pairs = list(zip(self.seconds.get(side, []), self.seconds.get(NBGRADER, []), strict=False))
        if not pairs:
            return None
        ours, theirs = zip(*pairs, strict=True)
        parts = median_ratio(ours, theirs, paired=True)
        return Ratio(sum(ours) / sum(theirs), parts.low, parts.high)

    @property
    def held(self) -> bool:
        """Whether our fastest setting was fast enough, and all points agree."""
        ratios = [ratio.value for side in self.sides if side != NBGRADER and (ratio := self.ratio(side))]
        return min(ratios, default=1.0) <= MAX_RATIO and not self.differing

    def text(self) -> str:
        """Return the outcome as text."""
        if not self.seconds:
            return "nothing was measured"
        rows = [_row(self, side) for side in self.sides if side in self.seconds]
        lines = [pd.DataFrame(rows).to_string(index=False)]
        lines.append(f"points that differ: {len(self.differing) or 'none'}")
        lines += [f"  {difference}" for difference in self.differing]
        promise = f"our fastest takes at most {MAX_RATIO} of nbgrader's time, and the points are the same"
        lines.append(verdict(promise, self.held))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        ratios = {side: ratio for side in self.sides if side != NBGRADER and (ratio := self.ratio(side))}
        return {
            "sizes": self.sizes,
            "seconds": self.seconds,
            "ratios": {side: [ratio.value, ratio.low, ratio.high] for side, ratio in ratios.items()},
            "differing": self.differing,
            "held": self.held,
        }


def _row(comparison: NbgraderComparison, side: str) -> dict[str, object]:
    seconds = comparison.seconds[side]
    graded = sum(comparison.sizes[: len(seconds)])
    return {
        "side": side,
        "notebooks": graded,
        "seconds": f"{sum(seconds):.1f}",
        "of each part": " ".join(f"{value:.1f}" for value in seconds),
        "s per notebook": f"{sum(seconds) / graded:.1f}",
        "of nbgrader's": "" if side == NBGRADER else str(comparison.ratio(side) or ""),
    }


def require_nbgrader() -> None:
    """Make sure that nbgrader is installed.

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
    """A course of nbgrader: a folder with a release of one assignment, and submissions for it."""

    folder: Path
    assignment: str

    @property
    def submitted(self) -> Path:
        """Folder of the submissions."""
        return self.folder / "submitted"


def make_course(folder: Path, master: Path, submissions: Sequence[Variant]) -> Course:
    """Make a course in a new folder, with an assignment that has the name of the master notebook.

    Raises:
        GradingError: nbgrader is missing, or does not accept the notebook.
    """
    require_nbgrader()
    course = Course(folder, master.stem)
    source = folder / "source" / course.assignment
    source.mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    (source / f"{course.assignment}.ipynb").write_bytes(master.read_bytes())
    _nbgrader(folder, "generate_assignment", course.assignment)
    for variant in submissions:
        submitted = course.submitted / variant.student / course.assignment
        submitted.mkdir(parents=True)
        (submitted / f"{course.assignment}.ipynb").write_bytes(variant.content)
    return course


def autograde(course: Course) -> float:
    """Let nbgrader grade all submissions; return the seconds that it takes.

    Raises:
        GradingError: It fails.
    """
    began = time.perf_counter()
    _nbgrader(course.folder, "autograde", course.assignment)
    return time.perf_counter() - began


def _nbgrader(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "nbgrader", *arguments]
    tools = str(Path(sys.executable).parent)  # nbgrader calls alembic without a path
    environment = os.environ | {"PATH": os.pathsep.join([tools, os.environ.get("PATH", "")])}
    process = subprocess.run(
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
    if process.returncode != 0:
        raise GradingError(
            f"`nbgrader {arguments[0]}` has failed",
            where=folder,
            expected="exit code 0",
            got=f"{process.returncode}: {process.stderr[-1500:]}",
        )


def their_scores(course: Course) -> Scores:
    """Return points by student, from nbgrader's gradebook."""
    with closing(sqlite3.connect(course.folder / "gradebook.db")) as connection:
        return dict(connection.execute(SCORES).fetchall())


def our_scores(gradebook: Path) -> Scores:
    """Return points by student, from our gradebook."""
    with Gradebook(gradebook, must_exist=True) as book:
        return {record.student: record.earned for record in records(book)}


@dataclass(frozen=True)
class Setting:
    """What is compared: a master notebook, and our numbers of jobs."""

    master: Path
    jobs: tuple[int, ...] = (1, 2)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the graders."""
        return (NBGRADER, *(f"mlhood --jobs {jobs}" for jobs in self.jobs))


def compare(
    comparison: NbgraderComparison, setting: Setting, parts: Sequence[Sequence[Variant]], folder: Path, log: Log
) -> None:
    """Let all graders grade part after part, in alternating order; `comparison` is filled, also after Ctrl-C.

    Raises:
        GradingError: nbgrader is missing, or a grader has failed.
    """
    for number, submissions in enumerate(parts, start=1):
        course = make_course(folder / f"part-{number}", setting.master, submissions)
        comparison.sizes.append(len(submissions))
        _grade_part(comparison, setting, course, log, backwards=number % 2 == 0)


def warm_up(setting: Setting, first: Variant, folder: Path, log: Log) -> None:
    """Let both grade a notebook untimed, so that all files have been read once.

    Raises:
        GradingError: nbgrader is missing, or a grader has failed.
    """
    log("warming up, untimed")
    course = make_course(folder / "warm-up", setting.master, [first])
    autograde(course)
    _grade(setting.jobs[0], course, folder / "warm-up-graded", log)


def _grade_part(comparison: NbgraderComparison, setting: Setting, course: Course, log: Log, *, backwards: bool) -> None:
    scores: dict[str, Scores] = {}
    part = course.folder.name
    graders = list(zip(setting.names, (0, *setting.jobs), strict=True))
    for name, jobs in reversed(graders) if backwards else graders:
        out = course.folder.with_name(f"{part}-graded-{jobs}")
        seconds = _grade(jobs, course, out, log) if jobs else autograde(course)
        comparison.seconds.setdefault(name, []).append(seconds)
        scores[name] = our_scores(out / GRADEBOOK_FILE) if jobs else their_scores(course)
        log(f"{part}: {name}: {seconds:.1f} s")
    comparison.differing += [
        f"{part}, {student}: {theirs:g} by nbgrader, {scores[name].get(student)} by {name}"
        for name in setting.names[1:]
        for student, theirs in scores[NBGRADER].items()
        if scores[name].get(student) != theirs
    ]


def _grade(jobs: int, course: Course, out: Path, log: Log) -> float:
    return run_grade([course.submitted, "--out", out, "--jobs", jobs, "--layout", "nbgrader"], log).seconds
