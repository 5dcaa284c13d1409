"""Grading of P3's checks on a namespace that a test defines, in the test's own process."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects.p3 import P3
from mlhood.grading.rpc.transport import LocalTransport


class Compiled:
    """Mimics a Numba function: it rejects arrays that record accesses, and holds the Python function."""

    def __init__(self, function) -> None:
        self.py_func = function

    def __call__(self, *arguments):
        if not all(isinstance(argument, np.ndarray | int) for argument in arguments):
            raise TypeError("cannot determine the type of an argument")
        return self.py_func(*arguments)


def names_in(source: str) -> dict:
    names = {"np": np, "compiled": Compiled}
    exec(source, names)
    return names


def graded(names: dict, tmp_path, task: str = "P3.7", seed: int = 5) -> dict[str, str]:
    """Grade a task on the names of a notebook; return the message of each check, empty if it passed."""
    graded_task = P3.task(task)
    assert graded_task is not None
    result = grade_task(graded_task, Session(LocalTransport(names), tmp_path, tmp_path), seed)
    return {check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks}
