"""The package knows the notebooks of the course as they are, and what it rebuilds of them are they themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from mlhood.grading.notebooks.master import SOLUTION, as_cells
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.restore import as_it_stands, rebuild, untouched
from mlhood.grading.notebooks.stubs import student_version
from mlhood.grading.notebooks.sync import carried

ROOT = Path(__file__).parents[3]
MASTERS = sorted(ROOT.glob("P[1-9].ipynb"))


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.name)
@pytest.mark.parametrize("edition", ["solved", "student's"])
def test_a_notebook_of_the_course_is_run_as_it_stands(path, edition):
    book = read(path)
    if edition != "solved":
        student_version(book, path)
    found = rebuild(book, project_of(book, path))
    assert found.changes == ()
    assert [id(part.cell) for part in found.parts] == [id(cell) for cell in book.cells]
    assert as_it_stands(book, project_of(book, path)) == found


def test_the_package_carries_the_notebooks_own_cells_as_they_are_now():
    known = {name: (ROOT / name).read_text(encoding="utf-8") for name in carried(MASTERS)}
    assert known == carried(MASTERS), "run `python -m mlhood.grading.notebooks.sync` in the folder of the course"


def test_no_solution_is_carried():
    for name in carried(MASTERS):
        cells = [cell for cell in as_cells((ROOT / name).read_text(encoding="utf-8")) if cell.role == SOLUTION]
        assert all("raise NotImplementedError()" in cell.source for cell in cells)
        assert cells


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.name)
def test_a_notebook_without_labels_and_names_is_rebuilt_by_content(path):
    book = read(path)
    whole = rebuild(book, project_of(book, path)).parts
    bare = new_notebook(cells=[new_code_cell(cell.source) for cell in book.cells if cell.cell_type == "code"])
    found = rebuild(bare, project_of(bare, path))
    assert found.changes == ()
    wanted = [(part.cell.source, part.own) for part in whole if part.cell.cell_type == "code"]
    assert [(part.cell.source, part.own) for part in found.parts] == wanted


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.name)
def test_a_notebook_is_untouched_until_code_is_written(path):
    book = read(path)
    project = project_of(book, path)
    assert not untouched(book, project)
    student_version(book, path)
    book.cells.append(new_code_cell("  "))
    assert untouched(book, project)
    book.cells.append(new_code_cell("def im2col(x): return x"))  # all stubs are there still
    assert not untouched(book, project)
    book.cells.pop()
    cell = next(cell for cell in book.cells if cell.get("id") == f"{path.stem}-1-solution")
    cell.source = cell.source.replace("raise NotImplementedError()", "return 1")  # below "YOUR CODE HERE"
    assert not untouched(book, project)
