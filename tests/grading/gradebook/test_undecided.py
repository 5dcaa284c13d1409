"""Only an undecided check has no points until the instructor decides; a decision counts for its file."""

from __future__ import annotations

import csv
import io
import shlex
from dataclasses import replace

import pytest

from mlhood.grading.checks.marks import ManualMark
from mlhood.grading.exporters.formats import plain_csv
from mlhood.grading.gradebook.gradebook import Gradebook, MarkedItem
from mlhood.grading.gradebook.records import Record, records
from tests.grading.batch.fake_grader import OPEN


@pytest.fixture
def graded(fake_class):
    fake_class.submit(ada="P1 open-P1.2", bob="P1").grade()
    return fake_class


def record_of(fake_class, student: str = "ada") -> Record:
    with Gradebook(fake_class.gradebook) as book:
        return next(record for record in records(book) if record.student == student)


def decide(fake_class, points: float) -> None:
    submission = record_of(fake_class).submission
    with Gradebook(fake_class.gradebook) as book:
        book.put_manual_marks({MarkedItem("ada", "P1.2", submission.sha256): ManualMark(points, "fast enough")})


def test_the_other_points_count_before_the_instructor_decides(graded):
    before = record_of(graded)
    assert [(task.id, task.why_undecided, task.earned, task.full) for task in before.undecided] == [
        ("P1.2", OPEN, 4, False)
    ]
    assert (before.score, before.possible, record_of(graded, "bob").undecided) == (24, 30, ())
    decide(graded, 7.5)
    after = record_of(graded)
    assert (after.score, after.undecided, after.tasks[1].full) == (27.5, (), False)
    assert after.tasks[1].remark == "7.5 of 10 points given by the instructor: fast enough"


def test_a_decision_stays_with_its_file(graded):
    decide(graded, 10)
    text = (graded.folder / "ada.ipynb").read_text()
    graded.submit(ada="P1 open-P1.2 open-P1.3")
    graded.grade()
    replaced = record_of(graded)
    assert (replaced.score, [task.id for task in replaced.undecided]) == (18, ["P1.2", "P1.3"])
    (graded.folder / "ada.ipynb").write_text(text)
    graded.grade()
    assert record_of(graded).score == 30


def test_the_decision_outlives_a_grading_that_decides_the_check(graded):
    decide(graded, 3)
    with Gradebook(graded.gradebook) as book:
        key = next(entry.key for entry in book.entries() if entry.submission.student == "ada")
        task = record_of(graded).tasks[1]
        passed = tuple(replace(check, status="passed", what="") for check in task.checks)
        book.put_task(key, replace(task, checks=passed, decision=None))
    assert record_of(graded).score == 23
    (row, _) = csv.DictReader(io.StringIO(plain_csv([record_of(graded), record_of(graded, "bob")])))
    assert (row["score"], row["undecided"]) == ("23", "")


def test_the_summary_names_undecided_tasks_and_the_next_command(graded):
    lines = graded.grade().text().splitlines()
    assert f"ada P1.2: undecided (4 of 10 so far): {OPEN}" in lines
    table = next(i for i, line in enumerate(lines) if line.startswith("student"))
    assert [line.split(maxsplit=1) for line in lines[table + 1 : table + 3]] == [
        ["ada", "24 (1 undecided)"],
        ["bob", "30"],
    ]
    out = shlex.quote(str(graded.out))
    assert [line for line in lines if line.startswith("next:")] == [f"next: mlhood marks {out} --write to-mark.csv"]
    assert f"      mlhood export {out} --format csv --to marks.csv" in lines
    decide(graded, 0)
    assert "undecided)" not in graded.grade().text()
