from __future__ import annotations

import sqlite3

import pytest

from mlhood.errors import GradingError, MlhoodError, OutputError
from mlhood.grading.checks.marks import CheckResult, TaskResult
from mlhood.grading.gradebook.gradebook import Gradebook, HandMark
from mlhood.grading.intake.submitted_file import Handed
from tests.grading.batch.fake_grader import plan


@pytest.fixture
def book(tmp_path):
    with Gradebook(tmp_path / "gradebook.sqlite") as found:
        yield found


def task(name: str = "P1.1", status: str = "passed") -> TaskResult:
    return TaskResult(name, "Title", (CheckResult("a", "A", 4.0, status, "why", {"got": "x"}),), ("note",))


def test_results_come_back_as_they_went_in(book):
    book.open_grading("key", "sha", "P1")
    for position, name in enumerate(["P1.10", "P1.2"]):
        book.put_task("key", position, task(name))
    book.close_grading("key", "done", seconds=2.5)
    found = book.grading("key")
    assert found.tasks == (task("P1.10"), task("P1.2"))
    assert (found.state, found.seconds) == ("done", 2.5)


def test_a_result_that_comes_twice_counts_once(book):
    book.open_grading("key", "sha", "P1")
    book.put_task("key", 0, task())
    book.put_task("key", 0, task(status="failed"))
    assert book.grading("key").tasks == (task(status="failed"),)


def test_a_task_is_stored_whole_or_not_at_all(book):
    book.open_grading("key", "sha", "P1")
    book.put_task("key", 0, task())
    doubled = TaskResult("P1.1", "Title", (*task(status="failed").checks, *task().checks))
    with pytest.raises(MlhoodError):
        book.put_task("key", 0, doubled)
    assert book.grading("key").tasks == (task(),)


def test_half_characters_and_zeros_of_students_are_stored(book):
    book.open_grading("key", "sha", "P1")
    odd = TaskResult("P1.1", "T", (CheckResult("a", "A", 1.0, "failed", "\ud800 \x00 é", {"got": "\udfff"}),))
    book.put_task("key", 0, odd)
    assert book.grading("key").tasks[0].checks[0].what == "? \x00 é"
    book.hand_in([Handed("\ud800", source="\ud800.ipynb", problem="it is a link")])
    assert book.handed()[0].handed.student == "?"


def test_what_is_handed_in_later_replaces_what_was(book):
    book.hand_in([Handed("ada", assignment="P1", source="a", sha256="1"), Handed("bob", assignment="P1", sha256="2")])
    book.assign([type(one)(one.handed, "P1", "key") for one in book.handed()])
    book.hand_in([Handed("ada", assignment="P1", source="b", sha256="3"), Handed("bob", assignment="P1", sha256="2")])
    found = {one.handed.student: (one.handed.sha256, one.project, one.key) for one in book.handed()}
    assert found == {"ada": ("3", "", None), "bob": ("2", "P1", "key")}


def test_plans_facts_and_hand_marks_are_kept(tmp_path):
    with Gradebook(tmp_path / "g") as book:
        book.set_plans([plan("P1")])
        book.set_fact("seed", "5")
        book.put_hand_marks([HandMark("ada", "P1.4", 2.5, "good")])
    with Gradebook(tmp_path / "g", must_exist=True) as book:
        assert book.plans() == {"P1": plan("P1")}
        assert (book.fact("seed"), book.fact("late")) == ("5", None)
        assert book.hand_marks() == {("ada", "P1.4"): HandMark("ada", "P1.4", 2.5, "good")}


def test_attempts_that_were_cut_off_do_not_count_against_the_job(book):
    book.begin_attempt("job")
    book.end_attempt(book.begin_attempt("job"), "died", "no memory")
    assert book.abandon_attempts() == 1
    assert book.deaths("job") == ["no memory"]


def test_it_is_a_write_ahead_log_that_waits_for_the_disk(book):
    assert book._rows("PRAGMA journal_mode") == [("wal",)]
    assert book._rows("PRAGMA synchronous") == [(2,)]


def test_a_foreign_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.sqlite"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE theirs (x)")
    base.commit()
    base.close()
    before = path.read_bytes()
    with pytest.raises(GradingError, match="no gradebook of the course"):
        Gradebook(path)
    assert path.read_bytes() == before


def test_a_newer_gradebook_is_refused(tmp_path):
    Gradebook(tmp_path / "g").close()
    base = sqlite3.connect(tmp_path / "g")
    base.execute("PRAGMA user_version = 99")
    base.close()
    with pytest.raises(GradingError, match="another version") as caught:
        Gradebook(tmp_path / "g")
    assert "schema 99" in str(caught.value)


@pytest.mark.parametrize("damage", ["text", "middle"])
def test_a_damaged_gradebook_is_refused(tmp_path, damage):
    path = tmp_path / "g"
    with Gradebook(path) as book:
        book.set_plans([plan(f"P{n}") for n in range(60)])
    content = bytearray(path.read_bytes())
    content = b"no database at all" * 300 if damage == "text" else content[:3000] + bytes(len(content) - 3000)
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
        assert book.handed() == []
