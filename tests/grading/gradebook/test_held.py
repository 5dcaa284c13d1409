"""A held task has no points until the instructor decides, and a decision counts for the file that it was made on."""

from __future__ import annotations

import csv
import io
import shlex

import pytest

from mlhood.grading.checks.marks import Decision
from mlhood.grading.exporters.formats import plain_csv
from mlhood.grading.gradebook.gradebook import Gradebook, HeldTask
from mlhood.grading.gradebook.records import Record, records
from tests.grading.batch.fake_grader import HELD


@pytest.fixture
def graded(fake_class):
    fake_class.submit(ada="P1 held-P1.2 lose-P1.2", bob="P1").grade()
    return fake_class


def record_of(fake_class, student: str = "ada") -> Record:
    with Gradebook(fake_class.gradebook) as book:
        return next(record for record in records(book) if record.student == student)


def decide(fake_class, points: float) -> None:
    submission = record_of(fake_class).submission
    with Gradebook(fake_class.gradebook) as book:
        book.put_manual_marks([], {HeldTask("ada", "P1.2", submission.sha256): Decision(points, "reads a file")})


def test_it_has_no_points_until_the_instructor_decides(graded):
    before = record_of(graded)
    assert [(task.id, task.held, task.provisional, task.earned) for task in before.held] == [("P1.2", HELD, 4, 0)]
    assert (before.score, before.possible, record_of(graded, "bob").held) == (20, 30, ())
    decide(graded, 7.5)
    after = record_of(graded)
    assert (after.score, after.held, after.tasks[1].full) == (27.5, (), False)
    assert after.tasks[1].remark == "7.5 of 10 points given by the instructor: reads a file"
    with Gradebook(graded.gradebook) as book:
        book.remove_decision(HeldTask("ada", "P1.2", after.submission.sha256))
    assert record_of(graded) == before


def test_a_decision_stays_with_its_file(graded):
    decide(graded, 10)
    text = (graded.folder / "ada.ipynb").read_text()
    graded.submit(ada="P1 held-P1.2 held-P1.3")
    summary = graded.grade().text()
    replaced = record_of(graded)
    assert (replaced.score, [task.id for task in replaced.held]) == (10, ["P1.2", "P1.3"])
    assert replaced.outdated == {"P1.2": Decision(10, "reads a file")}
    assert f"it {HELD}; the 10 points given for an earlier file do not count" in summary
    (graded.folder / "ada.ipynb").write_text(text)
    graded.grade()
    assert (record_of(graded).score, record_of(graded).outdated) == (30, {})


def test_the_decision_outlives_a_grading_that_no_longer_holds_the_task(graded):
    decide(graded, 3)
    with Gradebook(graded.gradebook) as book:
        book._write([("UPDATE task_results SET held = ''", ())])
    assert record_of(graded).score == 23
    (row, _) = csv.DictReader(io.StringIO(plain_csv([record_of(graded), record_of(graded, "bob")])))
    assert (row["score"], row["held"]) == ("23", "")


def test_the_summary_names_held_tasks_and_the_next_command(graded):
    lines = graded.grade().text().splitlines()
    assert f"ada P1.2: held (4 of 10 by its checks): it {HELD}" in lines
    table = next(i for i, line in enumerate(lines) if line.startswith("student"))
    assert [line.split(maxsplit=1) for line in lines[table + 1 : table + 3]] == [["ada", "20 (1 held)"], ["bob", "30"]]
    out = shlex.quote(str(graded.out))
    assert [line for line in lines if line.startswith("next:")] == [f"next: mlhood marks {out} --open"]
    assert f"      mlhood export {out} --format csv --to marks.csv" in lines
    decide(graded, 0)
    assert "held)" not in graded.grade().text()
