"""The course's own notebooks get all points as a class does: by `mlhood grade`, in the sandbox."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE, Gradebook
from mlhood.grading.gradebook.records import records
from mlhood.grading.projects import PROJECTS
from mlhood.grading.sandbox.bubblewrap import problem

ROOT = Path(__file__).parents[2]
GRADE = "from mlhood.cli import main; main()"
pytestmark = pytest.mark.slow


@pytest.mark.skipif(bool(problem()), reason="no sandbox on this machine")
@pytest.mark.parametrize("project", sorted(PROJECTS))
def test_a_solved_notebook_gets_all_points(tmp_path, project):
    folder = tmp_path / "submitted" / "ada" / project
    folder.mkdir(parents=True)
    shutil.copy(ROOT / f"{project}.ipynb", folder)
    words = ["grade", str(tmp_path / "submitted"), "--out", str(tmp_path / "graded")]
    done = subprocess.run([sys.executable, "-c", GRADE, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    with Gradebook(tmp_path / "graded" / GRADEBOOK_FILE, must_exist=True) as book:
        (record,) = records(book)
    lost = [(task.id, check) for task in record.tasks for check in task.checks if check.status != "passed"]
    assert lost == []
