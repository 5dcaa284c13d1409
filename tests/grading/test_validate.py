from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import NotebookError
from mlhood.grading.notebook import write
from mlhood.grading.stubs import student_version
from mlhood.grading.validate import structure, validate


def repairs(book, course):
    return [finding.what for finding in structure(book, course.SYNTHETIC)]


def by_id(book, name):
    return next(cell for cell in book.cells if cell.id == name)


def test_solved_notebook_is_ready(solved):
    result = validate(solved)
    assert result.ready
    assert result.notes == ()
    assert result.text().endswith("ready to hand in")


def test_empty_notebook_may_be_handed_in_and_names_the_gaps(empty):
    result = validate(empty)
    assert result.ready
    assert [finding.task for finding in result.notes] == ["T9.1", "T9.2", "T9.3", "T9.4"]
    assert "still empty (40 points)" in result.notes[0].what


def test_missing_cells(course):
    book = course.notebook()
    book.cells = [cell for cell in book.cells if cell.id not in ("T9-2-check", "T9-4-question")]
    assert repairs(book, course) == [
        "the check cell of T9.2 is missing",
        "the answer cell of the question T9.4 is missing",
    ]


def test_a_given_cell_of_the_student_edition_is_missed(course):
    book = course.notebook()
    given = new_code_cell("print('given')", id="T9-1-given-1")
    book.cells.insert(1, given)
    student_version(book, Path("T9.ipynb"))
    assert not [what for what in repairs(book, course) if "missing" in what]
    book.cells.remove(given)
    assert "the given cell `T9-1-given-1` of T9.1 is missing" in repairs(book, course)


def test_doubled_cell(course):
    book = course.notebook()
    twin = copy.deepcopy(by_id(book, "T9-1-solution"))
    twin.id = "another"
    book.cells.append(twin)
    assert repairs(book, course) == ["the solution cell of T9.1 stands there more than once"]


def test_changed_kind(course):
    book = course.notebook()
    by_id(book, "T9-1-solution").cell_type = "markdown"
    assert repairs(book, course) == ["the solution cell of T9.1 has become a markdown cell"]


@pytest.mark.parametrize("source", ["", "100.0", 'mlhood.check("T9.2")'])
def test_edited_check(course, source):
    book = course.notebook()
    by_id(book, "T9-1-check").source = source
    assert repairs(book, course) == ["the check cell of T9.1 has been edited"]


def test_cell_that_fails_is_named(course, tmp_path):
    book = course.notebook(course.SOLUTIONS | {"T9.2": "import os\nundefined_name"})
    write(book, tmp_path / "T9.ipynb")
    result = validate(tmp_path / "T9.ipynb")
    assert not result.ready
    (finding,) = result.repairs
    assert finding.task == "T9.2"
    assert "cell 8 of T9.2 (`import os`) fails" in finding.what
    assert "NameError" in finding.what


def test_failure_after_an_empty_task_is_only_noted(course, tmp_path):
    book = course.notebook(course.SOLUTIONS | {"T9.2": course.EMPTY["T9.2"], "T9.3": "open('answer.txt').read()"})
    write(book, tmp_path / "T9.ipynb")
    result = validate(tmp_path / "T9.ipynb")
    assert result.ready
    assert "perhaps because T9.2 is still empty" in result.notes[-1].what


def test_not_of_the_course(course, tmp_path):
    book = course.notebook()
    book.cells = book.cells[:2]
    write(book, tmp_path / "T9.ipynb")
    with pytest.raises(NotebookError, match="no task of the course"):
        validate(tmp_path / "T9.ipynb")


def test_command(course, tmp_path):
    book = course.notebook()
    by_id(book, "T9-1-check").source = "40"
    write(book, tmp_path / "T9.ipynb")
    text = CliRunner().invoke(app, ["validate", str(tmp_path / "T9.ipynb")])
    assert text.exit_code == 1
    assert "  1. the check cell of T9.1 has been edited" in text.stdout
    plain = CliRunner().invoke(app, ["validate", str(tmp_path / "T9.ipynb"), "--json"])
    assert json.loads(plain.stdout)["ready"] is False
