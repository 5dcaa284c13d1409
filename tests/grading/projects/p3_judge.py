"""The checks of P3 on names that a test makes, in its own process."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks.marks import judge
from mlhood.grading.checks.submission import LocalTransport, Submission
from mlhood.grading.projects.p3 import P3


class Compiled:
    """As a function that Numba has compiled: it refuses arrays that remember, and has the Python function inside."""

    def __init__(self, function) -> None:
        self.py_func = function

    def __call__(self, *arguments):
        if not all(isinstance(one, np.ndarray | int) for one in arguments):
            raise TypeError("cannot determine the type of an argument")
        return self.py_func(*arguments)


def names_in(source: str) -> dict:
    names = {"np": np, "compiled": Compiled}
    exec(source, names)
    return names


def judged(names: dict, tmp_path, task: str = "P3.6", seed: int = 5) -> dict[str, str]:
    """What each check of a task says of the names of a notebook; empty where it passes."""
    wanted = P3.task(task)
    assert wanted is not None
    result = judge(wanted, Submission(LocalTransport(names), tmp_path, tmp_path), seed)
    return {check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks}
