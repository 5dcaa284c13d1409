"""The course's own notebooks get all points as a class does: by `mlhood grade`, in the sandbox."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE, Gradebook
from mlhood.grading.gradebook.records import records
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.projects import PROJECTS
from mlhood.grading.sandbox.bubblewrap import problem
from tests.grading.projects.quick import quick_source, source_notebook

ROOT = Path(__file__).parents[2]
GRADE = "from mlhood.cli import main; main()"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(problem()), reason="no sandbox on this machine")]


@pytest.mark.parametrize("source", [quick_source, pytest.param(source_notebook, marks=pytest.mark.exhaustive)])
def test_solved_notebooks_get_all_points(tmp_path, source):
    for project in PROJECTS:
        (tmp_path / "submitted" / "ada" / project).mkdir(parents=True)
        write(source(project), tmp_path / "submitted" / "ada" / project / f"{project}.ipynb")
    words = ["grade", str(tmp_path / "submitted"), "--out", str(tmp_path / "graded")]
    done = subprocess.run([sys.executable, "-c", GRADE, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    with Gradebook(tmp_path / "graded" / GRADEBOOK_FILE, must_exist=True) as book:
        graded = records(book)
    assert [record.project.id for record in graded] == sorted(PROJECTS)
    lost = [
        (task.id, check)
        for record in graded
        for task in record.tasks
        for check in task.checks
        if check.status != "passed"
    ]
    assert lost == []
