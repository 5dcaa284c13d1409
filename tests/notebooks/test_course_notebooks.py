"""The root notebooks as readers and graders need them: they render, their markers balance, their tasks are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlhood.grading.notebooks.notebook import check_source, label, project_of, read
from mlhood.grading.notebooks.render import notebook_html
from mlhood.grading.notebooks.stubs import student_version
from mlhood.grading.student.validate import changes, empty_tasks, structure

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
    assert [finding.what for finding in [*structure(notebook, project), *changes(notebook, project)]] == []
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
