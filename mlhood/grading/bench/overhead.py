"""What grading a submission takes besides the submission: the overhead.

Overhead is the wall time from taking a notebook to the moment the next one can be taken, less two things: the execution
of the notebook's own cells, from busy to idle by the kernel's own clock; and the judgement of its checks, from asking
the first check of a task to its result, calls into the student's code included. So what counts is reading the file,
the sandbox and its kernel, the way of every cell there and back, keeping results, and clearing all away.

Three ways take turns: `warm`, a sandbox that was started while the one before it was at work, as a class has them;
`cold`, a sandbox that is started when the submission comes; `bare`, a kernel with our own rights and no sandbox, whose
imports count for the cells that ask for them.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from nbformat import NotebookNode

from mlhood.grading.bench import tiny
from mlhood.grading.bench.calls import Say
from mlhood.grading.bench.verdict import verdict
from mlhood.grading.checks.marks import TaskResult
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_notebook import Step, grade
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.sandbox.pool import Sandboxes
from mlhood.measure.ratio import interval

MOST_SECONDS = 1.0
WAYS = WARM, COLD, BARE = "warm", "cold", "bare"
LOOK_SECONDS = 0.3
QUIET_LOOKS = 3  # in a row without work of what has been started
MOST_PATIENCE = 60.0
IDLE = 0.05  # share of a core
Clock = Callable[[], float]


@dataclass(frozen=True)
class Subject:
    """What is graded: its name, how to read it, and the project that it solves."""

    name: str
    read: Callable[[], NotebookNode]
    project: Project


@dataclass(frozen=True)
class Timing:
    """One grading, in seconds.

    Args:
        whole: From taking the notebook to the end of all clearing away.
        cells: Execution of its cells.
        checks: Judgement of its checks.
        before: Until the first cell is sent.
        after: From the last result on.
        solved: Whether no check failed: a task that is not solved adds its stand-in to the overhead.
    """

    whole: float
    cells: float
    checks: float
    before: float
    after: float
    solved: bool

    @property
    def overhead(self) -> float:
        """What is left."""
        return self.whole - self.cells - self.checks

    @property
    def between(self) -> float:
        """The part of it between the first cell and the last result."""
        return self.overhead - self.before - self.after


@dataclass
class Overheads:
    """All gradings, by subject and way."""

    found: dict[tuple[str, str], list[Timing]] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[str, str, list[Timing]]]:
        """Subject, way and gradings, whatever their order was."""
        subjects = dict.fromkeys(subject for subject, _ in self.found)
        places = [(subject, way) for subject in subjects for way in WAYS]
        return [(*place, self.found[place]) for place in places if place in self.found]

    @property
    def held(self) -> bool:
        """Whether the median overhead with a warm sandbox is small enough, for every subject."""
        warm = [timings for _, way, timings in self.rows if way == WARM]
        return bool(warm) and all(_median(one, "overhead") <= MOST_SECONDS for one in warm)

    def text(self) -> str:
        """As people read it: medians in seconds, that of the overhead with its interval."""
        if not self.found:
            return "nothing was measured"
        rows = [_row(*row) for row in self.rows]
        notes = [
            f"note: {subject}, {way}: not every check passed, and stand-ins count as overhead"
            for subject, way, timings in self.rows
            if not all(one.solved for one in timings)
        ]
        promise = f"with a warm sandbox a median overhead of at most {MOST_SECONDS:g} s"
        return "\n".join([pd.DataFrame(rows).to_string(index=False), *notes, verdict(promise, self.held)])

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        rows = [
            {
                "subject": subject,
                "way": way,
                "overhead": _median(timings, "overhead"),
                "interval": interval([one.overhead for one in timings]),
                "timings": [asdict(one) | {"overhead": one.overhead} for one in timings],
            }
            for subject, way, timings in self.rows
        ]
        return {"rows": rows, "held": self.held}


def _row(subject: str, way: str, timings: list[Timing]) -> dict[str, object]:
    low, high = interval([one.overhead for one in timings])
    parts = {name: f"{_median(timings, name):.2f}" for name in ("before", "between", "after", "cells", "checks")}
    overhead = f"{_median(timings, 'overhead'):.2f} [{low:.2f}, {high:.2f}]"
    whole = f"{_median(timings, 'whole'):.1f}"
    return {"notebook": subject, "kernel": way, "n": len(timings), "overhead s": overhead, **parts, "whole": whole}


def _median(timings: list[Timing], name: str) -> float:
    return statistics.median(getattr(one, name) for one in timings)


def tiny_subject() -> Subject:
    """A notebook whose cells and checks take no time."""
    return Subject("tiny", tiny.notebook, tiny.TINY)


def subject_of(path: Path) -> Subject:
    """A notebook of the course, read anew for each grading.

    Raises:
        NotebookError: It is none.
    """
    return Subject(path.stem, lambda: read(path), project_of(read(path), path))


def measure(overheads: Overheads, subjects: list[Subject], rounds: int, say: Say) -> None:
    """Grade each subject in each way once a round, in an order drawn anew; `overheads` takes up what was measured.

    Args:
        overheads: Keeps what there is after Ctrl-C, too.
        subjects: What to grade.
        rounds: How often.
        say: Told how it goes.

    Raises:
        GradingError: There can be no sandbox on this machine, or no kernel.
        NotebookError: A notebook cannot be read any more.
    """
    draw = random.Random(0)  # noqa: S311 - orders, not secrets
    cold = Sandboxes(warm=False)
    with Sandboxes() as warm:
        sources: dict[str, Sandboxes | None] = {WARM: warm, COLD: cold, BARE: None}
        for number in range(rounds):
            for subject in subjects:
                for way in draw.sample(WAYS, len(WAYS)):
                    warm.prepare()
                    quieten()
                    timing = once(subject, sources[way])
                    overheads.found.setdefault((subject.name, way), []).append(timing)
                    say(f"round {number + 1} of {rounds}: {subject.name}, {way}: {timing.overhead:.2f} s")


def once(subject: Subject, sandboxes: Sandboxes | None, clock: Clock = time.perf_counter) -> Timing:
    """Grade a subject, and tell where the time went.

    Cells of the course that the notebook has changed or lost run as the course has them, and count as overhead.

    Raises:
        GradingError: There can be no sandbox, or no kernel.
        NotebookError: The notebook cannot be read.
    """
    ear = _Ear(clock)
    began = clock()
    notebook = subject.read()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # of a run before
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        grade(notebook, subject.project, Path(folder), sandbox=sandboxes, on_step=ear.step, on_result=ear.result)
    ended = clock()
    cells = sum(_seconds(cell) for cell in notebook.cells)
    return Timing(ended - began, cells, ear.checks, ear.first - began, ended - ear.last, ear.solved)


class _Ear:
    """Hears of every step and result of a grading, and when."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.first = self.last = self.checks = 0.0
        self.solved = True

    def step(self, step: Step) -> None:
        self.last = self.clock()
        self.first = self.first or self.last

    def result(self, result: TaskResult) -> None:
        """A task was judged since its step."""
        now = self.clock()
        self.checks += now - self.last
        self.last = now
        self.solved = self.solved and result.full


def _seconds(cell: NotebookNode) -> float:
    """How long the kernel was busy with a cell, by its own account; 0 for one that was not run."""
    told = cell.metadata.get("execution", {})
    if not {"iopub.status.busy", "iopub.status.idle"} <= set(told):
        return 0.0
    busy, idle = (datetime.fromisoformat(told[f"iopub.status.{state}"]) for state in ("busy", "idle"))
    return (idle - busy).total_seconds()


def quieten(clock: Clock = time.monotonic) -> None:
    """Wait until what this process has started is at rest: the imports of a sandbox that is warming up are done."""
    deadline, quiet = clock() + MOST_PATIENCE, 0
    used, since = _used(), clock()
    while quiet < QUIET_LOOKS and clock() < deadline:
        time.sleep(LOOK_SECONDS)
        now, looked = _used(), clock()
        at_rest = 0 <= now - used < IDLE * (looked - since)  # one that has ended takes its seconds with it
        quiet = quiet + 1 if at_rest else 0
        used, since = now, looked


def _used() -> float:
    """Seconds of processors that all that this process has started has used."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total
