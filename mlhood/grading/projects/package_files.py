"""The files of a project that are copied from its notebook."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mlhood.grading.variants.templates import Templates, vary

FOLDER = Path(__file__).parent
CELLS_FILE = "cells.json"
SOLUTIONS_FILE = "solutions.json"
RESULTS_FILE = "results.json"  # in the student version, what solutions return
VARIANTS_FILE = "variants.json"  # the templates of the source notebook's code cells


def source_solutions(project: str) -> dict[str, str]:
    """Return the solutions by task, as `mlhood sync` wrote them; none in the student version or a sandbox."""
    return read_package_file(project, SOLUTIONS_FILE)


def varied_solutions(project: str, values: Mapping[str, Any], tasks: Collection[str] | None = None) -> dict[str, str]:
    """Return the source notebook's solutions by task for these values of the parameters; none where there are no
    solutions.

    Args:
        project: Its id.
        values: Of its parameters.
        tasks: Ids of those whose solutions are returned, by default all: rendering all of P4's takes half a second.
    """
    templates = read_package_file(project, VARIANTS_FILE).get("solutions", {})
    solutions = {task: source for task, source in source_solutions(project).items() if tasks is None or task in tasks}
    return {task: vary(source, templates.get(task, {}), values) for task, source in solutions.items()}


def cell_templates(project: str) -> dict[str, Templates]:
    """Return the templates of code cells by their names, as `mlhood sync` wrote them; none in a version."""
    return read_package_file(project, VARIANTS_FILE).get("cells", {})


def read_package_file(project: str, name: str) -> Any:
    """Return what is in a file of a project; nothing where there is none."""
    path = package_file(project, name)
    return json.loads((path.read_text(encoding="utf-8") if path.is_file() else "") or "{}")


def package_file(project: str, name: str) -> Path:
    """Return the path of a file of a project, which `mlhood sync` writes."""
    return FOLDER / project.lower() / name
