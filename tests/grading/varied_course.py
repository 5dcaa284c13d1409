"""The synthetic course with a parameter: T9.1 asks for other multiples than the double in a variant."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from nbformat import NotebookNode

from mlhood.grading.checks import expect
from mlhood.grading.checks.task import Project, Task, points
from mlhood.grading.projects import PROJECTS, package_files
from mlhood.grading.projects.collect import with_values
from mlhood.grading.projects.package_files import VARIANTS_FILE
from mlhood.grading.variants.parameter import Parameter, defaults
from tests.grading import synthetic_course

FACTOR = Parameter("factor", (2, 3, 5))
TEMPLATES = {"2 * x": "{{ factor }} * x"}
TEXT_TEMPLATES = {"Double": "Multiply by {{ factor }}"}


@points(40)
def multiplies(submission):
    """`double` multiplies by {{ factor }}."""
    factor = submission.parameters.factor
    expect.equal(submission.call("double", 7), 7 * factor, "`double` is wrong", hint=f"multiply by {factor}")


def project() -> Project:
    """The project, with the default of its parameter."""
    first = Task("T9.1", "Times {{ factor }}", (multiplies,), "", 10, varies=(FACTOR,))
    base = synthetic_course.SYNTHETIC
    declared = replace(base, tasks=(first, *base.tasks[1:]), declared=(first, *base.tasks[1:]))
    return with_values(declared, defaults([FACTOR]))


def notebook() -> NotebookNode:
    """Its solved source notebook: a text, the solution and a given cell depend on the parameter."""
    book = synthetic_course.notebook()
    by_id = {cell.id: cell for cell in book.cells}
    by_id["T9-1-solution"].metadata.mlhood["varies"] = TEMPLATES
    by_id["T9-1-text"].metadata["mlhood"] = {"varies": TEXT_TEMPLATES}
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [NotebookNode(output_type="stream", name="stdout", text=f"from {cell.id}")]
    return book


def install(monkeypatch, root: Path) -> Path:
    """Make the course in a folder: its notebook, what it has besides, and the package's copies of its cells."""
    monkeypatch.setitem(PROJECTS, "T9", project())
    synthetic_course.write_course(root, notebook())
    projects = root / "mlhood" / "grading" / "projects"
    assert json.loads((projects / "t9" / VARIANTS_FILE).read_text())["solutions"] == {"T9.1": TEMPLATES}
    monkeypatch.setattr(package_files, "FOLDER", projects)
    return root / "P1.ipynb"
