from __future__ import annotations

import sqlite3
from datetime import UTC, datetime

import pytest

from mlhood.errors import GradingError, OutputError
from mlhood.grading.checks.marks import CheckResult, ManualMark, TaskResult
from mlhood.grading.gradebook.gradebook import Gradebook, MarkedItem, SubmissionEntry
from mlhood.grading.intake.collect import SubmittedFile
from tests.grading.batch.fake_grader import project

TIME = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def book(tmp_path):
    with Gradebook(tmp_path / "gradebook.sqlite") as opened:
        yield opened


def task(name: str = "P1.1", status: str = "passed") -> TaskResult:
    checks = (CheckResult("a", "A", 4.0, status, "why", {"got": "x"}),)
    return TaskResult(name, "Title", checks, ("note",))


def test_results_are_read_as_they_were_written(book):
    book.open_grading("key", "sha", "P1")
    book.put_task("key", task("P1.11"))
    book.put_task("key", task("P1.2", "undecided"))
    book.close_grading("key", "done", seconds=2.5)
    grading = book.grading("key")
    assert grading.tasks == (task("P1.11"), task("P1.2", "undecided"))
    assert (grading.state, grading.seconds) == ("done", 2.5)


def test_a_result_that_is_stored_twice_counts_once(book):
    book.open_grading("key", "sha", "P1")
    book.put_task("key", task())
    book.put_task("key", task(status="failed"))
    assert book.grading("key").tasks == (task(status="failed"),)


def test_lone_surrogates_and_null_characters_are_stored(book):
    book.open_grading("key", "sha", "P1")
    odd = TaskResult("P1.1", "T", (CheckResult("a", "A", 1.0, "failed", "\ud800 \x00 é", {"got": "\udfff"}),))
    book.put_task("key", odd)
    assert book.grading("key").tasks[0].checks[0].what == "? \x00 é"
    book.add_submissions([SubmittedFile("\ud800", source="\ud800.ipynb", problem="it is a link")])
    assert book.entries()[0].submission.student == "?"


def test_submissions_are_read_as_they_were_written(book):
    files = [SubmittedFile("ada", "Ada", "P1", "a", None, "1", TIME, True, "no", "autumn"), SubmittedFile("bob")]
    book.add_submissions(files)
    assert [entry.submission for entry in book.entries()] == files


def test_a_later_submission_replaces_an_earlier_one(book):
    book.add_submissions(
        [
            SubmittedFile("ada", assignment="P1", source="a", sha256="1"),
            SubmittedFile("bob", assignment="P1", sha256="2"),
        ]
    )
    book.update_entries([SubmissionEntry(entry.submission, "P1", "key") for entry in book.entries()])
    book.add_submissions(
        [
            SubmittedFile("ada", assignment="P1", source="b", sha256="3"),
            SubmittedFile("bob", assignment="P1", sha256="2"),
        ]
    )
    entries = {
        entry.submission.student: (entry.submission.sha256, entry.project, entry.key) for entry in book.entries()
    }
    assert entries == {"ada": ("3", "", None), "bob": ("2", "P1", "key")}


def test_projects_metadata_and_manual_marks_are_stored(tmp_path):
    with Gradebook(tmp_path / "g") as book:
        book.set_projects([project("P1")])
        book.set_metadata("seed", "5")
        book.put_manual_marks({MarkedItem("ada", "P1.4"): ManualMark(2.5, "good")})
    with Gradebook(tmp_path / "g", must_exist=True) as book:
        assert book.projects() == {"P1": project("P1")}
        assert (book.metadata("seed"), book.metadata("late")) == ("5", None)
        assert book.manual_marks() == {MarkedItem("ada", "P1.4"): ManualMark(2.5, "good")}


def test_interrupted_attempts_do_not_count_against_the_job(book):
    book.begin_attempt("job")
    book.end_attempt(book.begin_attempt("job"), "died", "no memory")
    assert book.abandon_attempts() == 1
    assert book.outcomes("job") == ["stopped", "died"]


def test_it_has_a_write_ahead_log_and_waits_for_the_disk(book):
    assert book._rows("PRAGMA journal_mode") == [("wal",)]
    assert book._rows("PRAGMA synchronous") == [(2,)]


def test_a_foreign_database_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(GradingError, match="another database"):
        Gradebook(path)
    assert path.read_bytes() == before


def test_a_newer_gradebook_is_refused(tmp_path):
    Gradebook(tmp_path / "g").close()
    connection = sqlite3.connect(tmp_path / "g")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(GradingError, match="another version") as caught:
        Gradebook(tmp_path / "g")
    assert "schema 99" in str(caught.value)


@pytest.mark.parametrize("damage", ["text", "middle"])
def test_a_damaged_gradebook_is_refused(tmp_path, damage):
    path = tmp_path / "g"
    with Gradebook(path) as book:
        book.set_projects([project(f"P{n}") for n in range(60)])
    content = bytearray(path.read_bytes())
    content = b"not a database" * 300 if damage == "text" else content[:3000] + bytes(len(content) - 3000)
    path.write_bytes(content)
    with pytest.raises(GradingError, match="damaged"):
        Gradebook(path)


def test_a_gradebook_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(OutputError, match="cannot be opened"):
        Gradebook(tmp_path / "absent" / "g")
    with pytest.raises(GradingError, match="no gradebook"):
        Gradebook(tmp_path / "g", must_exist=True)


def test_an_empty_file_becomes_a_gradebook(tmp_path):
    (tmp_path / "g").touch()  # what a crash can leave before the first table
    with Gradebook(tmp_path / "g") as book:
        assert book.entries() == []
