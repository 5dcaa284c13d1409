from __future__ import annotations

import pytest

from tests.grading.conftest import course, solved  # noqa: F401 (fixtures)
from tests.grading.fake_class import FAKE_GRADER
from tests.tools.grading import fakes


@pytest.fixture
def graded_by(monkeypatch):
    """Let the bench call `mlhood grade` with a grader of the tests."""
    return lambda grader: fakes.use_grader(monkeypatch, grader)


@pytest.fixture
def fake(graded_by):
    graded_by(FAKE_GRADER)
