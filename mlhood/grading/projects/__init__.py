"""The projects of the course, each with its tasks and checks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping

from mlhood.grading.checks.task import Project


class ProjectRegistry(MutableMapping[str, Project]):
    """Projects by id. One is imported when it is first asked for: a student's kernel needs the checks of one notebook.

    Args:
        names: Of projects that are in a module of this package, named alike.
    """

    def __init__(self, *names: str) -> None:
        self._projects: dict[str, Project | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Project:
        project = self._projects[name]
        if project is None:
            project = getattr(importlib.import_module(f"{__name__}.{name.lower()}"), name)
            self._projects[name] = project
        return project

    def __setitem__(self, name: str, project: Project) -> None:
        self._projects[name] = project

    def __delitem__(self, name: str) -> None:
        del self._projects[name]

    def __contains__(self, name: object) -> bool:
        return name in self._projects

    def __iter__(self) -> Iterator[str]:
        return iter(self._projects)

    def __len__(self) -> int:
        return len(self._projects)


PROJECTS = ProjectRegistry("P1", "P2", "P3", "P4", "P5")
