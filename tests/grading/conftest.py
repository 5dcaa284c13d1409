from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import synthetic_course

from mlhood.grading.notebook import write
from mlhood.grading.projects import PROJECTS


@pytest.fixture
def course(monkeypatch):
    """The course with the synthetic project T9 in it."""
    monkeypatch.setitem(PROJECTS, "T9", synthetic_course.SYNTHETIC)
    return synthetic_course


@pytest.fixture
def solved(course, tmp_path) -> Path:
    path = tmp_path / "T9.ipynb"
    write(course.notebook(), path)
    return path


@pytest.fixture
def empty(course, tmp_path) -> Path:
    path = tmp_path / "T9.ipynb"
    write(course.notebook(course.EMPTY, "YOUR ANSWER HERE"), path)
    return path
