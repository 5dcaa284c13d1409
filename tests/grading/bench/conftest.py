from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fakes


@pytest.fixture
def marked_by(monkeypatch):
    """Let what the bench calls mark by a marker of the tests."""
    return lambda marker: fakes.use_marker(monkeypatch, marker)


@pytest.fixture
def fake(marked_by):
    marked_by("fake_marker:make")
