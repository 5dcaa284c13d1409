"""Submissions for the fake marker, and the command `mlhood grade` with a marker of the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mlhood.grading.bench import calls
from mlhood.grading.bench.variants import Variant

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def use_marker(patch: pytest.MonkeyPatch, marker: str) -> None:
    """Let what the bench calls mark by this marker."""
    known = os.environ.get("PYTHONPATH")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *([known] if known else [])]))
    patch.setattr(calls, "GRADE", (sys.executable, str(HERE / "fake_grade.py"), marker, "grade"))


def some(count: int, word: str = "slow") -> list[Variant]:
    """Submissions of which every second one loses a check of its second task, and says so."""
    return [_variant(number, word) for number in range(count)]


def _variant(number: int, word: str) -> Variant:
    lost = number % 2 == 1
    text = f"P1 {word} {'lose-P1.2 ' if lost else ''}s{number:04}"
    return Variant(f"s{number:04}", "text", text.encode(), frozenset({("P1.2", "second")} if lost else ()))
