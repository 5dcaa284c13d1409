"""The workflow of GitHub Classroom in a student repository, and the command that it runs there."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml

from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.reports import github_classroom
from mlhood.grading.student.version_files import text_files
from tests.grading import synthetic_course
from tests.grading.student.student_version import run, write_student_version


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    return write_student_version(tmp_path_factory.mktemp("course"))


def steps(folder: Path) -> dict[str, dict]:
    flow = yaml.safe_load((folder / ".github/workflows/classroom.yml").read_text())
    return {step.get("name", step.get("uses")): step for step in flow["jobs"]["autograding"]["steps"]}


def run_step(version: Path, folder: Path, tmp_path: Path) -> dict:
    """Run the step of the workflow as a runner does, and read its output as the reporter does."""
    python, *command = steps(version)["Grade P1.ipynb"]["run"].split()
    assert python == "python"
    done = run(version, *command, folder=folder, GITHUB_OUTPUT=str(tmp_path / "output"))
    assert done.returncode == 0, done.stderr
    name, _, text = (tmp_path / "output").read_text().strip().partition("=")
    assert name == "result"
    return json.loads(base64.b64decode(text))


def test_the_reporter_gets_the_output_of_every_step():
    flow = yaml.safe_load(text_files(["P1.ipynb", "P2.ipynb"])[".github/workflows/classroom.yml"])
    assert flow["on"] == ["push", "workflow_dispatch"]
    assert flow["permissions"] == {"checks": "write", "actions": "read", "contents": "read"}
    steps = flow["jobs"]["autograding"]["steps"]
    assert [step["id"] for step in steps if "id" in step] == ["p1", "p2"]
    report = steps[-1]
    assert report["uses"] == "classroom-resources/autograding-grading-reporter@v1"
    assert report["with"] == {"runners": "p1,p2"}
    assert report["env"] == {f"P{n}_RESULTS": f"${{{{ steps.p{n}.outputs.result }}}}" for n in (1, 2)}


def test_a_fresh_repository_has_no_points(released, tmp_path):
    result = run_step(released, released, tmp_path)
    assert (result["version"], result["status"], result["max_score"]) == (1, "fail", 100)
    assert [test["score"] for test in result["tests"]] == [0, 0, 0]


def test_solved_tasks_have_points(released, tmp_path):
    book = read(released / "P1.ipynb")
    for cell in book.cells:
        if cell.id == "T9-1-solution":
            cell.source = synthetic_course.SOLUTIONS["T9.1"]
    write(book, tmp_path / "P1.ipynb")
    result = run_step(released, tmp_path, tmp_path)
    assert [(test["status"], test["score"]) for test in result["tests"]] == [("pass", 40), ("fail", 0), ("fail", 0)]
    assert "`answer.txt`" in result["tests"][1]["message"]
    assert set(result["tests"][0]) == {"name", "status", "score", "message"}


def test_a_notebook_that_cannot_be_read_loses_the_points_of_its_project(tmp_path):
    for name, points in (("P1.ipynb", 100), ("mine.ipynb", 0)):
        (tmp_path / name).write_text("{")
        result = github_classroom.result(tmp_path / name)
        assert (result["status"], result["max_score"]) == ("fail", points)
        assert {test["score"] for test in result["tests"]} == {0}
        assert "JSON" in result["tests"][0]["message"]


def test_messages_are_cut_to_what_an_environment_variable_holds():
    tests = [{"name": "t", "status": "fail", "score": 0, "message": "☃" * 20_000} for _ in range(9)]
    text = github_classroom.encode({"version": 1, "status": "fail", "max_score": 1, "tests": tests})
    assert len(text) <= github_classroom.MAX_ENCODED
    assert all(len(test["message"]) > 500 for test in json.loads(base64.b64decode(text))["tests"])
