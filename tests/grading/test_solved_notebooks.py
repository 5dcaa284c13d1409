"""The course's own notebooks get all points as a class does: by `mlhood grade`, in the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlhood import cli
from mlhood.grading.batch import executor
from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE, Gradebook
from mlhood.grading.gradebook.records import records
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.projects import PROJECTS
from mlhood.grading.sandbox.bubblewrap import problem
from tests.grading.projects.quick import quick_source, source_notebook

ROOT = Path(__file__).parents[2]
QUICK = "tests.grading.projects.quick_worker"
IN_SUITE = ("P5",)  # it needs most of the sandbox: JAX, and processes that talk to each other
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(problem()), reason="no sandbox on this machine")]


@pytest.mark.parametrize(
    ("source", "worker", "projects"),
    [
        pytest.param(quick_source, QUICK, IN_SUITE, id="quick"),
        pytest.param(source_notebook, executor.WORKER, sorted(PROJECTS), id="full", marks=pytest.mark.exhaustive),
    ],
)
def test_solved_notebooks_get_all_points(source, worker, projects, tmp_path, monkeypatch):
    for project in projects:
        (tmp_path / "submitted" / "ada" / project).mkdir(parents=True)
        write(source(project), tmp_path / "submitted" / "ada" / project / f"{project}.ipynb")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(executor, "WORKER", worker)
    done = CliRunner().invoke(cli.app, ["grade", str(tmp_path / "submitted"), "--out", str(tmp_path / "graded")])
    assert done.exit_code == 0, done.output
    with Gradebook(tmp_path / "graded" / GRADEBOOK_FILE, must_exist=True) as book:
        graded = records(book)
    assert [record.project.id for record in graded] == list(projects)
    lost = [
        (task.id, check)
        for record in graded
        for task in record.tasks
        for check in task.checks
        if check.status != "passed"
    ]
    assert lost == []
