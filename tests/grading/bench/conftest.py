from __future__ import annotations

import pytest

from tests.grading.bench import fakes


@pytest.fixture
def marked_by(monkeypatch):
    """Let what the bench calls mark by a marker of the tests."""
    return lambda marker: fakes.use_marker(monkeypatch, marker)


@pytest.fixture
def fake(marked_by):
    marked_by("tests.grading.batch.fake_grader:make")
