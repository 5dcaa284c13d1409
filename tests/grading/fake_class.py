"""A class whose submissions the fake grader marks, for tests of the batch and of what comes after it."""

from __future__ import annotations

import json
from pathlib import Path

from mlhood.grading.batch.grade_class import Wishes, grade_class

ROOT = Path(__file__).parents[2]
FAKE = "tests.grading.batch.fake_grader:make"


class Told:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.ended: list[tuple[str, str]] = []
        self.losses: list[str] = []

    def begin(self, count, known):
        self.begun.append((count, known))

    def graded(self, handed, state, reason):
        self.ended.append((handed.source, state))

    def lost(self, handed, reason):
        self.losses.append(reason)


class Class:
    """A folder of submissions (flat), and calls that grade it with the fake marker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "class"
        self.out = folder / "out"
        self.log = folder / "log"
        self.folder.mkdir()
        self.told = Told()

    def hand_in(self, **texts: str) -> Class:
        for name, text in texts.items():
            (self.folder / f"{name}.ipynb").write_text(f"{text} {name}")
        return self

    def grade(self, **wishes):
        self.told = Told()
        return grade_class([self.folder], self.out, Wishes(**{"marker": FAKE, **wishes}), self.told)

    def events(self, *kinds: str) -> list[dict]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [one for one in map(json.loads, lines) if one["event"] in kinds]
