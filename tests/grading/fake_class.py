"""A class whose submissions the fake grader grades, for tests of the batch and of what comes after it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from mlhood.grading.batch import executor
from mlhood.grading.batch.grade_class import GradeOptions, grade_class

ROOT = Path(__file__).parents[2]
FAKE = "tests.grading.batch.fake_grader"
SYNTHETIC = "tests.grading.batch.synthetic_worker"


class RecordingObserver:
    """Records what it is notified of."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.ended: list[tuple[str, str]] = []
        self.losses: list[str] = []
        self.stages: list[str] = []

    def stage(self, text):
        self.stages.append(text)

    def started(self, source): ...

    def begin_class(self, count, done):
        self.begun.append((count, done))

    def graded(self, source, state, reason):
        self.ended.append((source, state))

    def lost(self, source, reason):
        self.losses.append(reason)


class FakeClass:
    """A folder of submissions (flat layout), and calls that grade it with the fake grader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "class"
        self.out = folder / "out"
        self.log = folder / "log"
        self.folder.mkdir()
        self.observer = RecordingObserver()

    @property
    def gradebook(self) -> Path:
        return self.out / "gradebook.sqlite"

    def submit(self, **texts: str) -> FakeClass:
        for name, text in texts.items():
            (self.folder / f"{name}.ipynb").write_text(f"{text} {name}")
        return self

    def worker(self, name: str, source: str) -> str:
        """Write the program of a worker, and return the name of its module."""
        (self.folder.parent / f"{name}.py").write_text(f"from {FAKE} import *\n{source}\n")
        return name

    def grade(self, worker: str = FAKE, **options):
        self.observer = RecordingObserver()
        with mock.patch.object(executor, "WORKER", worker):
            return grade_class([self.folder], self.out, GradeOptions(sandbox=False, **options), self.observer)

    def skip_hangs(self, monkeypatch) -> None:
        """Advance the clock of time limits by an hour when a submission hangs; to be used with one worker only."""
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * len(self.events("hang")))
        monkeypatch.setattr(executor, "time", clock)

    def pace(self, tasks: int) -> None:
        """Let submissions with `paced` wait before a task once there are so many events of tasks."""
        Path(f"{self.log}.pace").write_text(str(tasks))

    def events(self, *kinds: str) -> list[dict]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] in kinds]
