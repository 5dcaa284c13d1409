"""The progress of a command: a bar for each of its parts on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mlhood.errors import printable

if TYPE_CHECKING:
    from mlhood.grading.execution.grade_notebook import CellStep

LINE_SECONDS = 3.0  # between lines about the same part, unless each step has its own
LABELS = {"done": "graded", "refused": "could not be run", "failed": "FAILED"}
MAX_REASON = 300

# called with what is done, how many are done and how many there are
Notify = Callable[[str, int, int], None]


def ignore(text: str, done: int, total: int) -> None:
    """Show nothing."""


class CommandProgress:
    """Shows what is being done: parts (as a `Notify`), the steps of notebooks, or the notebooks of a class.

    Use it in a `with` statement. It writes to standard error, unless another console is given.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console = console or Console(stderr=True)
        counts = BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left:")
        columns = TextColumn("{task.description}"), *counts, TimeRemainingColumn(), TextColumn("{task.fields[step]}")
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._part = ""
        self._began = self._printed = 0.0
        self._failures = 0

    def __enter__(self) -> CommandProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, text: str, done: int, total: int) -> None:
        """Show that `done` of `total` are done."""
        if text != self._part:
            self._start(text, total, "")
        self._update(total=total, completed=done)
        if time.monotonic() - self._printed >= LINE_SECONDS:
            self._log(f"{text}: {done} of {total}")

    # -- the steps of notebooks

    def begin(self, name: str, number: int, count: int) -> None:
        """Show that a notebook begins."""
        self._start(f"{name} ({number} of {count})" if count > 1 else name, None, "starting the kernel")
        self._log(self._part)

    def step(self, step: CellStep) -> None:
        """Show the step that begins."""
        self._update(total=step.total, completed=step.done, step=escape(step.text))
        elapsed = time.monotonic() - self._began
        self._log(f"{self._part} [{step.done + 1:>3}/{step.total}] {elapsed:5.1f} s  {step.text}")

    def end(self, run: object) -> None:
        """Show that the notebook has ended; the bar is full if all steps are done."""
        state = "done" if getattr(run, "complete", True) else "stopped"
        if state == "done" and (total := self._bar.tasks[-1].total) is not None:
            self._update(completed=total)
        self._update(step=state)
        self._bar.stop_task(self._bar.task_ids[-1])
        self._log(f"{self._part}: {state} after {time.monotonic() - self._began:.1f} s")

    # -- the notebooks of a class

    def stage(self, text: str) -> None:
        """Print what is done before or after the notebooks are graded."""
        self._print(text)

    def begin_class(self, count: int, done: int) -> None:
        """Print how many notebooks are to be graded and how many are already, and start the bar."""
        if count:
            self._start("grading", count, "")
        self._print(f"{count} notebooks to grade" + (f", {done} are graded already" if done else ""))

    def started(self, source: str) -> None:
        """Show that a worker begins to grade this notebook."""
        self._log(f"{source}: grading")

    def graded(self, source: str, state: str, reason: str) -> None:
        """Count a notebook: `done`, `refused` or `failed`; print the reason if it could not be graded."""
        self._failures += state == "failed"
        self._update(advance=1, step=f"{self._failures} failed" if self._failures else "")
        task = self._bar.tasks[-1]
        done, total = int(task.completed), int(task.total or 0)
        left = (time.monotonic() - self._began) / done * (total - done)
        if state != "done" or not self._console.is_terminal:
            result = f"{source}: {LABELS[state]}{_suffix(reason)}"
            self._print(f"[{done}/{total}] {result}" + (f"; about {duration(left)} left" if done < total else ""))

    def lost(self, source: str, reason: str) -> None:
        """Print that a worker was lost."""
        self._print(f"{source}: a worker was lost and is replaced{_suffix(reason)}")

    def _start(self, part: str, total: int | None, step: str) -> None:
        self._part, self._began, self._printed = part, time.monotonic(), 0.0
        self._bar.start()
        self._bar.add_task(escape(part), total=total, step=step)

    def _update(self, **values: object) -> None:
        self._bar.update(self._bar.task_ids[-1], **values)  # pyright: ignore[reportArgumentType]

    def _log(self, text: str) -> None:
        if not self._console.is_terminal:
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
        self._printed = time.monotonic()


def duration(seconds: float) -> str:
    """Return a duration as a person says it: `50 s`, `12 min`, `3 h 5 min`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _suffix(reason: str) -> str:
    return f": {reason[:MAX_REASON]}" if reason else ""
