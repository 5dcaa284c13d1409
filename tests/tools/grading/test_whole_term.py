"""The class of ten that a term is tried with. The term itself runs by its command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode

from mlhood.grading.intake.collect import collect
from mlhood.grading.notebooks.notebook import cell_name, label, read
from mlhood.grading.notebooks.source_notebook import source_of_variant, student_version
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import variant
from tests.tools.grading.ten_students import TenStudents, as_canvas, as_classroom
from tests.tools.grading.whole_term import CHANGED_CHECK, CHANGED_MODULE, PACKAGE

ROOT = Path(__file__).parents[3]
PATH = ROOT / "P1.ipynb"
VARIED = variant(PROJECTS["P1"], "autumn")


@pytest.fixture(scope="module")
def ten():
    public = read(PATH)
    source_notebook = source_of_variant(public, VARIED)
    version = read(PATH)
    version.cells = source_of_variant(public, VARIED).cells
    student_version(version, PATH)
    return TenStudents(version, source_notebook, public).all()


def notebook_of(ten, student: str, folder: Path) -> NotebookNode:
    path = folder / "P1.ipynb"
    path.write_bytes(next(one.content for one in ten if one.student == student))
    return read(path)


def test_both_layouts_have_the_same_ten_submissions(ten, tmp_path):
    clones, archive = as_classroom(ten, tmp_path, "P1"), as_canvas(ten, tmp_path, "P1")
    classroom, canvas = collect(clones, tmp_path / "a"), collect(archive, tmp_path / "b")
    assert {file.student for file in classroom.submissions} == {one.student for one in ten}
    assert {file.student for file in canvas.submissions} == {str(one.number) for one in ten}
    assert sum(file.late is True for file in canvas.submissions) == 1


def test_the_others_have_not(ten, tmp_path):
    assert "YOUR CODE HERE" in str(notebook_of(ten, "eve", tmp_path))
    assert "kill -9" in str(notebook_of(ten, "hal", tmp_path))
    empty = notebook_of(ten, "ivy", tmp_path)
    assert all(
        "YOUR CODE HERE" in cell.source
        for cell in empty.cells
        if (labelled := label(cell)) and labelled.role == "solution"
    )
    public = {cell_name(cell): cell.source for cell in notebook_of(ten, "gus", tmp_path).cells}
    assert public != {cell_name(cell): cell.source for cell in notebook_of(ten, "ada", tmp_path).cells}


def test_the_check_that_a_term_changes_is_one_of_p1_1():
    text = (PACKAGE / CHANGED_MODULE).read_text(encoding="utf-8")
    name = re.findall(r"^def (\w+)", CHANGED_CHECK.search(text).group(0))
    task = PROJECTS["P1"].task("P1.1")
    assert name[0] in {check.name for check in task.checks}
    compile(CHANGED_CHECK.sub(r"\1    return\n", text), "changed", "exec")
