"""Grading of a task on names that a test defines, in the test's own process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from mlhood.grading.checks.marks import TaskResult, grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task
from mlhood.grading.projects import PROJECTS
from mlhood.grading.rpc.transport import LocalTransport, Transport


class Compiled:
    """Mimics a Numba function: it rejects arrays that record accesses, and holds the Python function."""

    def __init__(self, function) -> None:
        self.py_func = function

    def __call__(self, *arguments):
        if not all(isinstance(argument, np.ndarray | int) for argument in arguments):
            raise TypeError("cannot determine the type of an argument")
        return self.py_func(*arguments)


def names_in(*cells: str | Mapping[str, str]) -> dict:
    """Return the names that sources of cells define, beside NumPy."""
    names = {"np": np, "compiled": Compiled}
    for cell in cells:
        for source in (cell,) if isinstance(cell, str) else cell.values():
            exec(source, names)
    return names


def result_of(task: Task | str, names: dict | Transport, folder: Path, seed: int = 5, **options) -> TaskResult:
    """Grade a task on the names of a notebook."""
    task = PROJECTS[task[:2]].task(task) if isinstance(task, str) else task
    transport = LocalTransport(names) if isinstance(names, dict) else names
    return grade_task(task, Session(transport, folder, folder, **options), seed)


def graded(names: dict | Transport, folder: Path, task: str, *only: str, seed: int = 5) -> dict[str, str]:
    """Grade a task, or only some of its checks; return the message of each, empty if it passed."""
    whole = PROJECTS[task[:2]].task(task)
    checks = tuple(check for check in whole.checks if not only or check.name in only)
    result = result_of(replace(whole, checks=checks), names, folder, seed)
    return {check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks}


def lost(names: dict | Transport, folder: Path, task: str, *only: str, seed: int = 5) -> dict[str, str]:
    """Return the messages of the checks that fail."""
    return {name: message for name, message in graded(names, folder, task, *only, seed=seed).items() if message}
