"""Every typical wrong solution costs exactly its points and says why; every right one gets all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from mlhood.exchange import find_browser, lenet_onnx
from mlhood.grading.checks import timing
from mlhood.grading.checks.marks import Marks
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_notebook import grade
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.notebooks.stubs import stubbed
from mlhood.grading.projects import PROJECTS
from tests.grading.projects import (
    p1_right,
    p1_wrong,
    p2_right,
    p2_wrong,
    p3_right,
    p3_snippets,
    p3_wrong,
    p4_right,
    p4_snippets,
    p4_wrong,
    p5_right,
    p5_snippets,
    p5_wrong,
)
from tests.grading.projects.gallery import Wrong

ROOT = Path(__file__).parents[3]
WRONG: tuple[Wrong, ...] = (*p1_wrong.WRONG, *p2_wrong.WRONG, *p3_wrong.WRONG, *p4_wrong.WRONG, *p5_wrong.WRONG)
RIGHT: dict[str, dict[str, dict[str, str]]] = {
    "P1": p1_right.RIGHT,
    "P2": p2_right.RIGHT,
    "P3": p3_right.RIGHT,
    "P4": p4_right.RIGHT,
    "P5": p5_right.RIGHT,
}
# right cells for all notebooks of a project whose entries do not bring their own
QUICKER = {"P3": p3_snippets.QUICK, "P4": p4_snippets.QUICK, "P5": p5_snippets.QUICK}
STYLES = [(project, style) for project, styles in RIGHT.items() for style in styles]
SECRET_SEED = 20_260_117
WITH_THE_PACKAGE = "with the package"
pytestmark = pytest.mark.slow


def project_of(entry: Wrong) -> str:
    return entry.task.split(".")[0]


def sheet_of(entry: Wrong) -> int:
    """Wrong solutions share a notebook with those of other tasks: the k-th of each task are in sheet k.

    So a check that fails for another task's fault shows, and the gallery runs in a few notebooks.
    """
    return [other.name for other in WRONG if other.task == entry.task].index(entry.name)


SHEETS = list(dict.fromkeys((project_of(entry), sheet_of(entry)) for entry in WRONG))


def master(project: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / f"{project}.ipynb", as_version=4)


def asked(project: str, place: object) -> Project:
    """A project; where the package solves its tasks, to see that it does, they do not mind that."""
    if place != WITH_THE_PACKAGE:
        return PROJECTS[project]
    tasks = tuple(replace(task, forbidden=()) for task in PROJECTS[project].tasks)
    return replace(PROJECTS[project], tasks=tasks)


def marks_of(project: Project, cells: dict[str, str], folder: Path, files: dict[str, bytes]) -> Marks:
    notebook = master(project.id)
    known = {cell.id: cell for cell in notebook.cells}
    for name, source in {**QUICKER.get(project.id, {}), **cells}.items():
        known[name].source = source.strip("\n")
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return grade(notebook, project, folder, seed=SECRET_SEED)


class Marking:
    """The notebooks of the gallery; those of a project are begun when the first of them is asked for.

    Two at a time, or one where another process of pytest works beside this one.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.pool = ThreadPoolExecutor(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
        self.marks: dict[tuple[str, object], Future[Marks]] = {}

    def of(self, project: str, place: object) -> Marks:
        """The marks of a sheet of wrong solutions, by its number, or of a style of right ones, by its name."""
        if (project, place) not in self.marks:
            self._begin(project)
        return self.marks[project, place].result()

    def _begin(self, project: str) -> None:
        files = self._files(project)
        sheets: dict[object, dict[str, str]] = {}
        for entry in WRONG:
            if project_of(entry) == project:
                sheets.setdefault(sheet_of(entry), {}).update(entry.cells)
        for place, cells in {**sheets, **RIGHT[project]}.items():
            folder = self.base / f"{project}-{len(self.marks)}"
            self.marks[project, place] = self.pool.submit(marks_of, asked(project, place), cells, folder, files)

    def _files(self, project: str) -> dict[str, bytes]:
        """What P1 leaves for P2, so that not each of its notebooks has to train a network of its own."""
        if project != "P2":
            return {}
        lenet_onnx(self.base / "lenet.onnx")
        return {"lenet.onnx": (self.base / "lenet.onnx").read_bytes()}


@pytest.fixture(scope="module")
def marked(tmp_path_factory) -> Iterator[Marking]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")  # two kernels side by side, each on a core of its own
        monkeypatch.setattr(timing, "TABLE_SECONDS", 0.0)  # one claim of a table is enough for each of so many
        marking = Marking(tmp_path_factory.mktemp("gallery"))
        with marking.pool:
            yield marking


@pytest.mark.parametrize("entry", WRONG, ids=lambda entry: f"{entry.task} {entry.name}")
def test_a_wrong_solution_loses_exactly_its_points(entry, marked):
    if entry.task == "P1.7" and find_browser() is None:
        pytest.skip("no browser to print the graph with")
    marks = marked.of(project_of(entry), sheet_of(entry))
    result = next(task for task in marks.tasks if task.id == entry.task)
    failed = [check for check in result.checks if check.status == "failed"]
    assert {check.name for check in failed} == set(entry.loses), failed
    said = "\n".join(" ".join([check.what, *check.parts.values()]) for check in failed)
    assert re.search(entry.says, said), said


@pytest.mark.parametrize(("project", "sheet"), SHEETS)
def test_tasks_beside_a_wrong_one_keep_their_points(project, sheet, marked):
    wrong = {entry.task for entry in WRONG if (project_of(entry), sheet_of(entry)) == (project, sheet)}
    others = [task for task in marked.of(project, sheet).tasks if task.id not in wrong]
    assert [(task.id, task.earned) for task in others] == [(task.id, task.points) for task in others], others


@pytest.mark.parametrize(("project", "style"), STYLES)
def test_a_right_solution_in_any_style_gets_all_points(project, style, marked):
    marks = marked.of(project, style)
    failed = [check for task in marks.tasks for check in task.checks if check.status == "failed"]
    assert not failed, failed
    assert marks.earned == marks.points == 100 - marks.skipped


@pytest.mark.parametrize("project", RIGHT)
def test_the_empty_notebook_gets_nothing_and_is_told_where_to_begin(project, tmp_path):
    notebook = master(project)
    for cell in notebook.cells:
        if (known := label(cell)) and known.role == "solution":
            cell.source = stubbed(cell, cell.id)
    marks = grade(notebook, PROJECTS[project], tmp_path, seed=SECRET_SEED)
    assert marks.earned == 0
    first = marks.tasks[0].checks[0]
    assert "not written yet" in first.what, first


@pytest.mark.parametrize("project", [PROJECTS[name] for name in RIGHT], ids=lambda project: project.id)
def test_the_gallery_covers_every_check(project: Project):
    covered = {(entry.task, name) for entry in WRONG for name in entry.loses if project_of(entry) == project.id}
    assert covered == {(task.id, check.name) for task in project.tasks for check in task.checks}
