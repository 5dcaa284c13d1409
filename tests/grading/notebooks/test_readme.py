"""The README shows what the executed notebooks show: their pictures, the syllabus, and badges that are true."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.notebooks.readme import (
    EXCERPTS,
    IMAGES,
    markdown_table,
    output,
    readme_files,
)
from mlhood.grading.projects import PROJECTS

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


TABLE = (
    "<table><tr><th></th><th>ms</th></tr><tr><td>C1 | C2</td><td>1.5</td></tr><tr><td>C3</td><td>2</td></tr></table>"
)


@pytest.fixture
def repository(tmp_path):
    for name in ("README.md", "pyproject.toml", *(f"{name}.ipynb" for name in EXCERPTS)):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", EXCERPTS)
def test_the_cells_of_an_excerpt_show_a_picture_and_a_table(name):
    notebook, excerpt = read(ROOT / f"{name}.ipynb"), EXCERPTS[name]
    assert output(notebook, excerpt.picture, "image/png")
    table = output(notebook, excerpt.table, "text/html")
    assert (markdown_table(table) in TEXT) == (name == "P4")


def test_the_readme_shows_the_picture_of_every_notebook_and_no_image_is_missing():
    shown = set(re.findall(rf"{IMAGES}/[\w.-]+", TEXT))
    assert set(readme_files(ROOT, PROJECTS.values())) - {"README.md"} <= shown
    assert all((ROOT / name).is_file() for name in shown)


def test_a_changed_output_changes_its_picture_alone(repository):
    before = readme_files(repository, PROJECTS.values())
    notebook = read(repository / "P4.ipynb")
    picture = new_output("display_data", {"image/png": base64.b64encode(b"changed").decode()})
    next(cell for cell in notebook.cells if cell.id == EXCERPTS["P4"].picture).outputs = [picture]
    write(notebook, repository / "P4.ipynb")
    after = readme_files(repository, PROJECTS.values())
    assert {name: after[name] for name in after if after[name] != before[name]} == {f"{IMAGES}/P4.png": b"changed"}


def test_a_notebook_that_is_not_executed_leaves_its_picture_as_it_is(repository):
    before = readme_files(repository, PROJECTS.values())
    notebook = read(repository / "P5.ipynb")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    write(notebook, repository / "P5.ipynb")
    after = readme_files(repository, PROJECTS.values())
    assert after == {name: content for name, content in before.items() if name != f"{IMAGES}/P5.png"}


def test_the_first_output_of_a_type_counts():
    shown = [new_output("display_data", {"text/plain": "x"}), new_output("display_data", {"text/html": "<b>y</b>"})]
    notebook = new_notebook(cells=[new_code_cell("y", id="a", outputs=shown)])
    assert output(notebook, "a", "text/html") == "<b>y</b>"
    assert output(notebook, "a", "image/png") == output(notebook, "b", "text/html") == ""


def test_a_table_in_markdown():
    assert markdown_table(TABLE) == "|  | ms |\n| --- | --- |\n| C1 \\| C2 | 1.5 |\n| C3 | 2 |\n"


def test_the_syllabus_has_the_tasks_and_hours_of_every_project(repository):
    rows = re.findall(r"^\| [\d–]+ \| (P\d) \| [^|]* \| (\d+) \| ([\d.]+) \|", TEXT, re.MULTILINE)
    assert [(name, int(tasks)) for name, tasks, _ in rows] == [(p.id, len(p.tasks)) for p in PROJECTS.values()]
    minutes = [sum(task.minutes for task in project.tasks) for project in PROJECTS.values()]
    assert [float(hours) for *_, hours in rows] == pytest.approx([m / 60 for m in minutes], abs=0.05)
    stale = re.sub(r"\| \d+ \| [\d.]+ \|", "| 0 | 0.0 |", TEXT)
    (repository / "README.md").write_text(stale, encoding="utf-8")
    assert readme_files(repository, PROJECTS.values())["README.md"].decode() == TEXT


def test_the_badge_counts_what_the_course_has():
    tasks, points = zip(*((len(project.tasks), project.points) for project in PROJECTS.values()), strict=True)
    badge = (ROOT / IMAGES / "course.svg").read_text(encoding="utf-8")
    assert f"course: {len(PROJECTS)} projects, {sum(tasks)} tasks, {sum(points):g} points" in badge
