"""Submissions for the fake grader, and the command `mlhood grade` with a grader of the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.tools.grading import calls
from tests.tools.grading.variants import Variant

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def use_grader(patch: pytest.MonkeyPatch, grader: str) -> None:
    """Let the bench call `mlhood grade` with this grader."""
    path = os.environ.get("PYTHONPATH")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *([path] if path else [])]))
    patch.setattr(calls, "GRADE", (sys.executable, str(HERE / "fake_grade.py"), grader, "grade"))


def some(count: int, word: str = "slow") -> list[Variant]:
    """Return submissions, every second of which loses a check of its second task."""
    return [_variant(i, word) for i in range(count)]


def _variant(index: int, word: str) -> Variant:
    lost = index % 2 == 1
    text = f"P1 {word} {'lose-P1.2 ' if lost else ''}s{index:04}"
    return Variant(f"s{index:04}", "text", text.encode(), frozenset({("P1.2", "second")} if lost else ()))
