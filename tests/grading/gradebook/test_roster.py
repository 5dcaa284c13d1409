"""Who has submitted nothing is named everywhere, and only in projects in which somebody has."""

from __future__ import annotations

import csv
import io
import json

import pytest

from mlhood.errors import GradingError
from mlhood.grading.exporters.export import export
from mlhood.grading.gradebook.roster import Roster, Student, read_roster
from mlhood.grading.marking import write_manual_marks
from mlhood.grading.reports.class_report import write_class_report

TEXT = "Student,name,EMAIL\nada,Ada Lovelace,ada@example.org\nbob,Bob Ross,bob@example.org\n\ncarl,,\n"


@pytest.fixture
def graded(fake_class, tmp_path):
    """A class in which ada submitted both projects, bob one, and carl none; eve is not in the roster."""
    (tmp_path / "roster.csv").write_text(TEXT)
    fake_class.submit(ada_P1="P1", ada_P2="P2", bob_P1="P1", eve_P1="P1")
    return fake_class.grade(roster_file=tmp_path / "roster.csv")


def test_it_is_read_in_any_case_and_without_empty_rows(tmp_path):
    (tmp_path / "roster.csv").write_text(TEXT)
    ada, bob, carl = read_roster(tmp_path / "roster.csv").students
    assert ada == Student("ada", "Ada Lovelace", "ada@example.org")
    assert (bob.student, carl) == ("bob", Student("carl"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a roster"),
        ("name,email\nAda,a@b.c\n", "not a roster"),
        ("student\nada\nada\n", "row 3: ada has another row"),
        ("student,name\n,Ada\n", "row 2 has no student"),
    ],
)
def test_a_file_that_is_no_roster_is_refused(tmp_path, text, message):
    (tmp_path / "roster.csv").write_text(text)
    with pytest.raises(GradingError) as caught:
        read_roster(tmp_path / "roster.csv")
    assert message in str(caught.value)


def test_students_are_found_by_id_then_by_a_name_that_is_unique():
    roster = Roster([Student("ada", "Ada Lovelace"), Student("b1", "Bob Ross"), Student("b2", "Ross Bob")])
    assert roster.find("ada").student == "ada"
    assert roster.find("4711", "Lovelace, Ada").student == "ada"
    assert roster.find("Ada Lovelace").student == "ada"
    assert roster.find("4711", "Bob Ross") is None
    assert Roster.from_text(roster.to_text()).students == roster.students


def test_the_summary_names_who_is_missing_and_who_is_unknown(graded):
    lines = graded.text().splitlines()
    assert "P1: nothing was submitted by carl" in lines
    assert "P2: nothing was submitted by bob, carl" in lines
    assert "not in the roster: eve" in lines
    assert any(line.startswith("graded: 4 of 4") for line in lines)
    assert graded.complete


def test_every_table_has_a_row_for_who_is_missing(graded, tmp_path):
    for name in ("csv", "nbgrader"):
        export(graded.gradebook, tmp_path / name, name)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "csv").read_text())))
    missing = [row for row in rows if row["status"] == "missing"]
    assert [(row["project"], row["student_id"], row["email"]) for row in missing] == [
        ("P1", "carl", ""),
        ("P2", "bob", "bob@example.org"),
        ("P2", "carl", ""),
    ]
    assert {(row["reason"], row["score"], row["earned"]) for row in missing} == {("nothing was submitted", "0", "0")}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "nbgrader").read_text())))
    scores = {(row["assignment"], row["student_id"]): float(row["score"]) for row in rows}
    assert {key for key, score in scores.items() if not score} == {
        *(("P1", "carl"), ("P2", "bob")),
        *(("P2", "carl"), ("P2", "eve")),
    }
    assert {row["email"] for row in rows if row["student_id"] == "ada"} == {"ada@example.org"}


@pytest.mark.parametrize(("name", "file"), [("gradescope", "results.json"), ("classroom", "result.json")])
def test_who_is_missing_gets_a_file_that_says_so(graded, tmp_path, name, file):
    export(graded.gradebook, tmp_path / name, name)
    result = json.loads((tmp_path / name / "P2" / "bob" / file).read_text())
    assert "nothing was submitted" in json.dumps(result)
    assert sum(test["score"] for test in result["tests"]) == 0


def test_canvas_gets_no_score_for_who_is_missing(graded, tmp_path):
    (tmp_path / "canvas.csv").write_text(
        "Student,ID,SIS Login ID,P1 (1),P2 (2)\nPoints Possible,,,30,30\nRoss Bob,7,bob,,\nLovelace Ada,8,ada,,\n"
    )
    message = export(graded.gradebook, tmp_path / "filled.csv", "canvas", fill_in=tmp_path / "canvas.csv")
    assert "bob: P2 is not filled in: nothing was submitted" in message
    assert "Ross Bob,7,bob,30,\n" in (tmp_path / "filled.csv").read_text()


def test_the_class_report_lists_who_is_missing(graded, tmp_path):
    message = write_class_report(graded.gradebook, tmp_path / "class.html", [])
    page = (tmp_path / "class.html").read_text()
    assert "4 submissions, 4 of them graded" in page
    assert page.count("Nothing was submitted by") == 2
    assert "<li>bob (Bob Ross)</li>" in page
    assert "results 4" in message


def test_nobody_marks_answers_that_were_not_submitted(graded, tmp_path):
    assert write_manual_marks(graded.gradebook, tmp_path / "marks.csv").startswith("4 rows")


def test_without_a_roster_nobody_is_missing(fake_class):
    graded = fake_class.submit(ada_P1="P1", bob_P2="P2").grade()
    assert [record.status for record in graded.records] == ["done", "done"]
