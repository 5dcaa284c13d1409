from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mlhood.grading.bench import calls
from mlhood.grading.bench.variants import Variant

HERE = Path(__file__).parent
CLASSROOM = HERE.parent / "classroom"


@pytest.fixture
def marked_by(monkeypatch):
    """Let `mlhood grade` mark by a marker of the tests."""

    def use(marker: str) -> None:
        known = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(CLASSROOM), *([known] if known else [])]))
        monkeypatch.setattr(calls, "GRADE", (sys.executable, str(HERE / "fake_grade.py"), marker, "grade"))

    return use


@pytest.fixture
def fake(marked_by):
    marked_by("fake_marker:make")


@pytest.fixture
def submissions():
    """Submissions for the fake marker: every second one loses a check of its second task, and says so."""

    def make(count: int, word: str = "slow") -> list[Variant]:
        return [variant(number, word) for number in range(count)]

    return make


def variant(number: int, word: str) -> Variant:
    lost = number % 2 == 1
    text = f"P1 {word} {'lose-P1.2 ' if lost else ''}s{number:04}"
    return Variant(f"s{number:04}", "text", text.encode(), frozenset({("P1.2", "second")} if lost else ()))
