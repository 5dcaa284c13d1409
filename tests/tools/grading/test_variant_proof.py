"""What the command `variants` says of a task: what the variant's own solution gets, and what the public one does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlhood.errors import GradingError
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import parameters_of, with_values
from tests.tools.grading.__main__ import app
from tests.tools.grading.variant_proof import MAX_PUBLIC, covering_values, prove, public_share

ROOT = Path(__file__).parents[3]


def test_a_variant_is_solved_by_its_own_solution_and_not_by_the_public_one(tmp_path):
    out = tmp_path / "variants.json"
    options = ["--course", str(ROOT), "--variant", "harbour-1", "--json", str(out)]
    result = CliRunner().invoke(app, ["variants", "P1.1", *options])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(out.read_text())["tasks"]
    assert (row["own"], row["public"], row["parameters"]) == (row["points"], 0, {"layers_argument": "classes"})
    assert "solved: 1 of 1; the public solutions get 0% of the points" in result.output


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("project", "name"), [(project, name) for project in PROJECTS for name in covering_values(PROJECTS[project])]
)
def test_every_task_is_solved_in_its_notebook_whatever_is_drawn(project, name):
    project = PROJECTS[project]
    varied = with_values(project, covering_values(project)[name])
    proofs = list(prove(ROOT / f"{project.id}.ipynb", project, name, varied))
    assert [proof.task.id for proof in proofs] == [task.id for task in project.tasks]
    assert not [reason for proof in proofs for reason in proof.reasons()]
    assert public_share(proofs) <= MAX_PUBLIC


def test_every_value_takes_no_word():
    result = CliRunner().invoke(app, ["variants", "P1.1", "--every-value", "--variant", "harbour-1"])
    assert isinstance(result.exception, GradingError)
    assert "--every-value cannot be combined with --variant" in str(result.exception)


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_every_value_occurs(project):
    occurring = covering_values(project).values()
    parameters = parameters_of(project)
    assert parameters
    for parameter in parameters:
        values = [chosen[parameter.name] for chosen in occurring]
        assert all(value in values for value in parameter.values[1:]), parameter.name
