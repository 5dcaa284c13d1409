"""Functions that return nonsense pass no check and break none, graded in the test's own process."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest

from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.package_files import source_solutions
from tests.grading.projects.local_grading import graded

ANSWERS = [
    None,
    -1.5,
    "no",
    [1, [2]],
    {"a": 1},
    {"L1": None, 3: []},
    {"macs": 0, "bytes": 0, "intensity": 0},
    math.nan,
    (),
    np.zeros((0, 0)),
    np.zeros((1, 3, 4, 4)),
    np.array("x"),
]
TASKS = [task.id for project in ("P3", "P4") for task in PROJECTS[project].tasks] + ["P5.2", "P5.5", "P5.6"]


def functions(project: str) -> list[str]:
    """Return the names of all functions that the solutions of a project define."""
    sources = (source for source in source_solutions(project).values() if not source.startswith("%%"))
    return [node.name for source in sources for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]


def assert_all_fail(messages: dict[str, str]) -> None:
    assert all(messages.values()), messages
    assert not any("cannot make sense" in message for message in messages.values()), messages


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("task", TASKS)
def test_nonsense_passes_no_check_and_breaks_none(task, answer, tmp_path):
    names = dict.fromkeys(functions(task[:2]), lambda *arguments, **options: answer)
    assert_all_fail(graded(names, tmp_path, task))
