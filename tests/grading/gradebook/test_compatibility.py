"""A gradebook written by an earlier version can be read, exported, and graded again."""

from __future__ import annotations

import csv
import io
import sqlite3
from pathlib import Path

import pytest

from mlhood.grading.exporters.formats import plain_csv
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.records import records, unassigned
from mlhood.grading.gradebook.schema import APPLICATION

DUMP = Path(__file__).with_name("schema_1.sql")
# as the earlier version graded them: `gina` killed the worker that was to find its project
TEXTS = {"ada": "P1", "bob": "P1 lose-P1.2", "carl": "P1 refuse", "dora": "P1 break", "gina": "P1 die-looking"}
SCORES = {"ada": ("done", "27"), "bob": ("done", "26.5"), "carl": ("refused", "0"), "dora": ("failed", "0")}


@pytest.fixture
def earlier(fake_class):
    """A class with its gradebook as an earlier version left them."""
    fake_class.submit(**TEXTS).out.mkdir()
    connection = sqlite3.connect(fake_class.gradebook)
    connection.executescript(DUMP.read_text(encoding="utf-8"))
    connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;")
    connection.close()
    return fake_class


def scores(gradebook: Path) -> dict[str, tuple[str, str]]:
    with Gradebook(gradebook, must_exist=True) as book:
        rows = csv.DictReader(io.StringIO(plain_csv(records(book))))
    return {row["student_id"]: (row["status"], row["score"]) for row in rows}


def test_it_is_exported(earlier):
    assert scores(earlier.gradebook) == SCORES
    with Gradebook(earlier.gradebook) as book:
        assert [file.student for file in unassigned(book)] == ["gina"]


def test_it_is_graded_again(earlier):
    earlier.grade()
    assert scores(earlier.gradebook) == SCORES


def test_failed_attempts_of_the_earlier_version_are_reset_on_request(earlier):
    result = earlier.grade(again=True)
    assert result.unassigned == ()
    assert scores(earlier.gradebook) == SCORES | {"gina": ("done", "30")}
