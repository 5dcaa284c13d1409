from __future__ import annotations

import csv
import io
import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from nbgrader.api import Gradebook as NbgraderGradebook
from nbgrader.plugins.export import CsvExportPlugin

from mlhood.errors import GradingError
from mlhood.files.csv_cells import FORMULA
from mlhood.files.paths import portable_name
from mlhood.grading.checks.marks import CheckResult, ManualMark, TaskResult
from mlhood.grading.checks.submission import Reached
from mlhood.grading.exporters import formats
from mlhood.grading.exporters.export import fill
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.gradebook.records import Record
from mlhood.grading.intake.collect import SubmittedFile
from tests.grading.batch.fake_grader import project

DUE = datetime(2026, 10, 12, 21, 59, tzinfo=UTC)
BOMB = '=HYPERLINK("http://x","<script>")'


def task(number: int, second: str = "passed", what: str = "") -> TaskResult:
    checks = (CheckResult("first", "It is first", 4.0, "passed"), CheckResult("second", "It is 2nd", 6.0, second, what))
    return TaskResult(f"P1.{number}", f"Task {number}", checks)


def record(student: str = "ada", name: str = "Ada Love", **changes) -> Record:
    """Return a record with 24 of 30 points, 2 given by hand, and a penalty of a tenth for a day late."""
    default = Record(
        SubmittedFile(student, name, "P1", "P1.ipynb", submitted=DUE),
        project("P1"),
        "done",
        "",
        (task(1), task(2, "failed", BOMB), task(3)),
        Lateness(DUE, DUE.replace(day=13), 1, 0.1),
        {"P1.4": ManualMark(2.0, "+good")},
        12.4,
        DUE,
    )
    return replace(default, **changes)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_plain_csv_has_a_row_per_student_and_a_column_per_task():
    other = replace(record(), project=project("P2"), tasks=(), late=Lateness(), manual_marks={})
    first, second = rows(formats.plain_csv([record(), other]))
    assert first["P1.2 Task 2 (10)"] == "4"
    assert (first["earned"], first["possible"], first["bonus"], first["late_penalty"]) == ("24", "30", "2", "2.6")
    assert first["score"] == "23.4"
    assert second["P1.2 Task 2 (10)"] == ""


def test_no_cell_of_a_student_is_a_formula():
    hostile = record(student="=1+1", name="@SUM(A1)", status="refused", reason="-cmd|' /C calc'!A0")
    for text in (formats.plain_csv([hostile]), formats.nbgrader_csv([hostile])):
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert "'=1+1" in cells
        assert [cell for cell in cells if cell.startswith(FORMULA)] == []


@pytest.mark.filterwarnings("ignore")  # SQLAlchemy warns of what nbgrader does
def test_nbgraders_file_has_the_fields_and_values_that_nbgrader_writes(tmp_path, monkeypatch):
    tools = str(Path(sys.executable).parent)  # nbgrader calls alembic without a path
    monkeypatch.setenv("PATH", os.pathsep.join([tools, os.environ.get("PATH", "")]))
    ours = record(manual_marks={})
    with NbgraderGradebook(f"sqlite:///{tmp_path / 'theirs.db'}") as theirs:
        theirs.add_assignment("P1", duedate=DUE.replace(tzinfo=None))
        theirs.add_notebook("P1", "P1")
        for task in ours.tasks:
            theirs.add_grade_cell(task.id, "P1", "P1", max_score=task.points, cell_type="code")
        for student, names in {"ada": ("Ada", "Love"), "bob": (None, "Ross")}.items():
            theirs.add_student(student, first_name=names[0], last_name=names[1])
        submission = theirs.add_submission("P1", "ada", timestamp=ours.late.submitted.replace(tzinfo=None))
        for task in ours.tasks:
            grade = theirs.find_grade(task.id, "P1", "P1", "ada")
            grade.auto_score = task.earned
        submission.notebooks[0].late_submission_penalty = ours.penalty
        theirs.db.commit()
        CsvExportPlugin(to=str(tmp_path / "theirs.csv")).export(theirs)
    absent = replace(record("bob", "Ross"), project=project("P2"))
    actual = rows(formats.nbgrader_csv([ours, absent]))
    expected = rows((tmp_path / "theirs.csv").read_text())
    assert list(actual[0]) == list(expected[0])
    in_p1 = [row for row in actual if row["assignment"] == "P1"]
    assert [_numbers(row) for row in in_p1] == [_numbers(row) for row in expected]


def _numbers(row: dict[str, str]) -> dict[str, object]:
    scores = {"raw_score", "late_submission_penalty", "score", "max_score"}
    return {key: round(float(value), 6) if key in scores else value for key, value in row.items()}


COMMON = {"score", "output", "output_format", "visibility", "extra_data"}
GRADESCOPE_TOP = COMMON | {"execution_time", "stdout_visibility", "tests", "leaderboard"}
GRADESCOPE_TEST = COMMON | {"max_score", "status", "name", "name_format", "number", "tags"}


def test_gradescopes_results_have_its_fields():
    result = json.loads(
        formats.json_text(formats.gradescope(record(tasks=(task(1, "skipped", "no unicorn"), task(2, "failed", BOMB)))))
    )
    assert set(result) <= GRADESCOPE_TOP
    assert all(set(test) <= GRADESCOPE_TEST for test in result["tests"])
    assert result["score"] == pytest.approx(9)
    assert result["execution_time"] == 12
    assert {result["output_format"], *(test["output_format"] for test in result["tests"])} == {"text"}
    by_number = {test["number"]: test for test in result["tests"]}
    assert list(by_number) == ["1.1.1", "1.1.2", "1.2.1", "1.2.2", "1.4"]
    assert "status" not in by_number["1.1.2"]
    assert by_number["1.1.2"]["max_score"] == 0
    assert (by_number["1.2.2"]["status"], by_number["1.2.2"]["score"]) == ("failed", 0)
    assert (by_number["1.4"]["score"], by_number["1.4"]["output"]) == (2, "+good")


CYCLES = Reached(1200.0, 1000.0, smaller_is_better=True, figure="cycles")


def test_gradescopes_leaderboard_has_what_was_reached_in_open_tasks():
    reached = replace(task(2), reached=CYCLES)
    (entry,) = formats.gradescope(record(tasks=(task(1), reached)))["leaderboard"]
    assert entry == {"name": "cycles", "value": 1200.0, "order": "asc"}
    largest = replace(CYCLES, smaller_is_better=False)
    (entry,) = formats.gradescope(record(tasks=(replace(reached, reached=largest),)))["leaderboard"]
    assert entry["order"] == "desc"


UNDECIDED = task(2, "undecided", "runs `0.98` to `1.02` times as fast")


def test_an_undecided_check_alone_counts_0_in_every_format_until_it_is_decided():
    decided = replace(UNDECIDED, decision=ManualMark(10, "fine"))
    for second, points, status in ((UNDECIDED, 4, "fail"), (decided, 10, "pass")):
        both = record(tasks=(task(1), second), late=Lateness(), manual_marks={})
        (row,) = rows(formats.plain_csv([both]))
        (theirs,) = rows(formats.nbgrader_csv([both]))
        assert (row["score"], row["P1.2 Task 2 (10)"]) == (str(10 + points), str(points))
        assert row["undecided"] == ("P1.2" if second is UNDECIDED else "")
        assert (float(theirs["score"]), float(theirs["max_score"])) == (10 + points, 20)
        scope = formats.gradescope(both)
        tests = {test["number"]: test for test in scope["tests"]}
        assert scope["score"] == sum(test["score"] for test in tests.values()) == 10 + points
        assert sum(test["max_score"] for test in tests.values()) == 20
        assert (tests["1.2.2"]["score"], "status" in tests["1.2.2"]) == (0, False)
        assert ("not final, the instructor decides on: P1.2" in scope["output"]) is (second is UNDECIDED)
        test = formats.github_classroom(both)["tests"][1]
        assert (test["status"], test["score"]) == (status, points)
        assert test["message"].startswith(second.remark)
        assert UNDECIDED.why_undecided in test["message"]


def test_github_classroom_has_its_fields():
    result = formats.github_classroom(record())
    assert list(result) == ["version", "status", "max_score", "tests"]
    assert (result["version"], result["status"], result["max_score"]) == (1, "fail", 30)
    assert [(test["status"], test["score"]) for test in result["tests"]] == [("pass", 10), ("fail", 4), ("pass", 10)]
    assert all(list(test) == ["name", "status", "score", "message"] for test in result["tests"])
    assert BOMB in result["tests"][1]["message"]
    assert formats.github_classroom(record(tasks=(task(1),)))["status"] == "pass"
    assert formats.github_classroom(record(status="failed"))["status"] == "error"


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", "", ".", "..", "con", "NUL.txt", "é", "a" * 300, "\ud800", "a\nb", "-rf"]
)
def test_a_students_id_becomes_a_file_name_within_the_folder(name):
    result = portable_name(name)
    assert result.isascii()
    assert 0 < len(result) < 80
    assert not set(result) & set("/\\:\n")
    assert result.strip(".") == result
    assert not result.startswith("-")
    assert result != name


def test_file_names_of_two_students_differ():
    ids = ["ada", "Ada", "a/a", "a_a", "a\\a"]
    assert len({portable_name(name).lower() for name in ids}) == len(ids)
    assert portable_name("ada") == "ada"


CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,P1 (901),"Homework, part 2 (902)",Current Score
,,,,,Manual Posting,,
    Points Possible,,,,,30.00,30.00,(read only)
"Love, Ada",11,s11,ada@uni.edu,A,,7.5,80
"Ross, Bob",12,s12,bob@uni.edu,A,3,,
"Ross, Bob",13,s13,rob@uni.edu,A,,,
"Student, Test",14,,x,A,,,
"""


@pytest.fixture
def canvas(tmp_path):
    path = tmp_path / "export.csv"
    path.write_text("\ufeff" + CANVAS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("student", "name"), [("11", ""), ("s11", ""), ("ada", ""), ("ada@uni.edu", ""), ("x1", "Ada Love")]
)
def test_canvas_is_filled_in_place(canvas, student, name):
    assert fill(canvas, [record(student, name)]) == (CANVAS.replace("A,,7.5,80", "A,23.4,7.5,80"), [])


def test_canvas_gets_no_score_if_there_is_none(canvas):
    records = [
        record("11", status="failed", reason="no memory"),
        record("99", "Ross Bob"),
        record("12", status="refused"),
    ]
    text, notes = fill(canvas, records)
    assert text == CANVAS.replace("A,3,,", "A,23.4,,")
    assert notes == [
        "11: P1 is not filled in: no memory",
        "99: P1 is not filled in: no row, or several, match this student",
    ]


def test_canvas_columns_can_be_named(canvas):
    text, _ = fill(canvas, [record("11")], {"P1": "Homework, part 2 (902)"})
    assert text == CANVAS.replace("A,,7.5,80", "A,,23.4,80")
    two = replace(record("11"), project=project("P2"))
    for columns in ({}, {"P2": "Homework"}):
        with pytest.raises(GradingError, match="column of P2"):
            fill(canvas, [two], columns)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\xff\xfe", 'Student,ID\n"open'])
def test_a_file_that_canvas_has_not_exported_is_refused(tmp_path, text):
    (tmp_path / "x.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(GradingError):
        fill(tmp_path / "x.csv", [record()])
