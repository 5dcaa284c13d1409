"""Progress of a class on the terminal: a bar with rate and remaining time, or lines where the output is a log."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mlhood.grading.intake.collect import SubmittedFile

LABELS = {"done": "graded", "refused": "could not be run", "failed": "FAILED"}
MAX_REASON = 300


class BatchProgress:
    """Shows the progress of a batch (see `batch.Observer`). Use it in a `with` statement."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("grading"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("left:"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[failures]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._began = time.monotonic()
        self._count = self._done = self._failures = 0

    def __enter__(self) -> BatchProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def begin(self, count: int, done: int) -> None:
        """Print how much there is to do, and start the bar."""
        self._began, self._count = time.monotonic(), count
        self._print(f"{count} notebooks to grade" + (f", {done} are graded already" if done else ""))
        if count:
            self._progress.start()
            self._task = self._progress.add_task("", total=count, rate="", failures="")

    def graded(self, submission: SubmittedFile, state: str, reason: str) -> None:
        """Count a notebook; print the reason if it could not be graded."""
        self._done += 1
        self._failures += state == "failed"
        if state != "done" or not self._console.is_terminal:
            result = f"{submission.source}: {LABELS[state]}{_suffix(reason)}"
            self._print(f"[{self._done}/{self._count}] {result}; {self._rate()}")
        if self._task is not None:
            failures = f"{self._failures} failed" if self._failures else ""
            self._progress.update(self._task, completed=self._done, rate=self._rate(), failures=failures)

    def lost(self, submission: SubmittedFile, reason: str) -> None:
        """Print that a worker was lost."""
        self._print(f"{submission.source}: a worker was lost and is replaced{_suffix(reason)}")

    def _rate(self) -> str:
        minutes = (time.monotonic() - self._began) / 60
        return f"{self._done / minutes:.1f} a minute" if minutes else ""

    def _print(self, text: str) -> None:
        printable = "".join(c if c.isprintable() else "?" for c in text)
        self._console.print(escape(printable), highlight=False, soft_wrap=True)


def _suffix(reason: str) -> str:
    return f": {reason[:MAX_REASON]}" if reason else ""
