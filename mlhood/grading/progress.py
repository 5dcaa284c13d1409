"""The progress of a command: a bar for each of its parts on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from mlhood.grading.execution.grade_notebook import CellStep

LINE_SECONDS = 3.0  # between lines about the same part, unless each step has its own

# called with what is done, how many are done and how many there are
Notify = Callable[[str, int, int], None]


def ignore(text: str, done: int, total: int) -> None:
    """Show nothing."""


class CommandProgress:
    """Shows what is being done: the steps of notebooks (`begin`, `step`, `end`), or of parts, as a `Notify`.

    Use it in a `with` statement.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        counts = BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left:")
        columns = TextColumn("{task.description}"), *counts, TimeRemainingColumn(), TextColumn("{task.fields[step]}")
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._part = ""
        self._began = self._printed = 0.0

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
            self._print(f"{text}: {done} of {total}")

    def begin(self, name: str, number: int, count: int) -> None:
        """Show that a notebook begins."""
        self._start(f"{name} ({number} of {count})" if count > 1 else name, None, "starting the kernel")
        self._print(self._part)

    def step(self, step: CellStep) -> None:
        """Show the step that begins."""
        self._update(total=step.total, completed=step.done, step=escape(step.text))
        elapsed = time.monotonic() - self._began
        self._print(f"{self._part} [{step.done + 1:>3}/{step.total}] {elapsed:5.1f} s  {step.text}")

    def end(self, run: object) -> None:
        """Show that the notebook has ended; the bar is full if all steps are done."""
        state = "done" if getattr(run, "complete", True) else "stopped"
        if state == "done" and (total := self._bar.tasks[-1].total) is not None:
            self._update(completed=total)
        self._update(step=state)
        self._bar.stop_task(self._bar.task_ids[-1])
        self._print(f"{self._part}: {state} after {time.monotonic() - self._began:.1f} s")

    def _start(self, part: str, total: int | None, step: str) -> None:
        self._part, self._began, self._printed = part, time.monotonic(), 0.0
        self._bar.start()
        self._bar.add_task(escape(part), total=total, step=step)

    def _update(self, **values: object) -> None:
        self._bar.update(self._bar.task_ids[-1], **values)  # pyright: ignore[reportArgumentType]

    def _print(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
            self._printed = time.monotonic()
