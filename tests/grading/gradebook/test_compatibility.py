"""A gradebook written by an earlier version can be read, exported, and graded again."""

from __future__ import annotations

import contextlib
import csv
import io
import sqlite3
from pathlib import Path

import pytest

from mlhood.errors import OutputError
from mlhood.grading.checks.marks import ManualMark
from mlhood.grading.exporters.formats import plain_csv
from mlhood.grading.gradebook import schema
from mlhood.grading.gradebook.gradebook import Gradebook, MarkedItem
from mlhood.grading.gradebook.records import records, unassigned
from mlhood.grading.gradebook.schema import APPLICATION, EARLIER, VERSION

DUMP = Path(__file__).with_name("schema_1.sql")
# as the earlier version graded them: `gina` killed the worker that was to find its project
TEXTS = {"ada": "P1", "bob": "P1 lose-P1.2", "carl": "P1 refuse", "dora": "P1 break", "gina": "P1 die-looking"}
SCORES = {"ada": ("done", "27"), "bob": ("done", "26.5"), "carl": ("refused", "0"), "dora": ("failed", "0")}


@pytest.fixture
def earlier(fake_class):
    """A class with its gradebook as an earlier version left them."""
    fake_class.submit(**TEXTS).out.mkdir()
    execute(fake_class.gradebook, DUMP.read_text(encoding="utf-8"))
    execute(fake_class.gradebook, f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {EARLIER};")
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


def test_a_grading_that_the_earlier_version_left_unfinished_is_finished(earlier):
    execute(
        earlier.gradebook,
        "UPDATE gradings SET state = 'open' WHERE state = 'done';"
        " DELETE FROM check_results WHERE task <> 'P1.1'; DELETE FROM task_results WHERE task <> 'P1.1';"
        " UPDATE attempts SET outcome = 'running', ended = NULL WHERE id = 7;",
    )
    with Gradebook(earlier.gradebook) as book:
        assert {len(book.grading(entry.key).tasks) for entry in book.entries() if entry.key} == {0, 1}
    earlier.grade()
    assert scores(earlier.gradebook) == SCORES


def test_an_interrupted_migration_leaves_the_earlier_version(earlier, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATION", (*schema.MIGRATION, "CREATE TABLE manual_marks (x)"))
        with pytest.raises(OutputError, match="cannot be opened"):
            Gradebook(earlier.gradebook)
    assert version(earlier.gradebook) == EARLIER
    assert scores(earlier.gradebook) == SCORES
    assert version(earlier.gradebook) == VERSION


def test_its_tables_become_those_of_a_new_gradebook(earlier, tmp_path):
    for path in (earlier.gradebook, tmp_path / "new"):
        Gradebook(path).close()
    assert columns(earlier.gradebook) == columns(tmp_path / "new")


def test_points_given_by_hand_stay(earlier):
    with Gradebook(earlier.gradebook) as book:
        assert list(book.manual_marks().items()) == [(MarkedItem("bob", "P1.4"), ManualMark(2.5, "good"))]


def execute(gradebook: Path, script: str) -> None:
    with contextlib.closing(sqlite3.connect(gradebook)) as connection:
        connection.executescript(script)


def version(gradebook: Path) -> int:
    with contextlib.closing(sqlite3.connect(gradebook)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def columns(gradebook: Path) -> list[tuple]:
    """Return name, type, default and place in the key of the columns of every table."""
    query = (
        'SELECT tables.name, c.name, c.type, c."notnull", c.dflt_value, c.pk'
        " FROM sqlite_master AS tables, pragma_table_info(tables.name) AS c WHERE tables.type = 'table' ORDER BY 1, 2"
    )
    with contextlib.closing(sqlite3.connect(gradebook)) as connection:
        return connection.execute(query).fetchall()
