"""The progress display of `mlhood run`: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mlhood.grading.execution.grade_notebook import CellStep


class ProgressBar:
    """A bar: notebook, step n of m, time, and the first line of the cell. Use it in a `with` statement."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[notebook]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self._task = None

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def begin(self, name: str, number: int, count: int) -> None:
        """Start the bar of a notebook."""
        notebook = escape(f"{name} ({number} of {count})" if count > 1 else name)
        self._task = self._progress.add_task("starting the kernel", total=None, notebook=notebook)

    def step(self, step: CellStep) -> None:
        """Advance the bar."""
        if self._task is not None:
            self._progress.update(self._task, total=step.total, completed=step.done, description=escape(step.text))

    def end(self, run: object) -> None:
        """Stop the bar; it is full if all steps are done."""
        if self._task is None:
            return
        task = next(task for task in self._progress.tasks if task.id == self._task)
        complete = getattr(run, "complete", True)
        if complete and task.total is not None:
            self._progress.update(self._task, completed=task.total)
        self._progress.update(self._task, description="done" if complete else "stopped")
        self._progress.stop_task(self._task)


class ProgressLog:
    """One line per step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._name = ""
        self._began = time.monotonic()

    def __enter__(self) -> ProgressLog:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def begin(self, name: str, number: int, count: int) -> None:
        """Print the name of the notebook that begins."""
        self._name, self._began = name, time.monotonic()
        self._print(f"{name}: notebook {number} of {count}" if count > 1 else name)

    def step(self, step: CellStep) -> None:
        """Print the step that begins."""
        elapsed = time.monotonic() - self._began
        self._print(f"{self._name} [{step.done + 1:>3}/{step.total}] {elapsed:5.1f} s  {step.text}")

    def end(self, run: object) -> None:
        """Print that the notebook is done."""
        state = "done" if getattr(run, "complete", True) else "stopped"
        self._print(f"{self._name}: {state} after {time.monotonic() - self._began:.1f} s")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def progress_display(console: Console) -> ProgressBar | ProgressLog:
    """Return the display that suits the console."""
    return ProgressBar(console) if console.is_terminal else ProgressLog(console)
