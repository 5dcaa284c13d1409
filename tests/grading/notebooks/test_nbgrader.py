"""nbgrader accepts our notebooks: its validator, its release, and its grading agree with ours.

nbgrader runs in a process of its own, so its warnings do not fail these tests.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbgrader.nbgraderformat.v3 import MetadataValidatorV3

from mlhood.exchange import find_browser
from mlhood.grading.notebooks.notebook import label, read, write
from mlhood.grading.notebooks.source_notebook import student_version
from tests.grading.projects.quick import quick_source

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted(ROOT.glob("P[1-9].ipynb"))
# nbgrader runs these: they have cells of every kind (questions, tables, a browser, an open task), and are the shortest
GRADED = [path for path in NOTEBOOKS if path.stem in {"P1", "P4"}]
CONFIG = """
c = get_config()
c.CourseDirectory.course_id = "course"
c.Execute.timeout = c.Execute.startup_timeout = 900
c.NbGrader.logfile = ""
"""
SCORES = """
select student.id, sum(coalesce(grade.manual_score, grade.auto_score, 0))
from grade
join submitted_notebook on grade.notebook_id = submitted_notebook.id
join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id
join student on submitted_assignment.student_id = student.id
group by student.id
"""


def nbgrader(course: Path, *arguments: str) -> None:
    """Run nbgrader in a course's folder."""
    command = [sys.executable, "-m", "nbgrader", *arguments]
    tools = str(Path(sys.executable).parent)  # nbgrader calls alembic by its bare name
    environment = os.environ | {"PATH": os.pathsep.join([tools, os.environ.get("PATH", "")])}
    done = subprocess.run(command, cwd=course, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def scores(course: Path) -> dict[str, float]:
    """Points by student, as in nbgrader's gradebook."""
    with sqlite3.connect(course / "gradebook.db") as database:
        rows = database.execute(SCORES).fetchall()
    database.close()
    return dict(rows)


def release(source_notebooks: Sequence[Path], course: Path) -> list[Path]:
    """Return the student versions of notebooks that nbgrader writes, and keep the notebooks as its assignment."""
    (course / "source" / "one").mkdir(parents=True, exist_ok=True)
    (course / "nbgrader_config.py").write_text(CONFIG)
    for source_notebook in source_notebooks:
        shutil.copy(source_notebook, course / "source" / "one" / source_notebook.name)
    nbgrader(course, "generate_assignment", "--force", "one")
    return [course / "release" / "one" / source_notebook.name for source_notebook in source_notebooks]


def grade(solved: Path, released: Path, course: Path) -> dict[str, float]:
    """Return nbgrader's points of a solved notebook and of the empty one."""
    for student, notebook in (("solved", solved), ("empty", released)):
        folder = course / "submitted" / student / "one"
        folder.mkdir(parents=True)
        shutil.copy(notebook, folder / released.name)
    nbgrader(course, "autograde", "one")
    return scores(course)


def without_results(notebook: NotebookNode) -> NotebookNode:
    """Empty the cells that only show results: they earn nothing, and take half of the time."""
    for cell in notebook.cells:
        if (cell_label := label(cell)) and cell_label.role == "result":
            cell.source = ""
    return notebook


def assert_same_cells(ours, theirs) -> None:
    """Our release and nbgrader's have the same text and the same checksums in every cell."""
    assert [cell.source for cell in ours.cells] == [cell.source for cell in theirs.cells]
    checksums = [[cell.metadata.get("nbgrader", {}).get("checksum") for cell in nb.cells] for nb in (ours, theirs)]
    assert checksums[0] == checksums[1]
    locks = [[(c.metadata.get("deletable"), c.metadata.get("editable")) for c in nb.cells] for nb in (ours, theirs)]
    assert locks[0] == locks[1]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_metadata_are_valid(path):
    notebook = read(path)
    MetadataValidatorV3().validate_nb(notebook)
    allowed = {
        "schema_version",
        "grade",
        "locked",
        "solution",
        "task",
        "grade_id",
        "points",
        "checksum",
        "cell_type",
    }
    for cell in notebook.cells:
        assert set(cell.metadata.get("nbgrader", {})) <= allowed


def test_released_metadata_are_valid(course, tmp_path):
    book = course.notebook()
    student_version(book, tmp_path / "T9.ipynb")
    MetadataValidatorV3().validate_nb(book)


@pytest.mark.slow
def test_small_project_in_nbgrader(course, tmp_path, monkeypatch):
    startup = tmp_path / "profile_default" / "startup"  # of nbgrader's kernels
    startup.mkdir(parents=True)
    (startup / "install.py").write_text(course.INSTALL)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    source_notebook = tmp_path / "T9.ipynb"
    write(course.notebook(), source_notebook)
    (released,) = release([source_notebook], tmp_path / "nbgrader")
    assert grade(source_notebook, released, tmp_path / "nbgrader") == {"solved": 80, "empty": 0}
    ours = read(source_notebook)
    student_version(ours, source_notebook)
    assert_same_cells(ours, read(released))


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> dict[Path, Path]:
    """The student versions that nbgrader writes, by source notebook."""
    return dict(zip(NOTEBOOKS, release(NOTEBOOKS, tmp_path_factory.mktemp("released")), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_nbgrader_releases_what_we_release(path, released):
    ours = read(path)
    student_version(ours, path)
    assert_same_cells(ours, read(released[path]))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(not find_browser(), reason="without a browser some checks are skipped, and nbgrader counts them")
@pytest.mark.parametrize("path", GRADED, ids=lambda path: path.name)
def test_nbgrader_gives_our_points(path, tmp_path):
    course = tmp_path / "nbgrader"
    source_notebook, solved = tmp_path / path.name, tmp_path / "solved.ipynb"
    write(without_results(read(path)), source_notebook)
    write(without_results(quick_source(path.stem)), solved)
    (released,) = release([source_notebook], course)
    assert grade(solved, released, course) == {"solved": 100, "empty": 0}
