"""P3's last part in the test's own process: right kernels in other styles pass, wrong ones lose what is wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import float32

from mlhood.gpu.simulator import cuda
from mlhood.grading.bare.files import files_of
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects.p3 import P3
from mlhood.grading.rpc.transport import LocalTransport
from tests.grading.projects.examples import edited
from tests.grading.projects.p3_right import GPU_STYLES
from tests.grading.projects.p3_wrong_gpu import GPU

TASKS = ("P3.12", "P3.13", "P3.14")
CELLS = (
    "12-solution",
    "12-solution-2",
    "13-solution",
    "13-solution-2",
    "13-solution-3",
    "14-solution",
    "14-solution-2",
)


def failures(cells: dict[str, str], task: str, folder) -> dict[str, str]:
    """The message of each failed check of a task."""
    names = {"np": np, "cuda": cuda, "float32": float32, "TILE": 16}
    for cell in (f"P3-{name}" for name in CELLS):
        exec((edited(cell) | cells)[cell], names)
    result = grade_task(P3.task(task), Session(LocalTransport(names), folder, folder), 5)
    return {
        check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks if check.status != "passed"
    }


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("cells", [{}, *GPU_STYLES], ids=["as in the notebook", "guards that return", "other tiles"])
def test_right_kernels_pass(task, cells, tmp_path):
    assert failures(cells, task, tmp_path) == {}


@pytest.mark.parametrize("entry", GPU, ids=lambda entry: entry.name)
def test_wrong_kernels_lose_what_is_wrong(entry, tmp_path):
    failed = failures(entry.cells, entry.task, tmp_path)
    assert set(failed) == set(entry.loses), failed
    assert re.search(entry.message, "\n".join(failed.values()), re.DOTALL), failed


@pytest.mark.parametrize("task", TASKS[:2])
def test_the_courses_kernels_do_not_exist_where_kernels_are_graded(task):
    folder = files_of(P3.task(task).libraries).tree / "mlhood/gpu"
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", "simulator", "report"}
