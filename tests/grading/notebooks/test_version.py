"""A notebook of another version is refused; one whose cells a student deleted, copied or pasted is not."""

from __future__ import annotations

import copy

import pytest

from mlhood.errors import NotebookError
from mlhood.grading.execution.grade_notebook import grade_file
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.notebooks.version import require_current_version
from mlhood.grading.student.validate import validate
from tests.grading import given_course
from tests.grading.given_course import by_id
from tests.grading.synthetic_course import SYNTHETIC

GIVEN = "T9-2-given"


@pytest.fixture(autouse=True)
def synced(course, tmp_path, monkeypatch):
    given_course.sync(tmp_path / "synced", monkeypatch)


def renamed(name: str):
    """The notebook of a version in which the given cell had another name."""
    book = given_course.notebook()
    cell = by_id(book, GIVEN)
    cell["id"] = cell.metadata.nbgrader.grade_id = name
    return book


def test_the_notebook_of_this_version_is_accepted():
    require_current_version(given_course.notebook(), SYNTHETIC, "T9.ipynb")


@pytest.mark.parametrize("role", ["given", "check", "result"])
def test_a_notebook_of_another_version_is_refused(role):
    with pytest.raises(NotebookError, match="another version") as caught:
        require_current_version(renamed(f"T9-2-{role}-7"), SYNTHETIC, "T9.ipynb")
    assert f"T9-2-{role}-7" in caught.value.parts["got"]
    assert "notebook of this version" in caught.value.parts["what to do"]


@pytest.mark.parametrize("use", [grade_file, validate])
def test_it_is_refused_before_anything_runs(use, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{grade_file.__module__}.NotebookKernels", lambda *_: pytest.fail("too late"))
    write(renamed("T9-2-given-7"), tmp_path / "T9.ipynb")
    with pytest.raises(NotebookError, match="another version"):
        use(tmp_path / "T9.ipynb")


def test_deleted_cells_are_not_another_version():
    book = given_course.notebook()
    book.cells = [cell for cell in book.cells if cell["id"] != GIVEN]
    require_current_version(book, SYNTHETIC, "T9.ipynb")


def test_a_cell_pasted_from_another_version_is_the_students():
    book = given_course.notebook()
    book.cells.append(by_id(renamed("T9-2-given-7"), "T9-2-given-7"))
    require_current_version(book, SYNTHETIC, "T9.ipynb")


@pytest.mark.parametrize("name", ["P1-2-given-7", "T9-2-solution-7", "my-cell", "T9-x-given"])
def test_other_names_are_the_students(name):
    require_current_version(renamed(name), SYNTHETIC, "T9.ipynb")


def test_cells_without_names_are_matched_by_content():
    book = copy.deepcopy(given_course.notebook())
    for cell in book.cells:
        cell.metadata, cell["id"] = type(cell.metadata)(), f"x{id(cell)}"
    require_current_version(book, SYNTHETIC, "T9.ipynb")
