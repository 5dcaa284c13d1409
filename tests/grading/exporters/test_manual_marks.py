"""The table in which a person gives points for written answers and held tasks."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell

from mlhood.errors import GradingError
from mlhood.grading.checks.marks import Decision
from mlhood.grading.exporters import manual_marks
from mlhood.grading.exporters.manual_marks import read_manual_marks, write_manual_marks
from mlhood.grading.gradebook.gradebook import Gradebook, ManualMark
from mlhood.grading.gradebook.records import records
from mlhood.grading.notebooks.answers import open_code, task_code, written_answers
from tests.grading.batch.fake_grader import HELD
from tests.grading.test_class_commands import read, write


def test_what_a_student_has_written_is_found(course):
    notebook = course.notebook()
    notebook.cells.append(new_code_cell("mine = 1"))
    assert written_answers(notebook) == {"T9.4": "Because."}
    assert task_code(notebook) == course.SOLUTIONS
    assert open_code(notebook).endswith("import mlhood\n'given'\n\nmine = 1")
    assert (written_answers(None), task_code(None), open_code(None)) == ({}, {}, "")


@pytest.mark.parametrize("text", ["YOUR ANSWER HERE", "\nYOUR ANSWER HERE\n", "", " "])
def test_a_question_without_an_answer_has_none_in_the_table(text, course):
    notebook = course.notebook()
    cell = next(cell for cell in notebook.cells if cell.source == "Because.")
    cell.source = text
    assert written_answers(notebook)["T9.4"].strip() == ""
    cell.source = f"{text}\nBecause."
    assert "Because." in written_answers(notebook)["T9.4"]


@pytest.fixture
def held(fake_class, monkeypatch):
    """A class with a held task, whose table is written."""
    monkeypatch.setattr(manual_marks, "task_code", lambda notebook: {"P1.2": "=exec(text)"})
    fake_class.submit(ada="P1 held-P1.2 lose-P1.2").grade()
    write_manual_marks(fake_class.gradebook, fake_class.out / "table.csv")
    return fake_class


def fill(fake_class, **changes: str) -> None:
    """Fill in the first row, and read the table."""
    rows = read(fake_class.out / "table.csv")
    write(fake_class.out / "table.csv", [rows[0] | changes, *rows[1:]])
    with Gradebook(fake_class.gradebook) as book:
        read_manual_marks(book, fake_class.out / "table.csv")


def test_a_held_task_is_decided_in_the_table(held):
    message = write_manual_marks(held.gradebook, held.out / "table.csv")
    assert message == f"2 rows in {held.out / 'table.csv'}, 1 of them held tasks; fill in the column `points`"
    task, question = read(held.out / "table.csv")
    assert (task["question"], task["answer"], task["held"]) == ("P1.2", "'=exec(text)", HELD)
    assert (task["by_checks"], task["most"], task["points"]) == ("4", "10", "")
    assert (question["question"], question["held"], question["file"]) == ("P1.4", "", "")
    with pytest.raises(GradingError) as caught:
        fill(held, points="10.5")
    assert caught.value.parts["got"] == "row 2: 10.5 points for P1.2 are not within 0 and 10"
    fill(held, points="6,5", comment="reads a file")
    with Gradebook(held.gradebook) as book:
        book.put_manual_marks([ManualMark("ada", "P1.4", 5)])
        (record,) = records(book)
    assert (record.score, record.tasks[1].decision) == (31.5, Decision(6.5, "reads a file"))
    write_manual_marks(held.gradebook, held.out / "table.csv")
    assert [row["points"] for row in read(held.out / "table.csv")] == ["6.5", "5"]


def test_a_row_of_a_replaced_file_is_refused(held):
    fill(held, points="6")
    held.submit(ada="P1 held-P1.2").grade()
    with pytest.raises(GradingError) as caught:
        fill(held, points="7")
    assert "row 2: ada has another file than the one of this row for P1.2" in caught.value.parts["got"]
    write_manual_marks(held.gradebook, held.out / "table.csv")
    row = read(held.out / "table.csv")[0]
    assert (row["points"], row["by_checks"]) == ("", "10")
    assert row["held"] == f"{HELD}; the 6 points given for an earlier file do not count"
    held.submit(ada="P1").grade()
    with pytest.raises(GradingError) as caught:
        fill(held, points="7")
    assert "ada has no question 'P1.2', nor a held task of that name" in caught.value.parts["got"]
