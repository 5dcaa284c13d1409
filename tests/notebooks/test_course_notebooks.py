"""The root notebooks as readers and graders need them: they render, their markers balance, their tasks are whole."""

from __future__ import annotations

import builtins
import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlhood.grading.notebooks.notebook import check_source, label, project_of, read
from mlhood.grading.notebooks.render import notebook_html
from mlhood.grading.notebooks.restore import FEEDBACK_ROLES
from mlhood.grading.notebooks.stubs import student_version
from mlhood.grading.student.validate import changes, empty_tasks, missing_cells

ROOT = Path(__file__).parents[2]
COMPARED = 0.6
every_notebook = pytest.mark.parametrize("path", sorted(ROOT.glob("P[1-9].ipynb")), ids=lambda path: path.name)


def own_cells(notebook, role):
    return [(cell, known.task) for cell in notebook.cells if (known := label(cell)) and known.role == role]


@every_notebook
def test_renders_to_a_page(path):
    page = notebook_html(read(path), path.stem)
    assert page is not None
    assert "<script" not in page
    assert page.count("<img") >= 1


@every_notebook
def test_every_task_is_whole(path):
    notebook = read(path)
    project = project_of(notebook, path)
    assert [finding.what for finding in [*missing_cells(notebook, project), *changes(notebook, project)]] == []
    assert empty_tasks(notebook, project) == {}
    assert project.points == 100


@every_notebook
def test_check_cells_carry_the_points_of_their_task(path):
    notebook = read(path)
    project = project_of(notebook, path)
    checks = own_cells(notebook, "check")
    assert [task for _, task in checks] == [task.id for task in project.tasks]
    for cell, task in checks:
        assert cell.source == check_source(task)
        assert cell.metadata.nbgrader.points == project.task(task).points


@every_notebook
def test_every_solution_has_markers_that_balance(path):
    notebook = read(path)
    for cell, task in own_cells(notebook, "solution"):
        assert "### BEGIN SOLUTION" in cell.source, task
    student_version(notebook, path)
    for cell, task in own_cells(notebook, "solution"):
        assert "raise NotImplementedError()" in cell.source, task
        assert "SOLUTION" not in cell.source


@every_notebook
def test_grade_ids_are_cell_ids(path):
    graded = [cell for cell in read(path).cells if "nbgrader" in cell.metadata]
    ids = [cell.metadata.nbgrader.grade_id for cell in graded]
    assert ids == [cell.id for cell in graded]
    assert len(set(ids)) == len(ids)


@every_notebook
def test_labels_and_grade_ids_agree(path):
    for cell in read(path).cells:
        known = label(cell)
        if known:
            assert cell.id.startswith(f"{known.task.replace('.', '-')}-{known.role}")


@every_notebook
def test_nbval_compares_most_outputs(path):
    cells = [cell for cell in read(path).cells if cell.cell_type == "code" and cell.outputs]
    ignored = [cell for cell in cells if "nbval-ignore-output" in cell.metadata.get("tags", [])]
    assert 1 - len(ignored) / len(cells) >= COMPARED


def names(source: str) -> tuple[set[str], set[str]]:
    """Names that a cell binds at its top level, and those that it reads from other cells."""
    tables = [symtable.symtable(source, "cell", "exec")]
    bound = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    bound |= {child.get_name() for child in tables[0].get_children()}
    read: set[str] = set()
    for table in tables:
        tables.extend(table.get_children())
        inner = table is not tables[0]
        read |= {s.get_name() for s in table.get_symbols() if (s.is_global() if inner else s.is_referenced())}
    return bound, read - bound - set(dir(builtins))


def code_cells(notebook) -> Iterator[tuple[str, str, set[str], set[str]]]:
    """Id, role (empty for none), bound names and read names of each cell of Python; a cell magic is none."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and not cell.source.startswith("%%"):
            known = label(cell)
            yield cell.id, known.role if known else "", *names(cell.source)


@every_notebook
def test_cells_that_are_graded_use_no_name_of_a_cell_that_is_not(path):
    bound_by: dict[str, str] = {}  # name -> the last cell that bound it, empty if grading runs that cell
    for cell, role, bound, used in code_cells(read(path)):
        graded = role not in FEEDBACK_ROLES
        if graded:
            assert {name: bound_by[name] for name in used if bound_by.get(name)} == {}, cell
            assert used <= set(bound_by), cell
        bound_by.update(dict.fromkeys(bound, "" if graded else cell))
