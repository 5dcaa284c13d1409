"""The projects of the course, each with its tasks and checks."""

from __future__ import annotations

import importlib
from collections import UserDict
from typing import Any

from mlhood.grading.checks.task import Project


class ProjectRegistry(UserDict[str, Any]):
    """Projects by id. One that is None is imported from the module of this package named alike when it is first read.

    A student's kernel needs the checks of one notebook.
    """

    def __getitem__(self, name: str) -> Project:
        if self.data[name] is None:
            self.data[name] = getattr(importlib.import_module(f"{__name__}.{name.lower()}"), name)
        return self.data[name]


PROJECTS = ProjectRegistry(dict.fromkeys(("P1", "P2", "P3", "P4", "P5")))
