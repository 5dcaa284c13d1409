"""A project finds the tasks of its check modules by itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlhood.errors import GradingError
from mlhood.grading.checks.task import Task
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import collect_project


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_tasks_come_in_the_order_of_their_numbers(project):
    numbers, questions = (
        [int(each.id.removeprefix(f"{project.id}.")) for each in part] for part in (project.tasks, project.questions)
    )
    assert numbers == sorted(numbers)
    assert sorted([*numbers, *questions]) == [*range(1, len(numbers) + len(questions) + 1)]


def test_a_project_loads_no_module_that_declares_no_tasks():
    code = "import sys, mlhood.grading.projects as p; print([m for m in sys.modules if m.endswith(('.probes', 'jax'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "mlhood.grading.projects.p2.probes" not in done.stdout
    assert "'jax'" not in done.stdout


@pytest.mark.parametrize("task_id", ["P1.1", "P2.13", "P1.x"])
def test_an_id_that_is_taken_or_of_another_project_is_refused(monkeypatch, task_id):
    from mlhood.grading.projects.p1 import surgery

    monkeypatch.setattr(surgery, "ONE_MORE", Task(task_id, "One more"), raising=False)
    with pytest.raises(GradingError, match="invalid task id"):
        collect_project("mlhood.grading.projects.p1", "P1")
