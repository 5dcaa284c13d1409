"""Every typical wrong solution costs exactly its points and says why; every right one gets all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from p1_right import RIGHT
from p1_wrong import WRONG, Wrong

from mlhood.exchange import find_browser
from mlhood.grading.grade import grade
from mlhood.grading.marks import Marks
from mlhood.grading.notebook import label
from mlhood.grading.projects import PROJECTS
from mlhood.grading.stubs import stubbed

P1 = PROJECTS["P1"]
MASTER = Path(__file__).parents[2] / "P1.ipynb"
SECRET_SEED = 20_260_117
pytestmark = pytest.mark.slow


def sheet_of(entry: Wrong) -> int:
    """Wrong solutions share a notebook with those of other tasks: the k-th of each task are in sheet k.

    So a check that fails for another task's fault shows, and the gallery runs in a few notebooks.
    """
    return [other.name for other in WRONG if other.task == entry.task].index(entry.name)


SHEETS = 1 + max(map(sheet_of, WRONG))


def marks_of(cells: dict[str, str], folder: Path) -> Marks:
    notebook = nbformat.read(MASTER, as_version=4)
    known = {cell.id: cell for cell in notebook.cells}
    for name, source in cells.items():
        known[name].source = source.strip("\n")
    folder.mkdir()
    return grade(notebook, P1, folder, seed=SECRET_SEED)


@pytest.fixture(scope="module")
def marked(tmp_path_factory) -> Iterator[dict[object, Future[Marks]]]:
    """All notebooks of the gallery, two at a time."""
    base = tmp_path_factory.mktemp("gallery")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # two kernels side by side, each on a core of its own
    sheets = {k: {} for k in range(SHEETS)}
    for entry in WRONG:
        sheets[sheet_of(entry)] |= entry.cells
    with ThreadPoolExecutor(2) as pool:
        yield {
            name: pool.submit(marks_of, cells, base / f"run-{i}")
            for i, (name, cells) in enumerate({**sheets, **RIGHT}.items())
        }
    monkeypatch.undo()


@pytest.mark.parametrize("entry", WRONG, ids=lambda entry: f"{entry.task} {entry.name}")
def test_a_wrong_solution_loses_exactly_its_points(entry, marked):
    if entry.task == "P1.7" and find_browser() is None:
        pytest.skip("no browser to print the graph with")
    result = next(task for task in marked[sheet_of(entry)].result().tasks if task.id == entry.task)
    failed = [check for check in result.checks if check.status == "failed"]
    assert {check.name for check in failed} == set(entry.loses), failed
    said = "\n".join(" ".join([check.what, *check.parts.values()]) for check in failed)
    assert re.search(entry.says, said), said


@pytest.mark.parametrize("sheet", range(SHEETS))
def test_tasks_beside_a_wrong_one_keep_their_points(sheet, marked):
    wrong = {entry.task for entry in WRONG if sheet_of(entry) == sheet}
    others = [task for task in marked[sheet].result().tasks if task.id not in wrong]
    assert [(task.id, task.earned) for task in others] == [(task.id, task.points) for task in others], others


@pytest.mark.parametrize("style", RIGHT)
def test_a_right_solution_in_any_style_gets_all_points(style, marked):
    marks = marked[style].result()
    failed = [check for task in marks.tasks for check in task.checks if check.status == "failed"]
    assert not failed, failed
    assert marks.earned == marks.points == 100 - marks.skipped


def test_the_empty_notebook_gets_nothing_and_is_told_where_to_begin(tmp_path):
    notebook = nbformat.read(MASTER, as_version=4)
    for cell in notebook.cells:
        if (known := label(cell)) and known.role == "solution":
            cell.source = stubbed(cell, cell.id)
    marks = grade(notebook, P1, tmp_path, seed=SECRET_SEED)
    assert marks.earned == 0
    first = marks.tasks[0].checks[0]
    assert "not written yet" in first.what, first


def test_the_gallery_covers_every_check():
    covered = {(entry.task, name) for entry in WRONG for name in entry.loses}
    assert covered == {(task.id, check.name) for task in P1.tasks for check in task.checks}
