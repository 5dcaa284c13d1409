"""The package's copy of the source notebooks' cells is up to date, and restoring a source notebook changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.restore import as_submitted, is_unmodified, restore
from mlhood.grading.notebooks.source_notebook import SOLUTION, parse_cells, student_version
from mlhood.grading.notebooks.sync import cell_files
from mlhood.grading.projects.package_files import CELLS_FILE

ROOT = Path(__file__).parents[3]
SOURCE_NOTEBOOKS = sorted(ROOT.glob("P[1-9].ipynb"))


@pytest.mark.parametrize("path", SOURCE_NOTEBOOKS, ids=lambda path: path.name)
@pytest.mark.parametrize("version", ["solved", "student's"])
def test_a_notebook_of_the_course_runs_unchanged(path, version):
    book = read(path)
    if version != "solved":
        student_version(book, path)
    restored = restore(book, project_of(book, path))
    assert restored.changes == ()
    assert [id(cell.node) for cell in restored.cells] == [id(cell) for cell in book.cells]
    assert as_submitted(book, project_of(book, path)) == restored


def test_the_copied_cells_contain_no_solution():
    for name in (name for name in cell_files(SOURCE_NOTEBOOKS) if name.endswith(CELLS_FILE)):
        cells = [cell for cell in parse_cells((ROOT / name).read_text(encoding="utf-8")) if cell.role == SOLUTION]
        assert all("raise NotImplementedError()" in cell.source for cell in cells)
        assert cells


@pytest.mark.parametrize("path", SOURCE_NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_without_labels_and_names_is_restored_by_content(path):
    book = read(path)
    expected = [cell for cell in restore(book, project_of(book, path)).cells if cell.node.cell_type == "code"]
    bare = new_notebook(cells=[new_code_cell(cell.source) for cell in book.cells if cell.cell_type == "code"])
    restored = restore(bare, project_of(bare, path))
    assert restored.changes == ()
    sources = [(cell.node.source, cell.intact) for cell in restored.cells]
    assert sources == [(cell.node.source, cell.intact) for cell in expected]


@pytest.mark.parametrize("path", SOURCE_NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_unmodified_until_code_is_written(path):
    book = read(path)
    project = project_of(book, path)
    assert not is_unmodified(book, project)
    student_version(book, path)
    book.cells.append(new_code_cell("  "))
    assert is_unmodified(book, project)
    book.cells.append(new_code_cell("def im2col(x): return x"))  # all stubs are still there
    assert not is_unmodified(book, project)
    book.cells.pop()
    cell = next(cell for cell in book.cells if cell.get("id") == f"{path.stem}-1-solution")
    cell.source = cell.source.replace("raise NotImplementedError()", "return 1")  # below "YOUR CODE HERE"
    assert not is_unmodified(book, project)
