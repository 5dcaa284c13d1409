"""Progress of a class: a bar with rate and remaining time on a terminal; lines where the output is a file or a log.

A log is never silent for long: while notebooks run, or a worker loads the course, a line every ten seconds says so.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mlhood.grading.intake.collect import SubmittedFile

LABELS = {"done": "graded", "refused": "could not be run", "failed": "FAILED"}
MAX_REASON = 300
HEARTBEAT_SECONDS = 10.0
TICK_SECONDS = 1.0
MAX_RUNNING = 4  # notebooks that a heartbeat names


@dataclass
class _Running:
    """A notebook that is being graded: since when, and its last task that is."""

    since: float = field(default_factory=time.monotonic)
    task: str = ""


class BatchProgress:
    """Shows the progress of a batch. Use it in a `with` statement."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
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
        self._began = self._stage_began = self._printed = time.monotonic()
        self._stage = ""
        self._count = self._done = self._failures = 0
        self._running: dict[str, _Running] = {}  # by source
        self._lock = threading.RLock()  # between this thread and the heartbeat
        self._ended = threading.Event()

    def __enter__(self) -> BatchProgress:
        if not self._console.is_terminal:
            threading.Thread(target=self._heartbeats, name="mlhood progress", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._progress.stop()

    def stage(self, text: str) -> None:
        """Print what is done before the first notebook is graded."""
        with self._lock:
            self._stage, self._stage_began = text, time.monotonic()
            self._print(text)

    def begin(self, count: int, done: int) -> None:
        """Print how many notebooks are to be graded and how many are already, and start the bar."""
        with self._lock:
            self._began, self._count, self._stage = time.monotonic(), count, ""
            self._print(f"{count} notebooks to grade" + (f", {done} are graded already" if done else ""))
        if count:
            self._progress.start()
            self._task = self._progress.add_task("grading", total=count, rate="", failures="")

    def started(self, submission: SubmittedFile) -> None:
        """Record that a worker grades this notebook from now on."""
        with self._lock:
            self._running[submission.source] = _Running()

    def task_graded(self, submission: SubmittedFile, task: str) -> None:
        """Record that a task of a notebook is graded."""
        with self._lock:
            if submission.source in self._running:
                self._running[submission.source].task = task

    def graded(self, submission: SubmittedFile, state: str, reason: str) -> None:
        """Count a notebook: `done`, `refused` or `failed`; print the reason if it could not be graded."""
        with self._lock:
            self._running.pop(submission.source, None)
            self._done += 1
            self._failures += state == "failed"
            if state != "done" or not self._console.is_terminal:
                result = f"{submission.source}: {LABELS[state]}{_suffix(reason)}"
                self._print(f"[{self._done}/{self._count}] {result}; {self._rate()}{self._remaining()}")
        if self._task is not None:
            failures = f"{self._failures} failed" if self._failures else ""
            self._progress.update(self._task, completed=self._done, rate=self._rate(), failures=failures)

    def lost(self, submission: SubmittedFile, reason: str) -> None:
        """Print that a worker was lost."""
        with self._lock:
            self._running.pop(submission.source, None)
            self._print(f"{submission.source}: a worker was lost and is replaced{_suffix(reason)}")

    def beat(self, now: float) -> None:
        """Print what is going on, if nothing has been printed for ten seconds; `now` is a time of `time.monotonic`."""
        with self._lock:
            if now - self._printed < HEARTBEAT_SECONDS:
                return
            if self._running:
                longest = sorted(self._running.items(), key=lambda item: item[1].since)
                names = [_running_text(source, running, now) for source, running in longest[:MAX_RUNNING]]
                more = [f"{len(longest) - MAX_RUNNING} more"] if len(longest) > MAX_RUNNING else []
                self._print(f"still grading, {self._done} of {self._count} done: {', '.join([*names, *more])}")
            elif self._stage:
                self._print(f"still {self._stage}: {duration(now - self._stage_began)}")
            elif self._done < self._count:
                self._print(f"still waiting for a worker, {self._done} of {self._count} done")

    def _heartbeats(self) -> None:
        with contextlib.suppress(OSError):  # nobody reads the output any more
            while not self._ended.wait(TICK_SECONDS):
                self.beat(time.monotonic())

    def _rate(self) -> str:
        minutes = (time.monotonic() - self._began) / 60
        return f"{self._done / minutes:.1f} a minute" if minutes else ""

    def _remaining(self) -> str:
        """Return an estimate of the time that the rest will take, at the rate so far."""
        left = self._count - self._done
        return f", about {duration((time.monotonic() - self._began) / self._done * left)} left" if left > 0 else ""

    def _print(self, text: str) -> None:
        printable = "".join(c if c.isprintable() else "?" for c in text)
        self._console.print(escape(printable), highlight=False, soft_wrap=True)
        self._printed = time.monotonic()


def duration(seconds: float) -> str:
    """Return a duration as a person says it: `50 s`, `12 min`, `3 h 5 min`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _running_text(source: str, running: _Running, now: float) -> str:
    state = f"{running.task} is graded" if running.task else "no task is graded yet"
    return f"{source} ({state}, {duration(now - running.since)})"


def _suffix(reason: str) -> str:
    return f": {reason[:MAX_REASON]}" if reason else ""
