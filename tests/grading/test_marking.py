"""The table in which a person gives points for written answers and undecided tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

from mlhood.errors import GradingError
from mlhood.grading import marking
from mlhood.grading.checks.marks import ManualMark
from mlhood.grading.gradebook.gradebook import Gradebook, MarkedItem
from mlhood.grading.gradebook.records import records
from mlhood.grading.marking import MAX_ANSWER, read_manual_marks, write_manual_marks
from mlhood.grading.notebooks.questions import QuestionText, RubricRow, own_code, written_answers
from mlhood.grading.projects import PROJECTS
from tests.grading.batch.fake_grader import OPEN
from tests.grading.test_class_commands import read, write


def test_what_a_student_has_written_is_found(course, monkeypatch):
    monkeypatch.setitem(PROJECTS, "T9", course.SYNTHETIC)
    notebook = course.notebook()
    notebook.cells.append(new_code_cell("mine = 1"))
    assert written_answers(notebook) == {"T9.4": "Because."}
    own = {source for _, source in own_code(notebook, "T9", ())}
    assert own >= {"mine = 1", *course.SOLUTIONS.values()}
    assert (written_answers(None), own_code(None, "T9", ())) == ({}, [])


@pytest.mark.parametrize("text", ["YOUR ANSWER HERE", "\nYOUR ANSWER HERE\n", "", " "])
def test_a_question_without_an_answer_has_none_in_the_table(text, course):
    notebook = course.notebook()
    cell = next(cell for cell in notebook.cells if cell.source == "Because.")
    cell.source = text
    assert written_answers(notebook)["T9.4"].strip() == ""
    cell.source = f"{text}\nBecause."
    assert "Because." in written_answers(notebook)["T9.4"]


@pytest.fixture
def undecided(fake_class, monkeypatch):
    """A class with an undecided task, whose table is written."""
    monkeypatch.setattr(marking, "own_code", lambda *given: [(7, "exec(text)"), (9, "x" * 40_000)])
    text = QuestionText("Why?", (RubricRow("a reason", 1.5),))
    monkeypatch.setattr(marking, "synced_questions", lambda project: {"P1.4": text})
    fake_class.submit(ada="P1 open-P1.2").grade()
    write_manual_marks(fake_class.gradebook, fake_class.out / "table.csv")
    return fake_class


def fill(fake_class, **changes: str) -> None:
    """Fill in the first row, and read the table."""
    rows = read(fake_class.out / "table.csv")
    write(fake_class.out / "table.csv", [rows[0] | changes, *rows[1:]])
    with Gradebook(fake_class.gradebook) as book:
        read_manual_marks(book, fake_class.out / "table.csv")


def test_an_undecided_task_is_decided_in_the_table(undecided):
    message = write_manual_marks(undecided.gradebook, undecided.out / "table.csv")
    assert message == f"2 rows in {undecided.out / 'table.csv'}, 1 of them undecided tasks; fill in the column `points`"
    task, question = read(undecided.out / "table.csv")
    assert (task["question"], task["undecided"]) == ("P1.2", OPEN)
    assert task["answer"].startswith("# cell 7\nexec(text)\n\n# cell 9\nxx")
    assert len(task["answer"]) == MAX_ANSWER
    assert Path(task["answer"].rpartition(" ")[2]).is_file()
    assert (task["by_checks"], task["most"], task["points"]) == ("4", "10", "")
    assert (question["text"], question["rubric"], task["rubric"]) == ("Why?", "1.5: a reason", "")
    assert (question["question"], question["undecided"], question["file"]) == ("P1.4", "", "")
    with pytest.raises(GradingError) as caught:
        fill(undecided, points="10.5")
    assert caught.value.parts["got"] == "row 2: 10.5 points for P1.2 are not within 0 and 10"
    fill(undecided, points="6,5", comment="reads a file")
    with Gradebook(undecided.gradebook) as book:
        book.put_manual_marks({MarkedItem("ada", "P1.4"): ManualMark(5)})
        (record,) = records(book)
    assert (record.score, record.tasks[1].decision) == (31.5, ManualMark(6.5, "reads a file"))
    write_manual_marks(undecided.gradebook, undecided.out / "table.csv")
    assert [row["points"] for row in read(undecided.out / "table.csv")] == ["6.5", "5"]


def test_a_row_of_a_replaced_file_is_refused(undecided):
    fill(undecided, points="6")
    undecided.submit(ada="P1 open-P1.2 x").grade()
    with pytest.raises(GradingError) as caught:
        fill(undecided, points="7")
    assert "row 2: ada has another file than the one of this row for P1.2" in caught.value.parts["got"]
    write_manual_marks(undecided.gradebook, undecided.out / "table.csv")
    row = read(undecided.out / "table.csv")[0]
    assert (row["points"], row["by_checks"]) == ("", "4")
    undecided.submit(ada="P1").grade()
    with pytest.raises(GradingError) as caught:
        fill(undecided, points="7")
    assert "ada has no question 'P1.2', nor an undecided task of that name" in caught.value.parts["got"]
