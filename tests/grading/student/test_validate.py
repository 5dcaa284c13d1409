from __future__ import annotations

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import NotebookError
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.student.validate import changes, missing_cells, validate
from tests.grading import given_course


def repairs(book, course):
    return [finding.what for finding in missing_cells(book, course.SYNTHETIC)]


def notes(book, course):
    return [finding.what for finding in changes(book, course.SYNTHETIC)]


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


def test_a_solved_task_is_not_empty_though_a_helper_is(course, tmp_path):
    helper = "\n\ndef helper():\n    # YOUR CODE HERE\n    raise NotImplementedError()"
    write(course.notebook(course.SOLUTIONS | {"T9.2": course.SOLUTIONS["T9.2"] + helper}), tmp_path / "T9.ipynb")
    result = validate(tmp_path / "T9.ipynb")
    assert result.ready
    assert result.notes == ()


def test_missing_cells(course):
    book = course.notebook()
    book.cells = [cell for cell in book.cells if cell.id not in ("T9-2-check", "T9-4-question")]
    assert repairs(book, course) == ["the answer cell of the question T9.4 is missing"]
    book.cells = [cell for cell in book.cells if cell.id != "T9-1-solution"]
    assert repairs(book, course)[0] == "the solution cell of T9.1 is missing"


def test_changes_of_given_cells_are_listed_but_no_fault(course, tmp_path, monkeypatch):
    given_course.sync(tmp_path / "synced", monkeypatch)
    book = given_course.notebook()
    assert notes(book, course) == repairs(book, course) == []
    given = by_id(book, "T9-2-given")
    given.source = "print('mine')"
    assert notes(book, course) == [
        "the given cell of T9.2 was changed: your version runs first, then the cell as it was given"
    ]
    book.cells.remove(given)
    write(book, tmp_path / "T9.ipynb")
    result = validate(tmp_path / "T9.ipynb")
    assert result.ready
    assert "  - the given cell of T9.2 is missing: it runs as it was given" in result.text().splitlines()
    assert result.text().endswith("ready to hand in")


def test_changed_type(course):
    book = course.notebook()
    by_id(book, "T9-1-solution").cell_type = "markdown"
    assert repairs(book, course) == ["the solution cell of T9.1 has become a text cell"]
    by_id(book, "T9-4-question").cell_type = "raw"
    assert repairs(book, course)[1] == "the answer cell of the question T9.4 has become a raw cell"


def test_cell_that_fails_is_named(course, tmp_path):
    book = course.notebook(course.SOLUTIONS | {"T9.2": "import os\nundefined_name"})
    write(book, tmp_path / "T9.ipynb")
    result = validate(tmp_path / "T9.ipynb")
    assert not result.ready
    (finding,) = result.repairs
    assert finding.task == "T9.2"
    assert "cell 8 of T9.2 (`import os`) fails" in finding.what
    assert "NameError" in finding.what


def test_failure_after_an_empty_task_is_only_a_note(course, tmp_path):
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
    book.cells.remove(by_id(book, "T9-2-solution"))
    write(book, tmp_path / "T9.ipynb")
    text = CliRunner().invoke(app, ["validate", str(tmp_path / "T9.ipynb")])
    assert text.exit_code == 1
    assert "  1. the solution cell of T9.2 is missing" in text.stdout


def test_a_function_that_was_renamed_is_to_be_repaired(course, tmp_path):
    book = course.notebook(course.SOLUTIONS | {"T9.1": "def twice(x):\n    return 2 * x"})
    write(book, tmp_path / "T9.ipynb")
    result = validate(tmp_path / "T9.ipynb")
    assert [finding.what for finding in result.repairs if finding.task == "T9.1"][-1:] == [
        "T9.1: the notebook defines no `double`"
    ]


def test_conflicts_of_git_are_named(solved, tmp_path):
    text = solved.read_text().replace(
        '"cells"', '\n<<<<<<< HEAD\n"cells"\n=======\n"cells"\n>>>>>>> theirs\n"cells"', 1
    )
    (tmp_path / "T9.ipynb").write_text(text)
    with pytest.raises(NotebookError, match="git could not merge two versions of this notebook"):
        validate(tmp_path / "T9.ipynb")
