from __future__ import annotations

import csv
import json
import shlex
import sys

import pytest
from typer.testing import CliRunner

from mlhood import cli
from mlhood.grading import marking
from mlhood.grading.batch import executor, grade_class
from mlhood.grading.checks.marks import ManualMark
from mlhood.grading.gradebook.gradebook import Gradebook, MarkedItem
from tests.grading.fake_class import FAKE


def call(*arguments: object):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def fake(fake_class, monkeypatch):
    monkeypatch.setattr(grade_class, "require", lambda: None)
    monkeypatch.setattr(executor, "WORKER", FAKE)
    return fake_class.submit(ada="P1", bob="P1 lose-P1.2")


@pytest.fixture
def graded(fake_class):
    fake_class.submit(ada="P1", bob="P1 lose-P1.2").grade()
    return fake_class


def test_grade_prints_a_summary(fake):
    result = call("grade", fake.folder, "--out", fake.out, "--jobs", 2)
    assert result.exit_code == 0, result.output
    assert "graded: 2 of 2" in result.stdout
    lines = result.stderr.splitlines()
    assert lines[:6] == [
        "mlhood grade: loading",
        "testing the sandbox",
        f"collecting submissions from {fake.folder}",
        "found 2 submissions of 2 students",
        "starting a worker, which loads the course",
        "finding out the projects of 2 notebooks",
    ]
    assert lines[6] == "2 notebooks to grade"
    assert [sum(word in line for line in lines[7:]) for word in (": grading", ": graded")] == [2, 2]
    first = next(line for line in lines if ": graded" in line)
    assert first.startswith("[1/2]")
    assert first.endswith("left")


def test_grade_prints_what_could_not_be_graded(fake):
    fake.submit(eve="nonsense", carl="P1 refuse")
    result = call("grade", fake.folder, "--out", fake.out)
    assert result.exit_code == 1
    assert "eve.ipynb: the file is not JSON" in result.stdout
    assert "carl P1 (carl.ipynb): refused: the notebook's structure is damaged" in result.stdout


def test_the_late_policy_is_stored_and_can_be_replaced(fake, tmp_path):
    policy = "penalty_per_day = 10\n[P1]\ndue = 2026-01-01T00:00:00\n[P1.submitted]\nada = 2026-01-02T00:00:00\n"
    (tmp_path / "late.toml").write_text(policy)
    (tmp_path / "none.toml").write_text("")
    assert call("grade", fake.folder, "--out", fake.out, "--late", tmp_path / "late.toml").exit_code == 0
    for options, score in (((), "27"), (("--late", tmp_path / "none.toml"), "30")):
        assert call("export", fake.out, "--to", tmp_path / "marks.csv", *options).exit_code == 0
        scores = {row["student_id"]: row["score"] for row in read(tmp_path / "marks.csv")}
        assert scores == {"ada": score, "bob": "24"}


@pytest.mark.parametrize("name", ["csv", "nbgrader"])
def test_tables_are_written(graded, tmp_path, name):
    result = call("export", graded.out, "--format", name, "--to", tmp_path / "marks.csv")
    assert result.exit_code == 0
    assert result.stdout == f"2 results in {tmp_path / 'marks.csv'}\n"
    scores = {row["student_id"]: float(row["score"]) for row in read(tmp_path / "marks.csv")}
    assert scores == {"ada": 30, "bob": 24}


def test_an_export_says_whose_marks_are_not_final(fake_class, tmp_path):
    fake_class.submit(ada="P1 open-P1.2 open-P1.3", bob="P1", eve="P1 open-P1.1").grade()
    theirs = tmp_path / "theirs.csv"
    theirs.write_text("Student,ID,P1 (9)\nA,ada,\n")
    for name in ("csv", "nbgrader", "canvas", "gradescope", "classroom"):
        result = call("export", fake_class.out, "--format", name, "--fill", theirs, "--to", tmp_path / name)
        assert result.exit_code == 0, result.exception
        assert result.stdout.splitlines()[-2:] == [
            "warning: not final: checks of 3 tasks are undecided: ada (P1.2, P1.3), eve (P1.1)",
            f"next: mlhood marks {shlex.quote(str(fake_class.gradebook))} --write to-mark.csv",
        ]


@pytest.mark.parametrize(("name", "file"), [("gradescope", "results.json"), ("classroom", "result.json")])
def test_a_file_per_student_is_written(graded, tmp_path, name, file):
    assert call("export", graded.out, "--format", name, "--to", tmp_path / "to").exit_code == 0
    results = {path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "to" / "P1").glob(f"*/{file}")}
    assert set(results) == {"ada", "bob"}
    assert "\\ud83d" in (tmp_path / "to" / "P1" / "bob" / file).read_text() or "?" in str(results["bob"])


def test_canvas_is_filled(graded, tmp_path):
    path = tmp_path / "export.csv"
    path.write_text("Student,ID,P1 (9)\nA,ada,\nB,bob,\n")
    result = call("export", graded.out, "--format", "canvas", "--fill", path, "--to", path)
    assert result.exit_code == 0
    assert path.read_text() == "Student,ID,P1 (9)\nA,ada,30\nB,bob,24\n"


def test_manual_marks_are_written_and_read(graded, tmp_path):
    path = tmp_path / "questions.csv"
    assert call("marks", graded.out, "--write", path).stdout.startswith("2 rows")
    rows = read(path)
    assert [(row["student_id"], row["question"], row["most"], row["points"]) for row in rows] == [
        ("ada", "P1.4", "5", ""),
        ("bob", "P1.4", "5", ""),
    ]
    rows[1] |= {"points": "2,5", "comment": "=good"}
    write(path, rows)
    assert call("marks", graded.out, "--read", path).stdout.startswith("1 marks")
    assert call("marks", graded.out, "--write", path).exit_code == 0
    assert read(path)[1]["comment"] == "'=good"
    assert call("marks", graded.out, "--read", path).exit_code == 0
    with Gradebook(graded.gradebook) as book:
        assert book.manual_marks() == {MarkedItem("bob", "P1.4"): ManualMark(2.5, "=good")}


def read(path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_answers_are_beside_their_questions(graded, course, tmp_path, monkeypatch):
    answers = iter(["=as ada, ", "=as bob, "])
    monkeypatch.setattr(marking, "written_answers", lambda notebook: {"P1.4": next(answers)})
    assert call("marks", graded.out, "--write", tmp_path / "questions.csv").exit_code == 0
    assert [row["answer"] for row in read(tmp_path / "questions.csv")] == ["'=as ada, ", "'=as bob, "]


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"points": "6"}, "row 2: 6 points for P1.4 are not within 0 and 5"),
        ({"points": "-1"}, "row 2: -1 points"),
        ({"points": "nan"}, "row 2: nan points"),
        ({"points": "many"}, "row 2: 'many' is not a number"),
        ({"points": "1", "student_id": "eve"}, "row 2: there is no student 'eve'"),
        ({"points": "1", "question": "P9.9"}, "row 2: ada has no question 'P9.9'"),
        ({"points": "1", "student_id": "bob"}, "row 3: bob has two rows for P1.4"),
    ],
)
def test_a_table_with_an_error_is_refused_completely(graded, tmp_path, change, error):
    path = tmp_path / "questions.csv"
    call("marks", graded.out, "--write", path)
    rows = read(path)
    rows[1]["points"] = "3"
    rows[0] |= change
    write(path, rows)
    result = call("marks", graded.out, "--read", path)
    assert error in result.exception.parts["got"]
    with Gradebook(graded.gradebook) as book:
        assert book.manual_marks() == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["grade", "absent", "--out", "out"],
        ["grade", ".", "--out", "out"],
        ["grade", "class", "--out", "file"],
        ["grade", "class", "--out", "out"],
        ["grade", "class", "--out", "out", "--seed-file", "absent"],
        ["grade", "class", "--out", "out", "--seed-file", "file"],
        ["grade", "class", "--out", "out", "--late", "rules"],
        ["export", "absent", "--to", "x"],
        ["export", "file", "--to", "x"],
        ["export", "out", "--to", "x", "--format", "excel"],
        ["export", "out", "--to", "x", "--format", "canvas", "--fill", "absent"],
        ["marks", "absent", "--write", "x"],
    ],
    ids=" ".join,
)
def test_bad_input_is_a_message_and_exit_code_2(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "class").mkdir()
    (tmp_path / "rules").write_text("x = 1")
    monkeypatch.setattr(sys, "argv", ["mlhood", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "where: " in capsys.readouterr().err
