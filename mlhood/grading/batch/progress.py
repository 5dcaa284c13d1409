"""What the terminal shows while a class is graded: a bar with rate and time left, or lines where there is none."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mlhood.grading.intake.submitted_file import Handed

WORDS = {"done": "graded", "refused": "could not be run", "failed": "FAILED"}
LONGEST = 300


class BatchWatch:
    """Shows how a batch goes. Use it in a `with` statement."""

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

    def __enter__(self) -> BatchWatch:
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def begin(self, count: int, known: int) -> None:
        """Say how much there is to do."""
        self._began, self._count = time.monotonic(), count
        self._say(f"{count} notebooks to grade" + (f", {known} are graded already" if known else ""))
        if count:
            self._progress.start()
            self._task = self._progress.add_task("", total=count, rate="", failures="")

    def graded(self, handed: Handed, state: str, reason: str) -> None:
        """Count a notebook; say why, if it could not be graded."""
        self._done += 1
        self._failures += state == "failed"
        if state != "done" or not self._console.is_terminal:
            self._say(f"[{self._done}/{self._count}] {handed.source}: {WORDS[state]}{_because(reason)}; {self._rate()}")
        if self._task is not None:
            failures = f"{self._failures} failed" if self._failures else ""
            self._progress.update(self._task, completed=self._done, rate=self._rate(), failures=failures)

    def lost(self, handed: Handed, reason: str) -> None:
        """Say that a worker was lost."""
        self._say(f"{handed.source}: a worker was lost and is replaced{_because(reason)}")

    def _rate(self) -> str:
        minutes = (time.monotonic() - self._began) / 60
        return f"{self._done / minutes:.1f} a minute" if minutes else ""

    def _say(self, text: str) -> None:
        printable = "".join(one if one.isprintable() else "?" for one in text)
        self._console.print(escape(printable), highlight=False, soft_wrap=True)


def _because(reason: str) -> str:
    return f": {reason[:LONGEST]}" if reason else ""
