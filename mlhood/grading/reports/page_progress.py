"""Progress of the commands that write pages about a class: a bar on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 3.0

# called with what is done, how many are done and how many there are
Notify = Callable[[str, int, int], None]


def ignore(text: str, done: int, total: int) -> None:
    """Show nothing."""


class PageProgress:
    """Shows what is being done; an object of it is a `Notify`. Use it in a `with` statement."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        self._bar = Progress(*columns, TextColumn("left:"), TimeRemainingColumn(), console=console)
        self._text = ""
        self._printed = 0.0

    def __enter__(self) -> PageProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def __call__(self, text: str, done: int, total: int) -> None:
        """Show that `done` of `total` are done."""
        begins, self._text = text != self._text, text
        if self._console.is_terminal:
            self._advance(done, total, begins)
        elif begins or time.monotonic() - self._printed >= LINE_SECONDS:
            self._console.print(f"{text}: {done} of {total}", markup=False, highlight=False, soft_wrap=True)
            self._printed = time.monotonic()

    def _advance(self, done: int, total: int, begins: bool) -> None:
        if begins:
            self._bar.start()
            self._bar.add_task(escape(self._text), total=total)
        self._bar.update(self._bar.task_ids[-1], completed=done)
