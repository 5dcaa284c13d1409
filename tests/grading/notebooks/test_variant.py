"""The source notebook of every variant: what it asks for, without running it (see tests.tools.grading)."""

from __future__ import annotations

import ast
import copy
import re
from pathlib import Path

import pytest

from mlhood.errors import NotebookError
from mlhood.grading.notebooks.notebook import Label, label, notebook_text, read
from mlhood.grading.notebooks.source_notebook import (
    project_cells,
    solution_source,
    source_of_variant,
    student_version,
)
from mlhood.grading.notebooks.sync import notebook_files, require_templates
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import parameters_of, variant, with_values
from mlhood.grading.projects.package_files import varied_solutions
from mlhood.grading.variants.parameter import defaults
from tests.grading import varied_course

ROOT = Path(__file__).parents[3]
VARIANT_NAMES = ("harbour-1", "lantern-2", "meadow-3", "autumn/A")


@pytest.fixture(scope="module", params=PROJECTS)
def public(request):
    """A project and its public source notebook."""
    return PROJECTS[request.param], read(ROOT / f"{request.param}.ipynb")


def each_value(project):
    """Yield values of the parameters in which every value of every domain occurs."""
    parameters = parameters_of(project)
    for i in range(max((len(parameter.values) for parameter in parameters), default=0)):
        yield {parameter.name: parameter.values[i % len(parameter.values)] for parameter in parameters}


def test_the_default_variant_is_the_course_to_the_letter(public):
    project, notebook = public
    same = source_of_variant(notebook, with_values(project, defaults(parameters_of(project))))
    assert [cell.source for cell in same.cells] == [cell.source for cell in notebook.cells]
    assert [cell.get("outputs") for cell in same.cells] == [cell.get("outputs") for cell in notebook.cells]


def test_the_text_of_every_value_can_be_made_and_is_code_where_it_should_be(public):
    project, notebook = public
    for values in each_value(project):
        varied = with_values(project, values)
        for cell in source_of_variant(notebook, varied).cells:
            assert not re.search(r"\{\{ ?\w+ ?\}\}|\{% ", cell.source), cell.source
            if cell.cell_type == "code":
                ast.parse(re.sub(r"(?m)^\s*[%!].*$", "pass", cell.source))
        assert not [task.title for task in varied.tasks if "{{" in task.title or "{%" in task.title]
        titles = [check.title for task in varied.tasks for check in task.checks]
        assert not [title for title in titles if "{{" in title or "{%" in title]


def test_every_parameter_changes_the_solution_or_the_text_of_its_task(public):
    project, notebook = public
    base = defaults(parameters_of(project))
    for task in project.tasks:
        for parameter in task.varies:
            texts = {
                "\n".join(cell.source for cell in source_of_variant(notebook, with_values(project, values)).cells)
                for value in parameter.values
                for values in [base | {parameter.name: value}]
            }
            assert len(texts) == len(parameter.values), parameter


def test_the_graders_see_the_cells_and_solutions_of_the_variants_notebook(public):
    """Cells, fallback solutions and rubrics of a version are those of its notebook."""
    project, notebook = public
    for variant_name in VARIANT_NAMES:
        varied = variant(project, variant_name)
        source_notebook = source_of_variant(notebook, varied)
        student = copy.deepcopy(source_notebook)
        student_version(student, ROOT / f"{project.id}.ipynb")
        locked = {cell.id: cell.source for cell in student.cells if (tag := label(cell)) and tag.role == "given"}
        assert {cell.name: cell.source for cell in project_cells(varied) if cell.name in locked} == locked
        solutions = varied_solutions(project.id, varied.parameters)
        for task in varied.tasks:
            cells = [cell for cell in source_notebook.cells if label(cell) == Label(task.id, "solution")]
            assert solutions[task.id] == "\n\n".join(map(solution_source, cells))
        assert notebook_files(source_notebook, ROOT / f"{project.id}.ipynb")


def test_a_students_notebook_has_no_templates(public):
    project, notebook = public
    student = copy.deepcopy(notebook)
    student_version(student, ROOT / f"{project.id}.ipynb")
    assert '"varies"' not in notebook_text(student)


def test_a_cell_whose_task_varies_loses_its_outputs(course):
    project = varied_course.project()
    source_notebook = source_of_variant(varied_course.notebook(), with_values(project, {"factor": 3}))
    outputs = {cell.id: len(cell.outputs) for cell in source_notebook.cells if cell.cell_type == "code"}
    assert outputs["T9-1-solution"] == outputs["T9-1-check"] == 0
    assert outputs["imports"] == outputs["T9-2-check"] == 1


@pytest.mark.parametrize("templates", [{"absent": "{{ factor }}"}, {"2 * x": "3 * x"}, {"2 * x": "{{ factor }}*x"}])
def test_a_template_that_does_not_give_its_phrase_is_named(course, templates):
    book = varied_course.notebook()
    next(cell for cell in book.cells if cell.id == "T9-1-solution").metadata.mlhood["varies"] = templates
    with pytest.raises(NotebookError, match="does not give the phrase"):
        require_templates(book, varied_course.project(), Path("T9.ipynb"))


def test_the_fallbacks_of_every_value_are_python(public):
    project, _ = public
    for values in each_value(project):
        for task in with_values(project, values).tasks:
            ast.parse(task.fallback)
