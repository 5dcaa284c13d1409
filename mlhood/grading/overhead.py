"""Measure the overhead of grading: the time that a submission takes besides its own cells and checks.

Overhead is the wall time from reading a notebook until the next one can be read, minus the execution of the notebook's
cells (from busy to idle, by the kernel's clock) and minus its checks (from the first check of a task to its result,
including calls into the student's code). What remains is reading the file, the sandbox and its kernel, the round trip
of every cell, the second run of the cells in bare kernels, storing results, and cleaning up.

Three modes alternate: `warm`, a sandbox that was started while the previous one was in use, as for a class; `cold`, a
sandbox that is started for the submission; `no sandbox`, a kernel with our rights, whose imports count as execution of
the cells that need them.
"""

from __future__ import annotations

import contextlib
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
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mlhood.grading.checks import expect
from mlhood.grading.checks.marks import TaskResult
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Project, Task, points
from mlhood.grading.execution.grade_notebook import CellStep, RunSettings, grade
from mlhood.grading.notebooks.notebook import check_source, project_of, read
from mlhood.grading.sandbox.kernel import SandboxPool
from mlhood.measure.ratio import interval

MAX_SECONDS = 1.0
MODES = WARM, COLD, UNSANDBOXED = "warm", "cold", "no sandbox"
SAMPLE_SECONDS = 0.3
IDLE_SAMPLES = 3  # in a row
MAX_WAIT_SECONDS = 60.0
IDLE = 0.05  # of a core


@points(10)
def doubles(submission: Submission) -> None:
    """`double` doubles numbers."""
    expect.equal(submission.call("double", 21), 42, "`double` is wrong")


TINY = Project("T1", "A tiny project", (Task("T1.1", "Double", (doubles,)),))


def tiny_notebook() -> NotebookNode:
    """Return a solved notebook of one task that takes no time, so that its grading time is all overhead."""
    book = new_notebook(metadata={"mlhood": {"project": TINY.id}})
    solution = new_code_cell("def double(x):\n    return 2 * x", id="T1-1-solution")
    check = new_code_cell(check_source("T1.1"), id="T1-1-check")
    for cell, role in ((solution, "solution"), (check, "check")):
        cell.metadata["mlhood"] = {"task": "T1.1", "role": role}
    book.cells = [new_markdown_cell("# Tiny"), new_code_cell("1 + 1"), solution, check]
    return book


@dataclass(frozen=True)
class Subject:
    """A notebook to grade: its name, how to read it, and its project."""

    name: str
    read: Callable[[], NotebookNode]
    project: Project


TINY_SUBJECT = Subject("tiny", tiny_notebook, TINY)


@dataclass(frozen=True)
class GradingTime:
    """One grading, in seconds.

    Args:
        whole: From reading the notebook to the end of cleaning up.
        cells: Execution of its cells.
        checks: Execution of its checks.
        before: Until the first cell is sent.
        after: From the last result on.
        solved: Whether no check failed: the fallback solution of a task that is not solved counts as overhead.
    """

    whole: float
    cells: float
    checks: float
    before: float
    after: float
    solved: bool

    @property
    def overhead(self) -> float:
        """All except cells and checks."""
        return self.whole - self.cells - self.checks

    @property
    def between(self) -> float:
        """The part of the overhead between the first cell and the last result.

        It may be slightly negative: a kernel becomes idle after its reply, so the end of a cell overlaps with what
        follows, and its clock is not ours.
        """
        return self.overhead - self.before - self.after


@dataclass
class Overheads:
    """All gradings, by subject and mode."""

    timings: dict[tuple[str, str], list[GradingTime]] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[str, str, list[GradingTime]]]:
        """Subject, mode and gradings, grouped by subject."""
        subjects = dict.fromkeys(subject for subject, _ in self.timings)
        keys = [(subject, mode) for subject in subjects for mode in MODES]
        return [(*key, self.timings[key]) for key in keys if key in self.timings]

    @property
    def held(self) -> bool:
        """Whether the median overhead with a warm sandbox is small enough, for every subject."""
        warm = [timings for _, mode, timings in self.rows if mode == WARM]
        return bool(warm) and all(_median(timings, "overhead") <= MAX_SECONDS for timings in warm)

    def text(self) -> str:
        """Return medians in seconds as text, that of the overhead with its confidence interval."""
        if not self.timings:
            return "nothing was measured"
        rows = [_row(*row) for row in self.rows]
        notes = [
            f"note: {subject}, {mode}: not every check passed, and fallback solutions count as overhead"
            for subject, mode, timings in self.rows
            if not all(timing.solved for timing in timings)
        ]
        promise = f"with a warm sandbox a median overhead of at most {MAX_SECONDS:g} s"
        return "\n".join(
            [pd.DataFrame(rows).to_string(index=False), *notes, f"{promise}: {'held' if self.held else 'MISSED'}"]
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all timings as plain data."""
        rows = [
            {
                "subject": subject,
                "way": mode,
                "overhead": _median(timings, "overhead"),
                "interval": interval([timing.overhead for timing in timings]),
                "timings": [asdict(timing) | {"overhead": timing.overhead} for timing in timings],
            }
            for subject, mode, timings in self.rows
        ]
        return {"rows": rows, "held": self.held}


def _row(subject: str, mode: str, timings: list[GradingTime]) -> dict[str, object]:
    low, high = interval([timing.overhead for timing in timings])
    parts = {name: f"{_median(timings, name):.2f}" for name in ("before", "between", "after", "cells", "checks")}
    overhead = f"{_median(timings, 'overhead'):.2f} [{low:.2f}, {high:.2f}]"
    whole = f"{_median(timings, 'whole'):.1f}"
    return {"notebook": subject, "kernel": mode, "n": len(timings), "overhead s": overhead, **parts, "whole": whole}


def _median(timings: list[GradingTime], name: str) -> float:
    return statistics.median(getattr(timing, name) for timing in timings)


def subject_of(path: Path) -> Subject:
    """Return a notebook of the course, which is read again for each grading.

    Raises:
        NotebookError: It is not one.
    """
    return Subject(path.stem, lambda: read(path), project_of(read(path), path))


def measure(overheads: Overheads, subjects: list[Subject], rounds: int, log: Callable[[str], None]) -> None:
    """Grade each subject in each mode once per round, in random order; `overheads` is filled, also after Ctrl-C.

    Raises:
        GradingError: This machine has no sandbox, or no kernel starts.
        NotebookError: A notebook can no longer be read.
    """
    rng = random.Random(0)  # noqa: S311 - orders, not secrets
    cold = SandboxPool(prewarm=False)
    with SandboxPool() as warm:
        sources: dict[str, SandboxPool | None] = {WARM: warm, COLD: cold, UNSANDBOXED: None}
        for number in range(1, rounds + 1):
            for subject in subjects:
                for mode in rng.sample(MODES, len(MODES)):
                    warm.start_next()
                    wait_until_idle()
                    timing = time_grading(subject, sources[mode])
                    overheads.timings.setdefault((subject.name, mode), []).append(timing)
                    log(f"round {number} of {rounds}: {subject.name}, {mode}: {timing.overhead:.2f} s")


def time_grading(subject: Subject, pool: SandboxPool | None) -> GradingTime:
    """Grade a subject, and return where the time went.

    Cells of the course that the notebook has changed or lost are run from the course's copy, and count as overhead.

    Raises:
        GradingError: No sandbox or no kernel starts.
        NotebookError: The notebook cannot be read.
    """
    recorder = _StepRecorder()
    began = time.perf_counter()
    notebook = subject.read()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # of an earlier run
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        settings = RunSettings(
            0, kernels=pool.kernel if pool else None, on_step=recorder.step, on_result=recorder.result
        )
        grade(notebook, subject.project, Path(folder), settings)
    ended = time.perf_counter()
    cells = sum(_seconds(cell) for cell in notebook.cells)
    before, after = recorder.first - began, ended - recorder.last
    return GradingTime(ended - began, cells, recorder.checks, before, after, recorder.solved)


class _StepRecorder:
    """Records the times of the steps and results of a grading."""

    def __init__(self) -> None:
        self.first = self.last = self.checks = 0.0
        self.solved = True
        self.done = -1

    def step(self, step: CellStep) -> None:
        if step.done == self.done:  # one more check of the same task
            return
        self.done = step.done
        self.last = time.perf_counter()
        self.first = self.first or self.last

    def result(self, result: TaskResult) -> None:
        """Count the time since the step of a task."""
        now = time.perf_counter()
        self.checks += now - self.last
        self.last = now
        self.solved = self.solved and result.full


def _seconds(cell: NotebookNode) -> float:
    """Return how long the kernel was busy with a cell, by its own clock; 0 for one that was not run."""
    times = cell.metadata.get("execution", {})
    if not {"iopub.status.busy", "iopub.status.idle"} <= set(times):
        return 0.0
    busy, idle = (datetime.fromisoformat(times[f"iopub.status.{state}"]) for state in ("busy", "idle"))
    return (idle - busy).total_seconds()


def wait_until_idle() -> None:
    """Wait until the descendants of this process are idle: a sandbox that is warming up has finished its imports."""
    deadline, idle_samples = time.monotonic() + MAX_WAIT_SECONDS, 0
    last_used, last_time = _cpu_seconds(), time.monotonic()
    while idle_samples < IDLE_SAMPLES and time.monotonic() < deadline:
        time.sleep(SAMPLE_SECONDS)
        used, now = _cpu_seconds(), time.monotonic()
        idle = 0 <= used - last_used < IDLE * (now - last_time)  # the sum decreases when a process ends
        idle_samples = idle_samples + 1 if idle else 0
        last_used, last_time = used, now


def _cpu_seconds() -> float:
    """Return the CPU time that all descendants of this process have used."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system
    return total
