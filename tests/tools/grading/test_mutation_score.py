from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

from mlhood.errors import GradingError
from mlhood.grading.checks.expect import CheckUndecided
from mlhood.grading.checks.tables import UNDECIDED
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.notebook import read
from mlhood.grading.projects import PROJECTS
from tests.grading import given_course
from tests.tools.grading.checks_commands import _selected
from tests.tools.grading.mutants import Mutant
from tests.tools.grading.mutation_score import GOAL, NotebookRun, Score, equivalent_mutants, score

TYPES = {"float for int", "a list for an array", "float64 for float32"}
ROOT = Path(__file__).parents[3]


def score_of(course, task: str, source: str, **options) -> Score:
    notebook = course.notebook(course.SOLUTIONS | {task: source})
    with NotebookRun(notebook, course.SYNTHETIC) as run:
        (found,) = list(run.tasks([course.SYNTHETIC.task(task)]))
        return score(found, **options)


def test_mutants_that_a_check_fails_for_are_killed(course):
    reported = []
    result = score_of(course, "T9.1", "def double(x):\n    return 2 * x", report=reported.append)
    survived = [verdict.mutant.kind for verdict in result.verdicts if verdict.state == "survived"]
    # the synthetic checks compare neither types nor the second call with the first
    assert set(survived) <= TYPES
    assert result.count("killed") >= 5
    assert all(verdict.named for verdict in result.verdicts if verdict.state == "killed" and not verdict.mutant.wrapped)
    assert len(reported) == len(survived)
    assert (result.accepted, result.refused) == (3, [])
    assert result.as_dict()["mutants"][0]["cell"] == "T9-1-solution"


def test_a_check_that_accepts_everything_kills_nothing(course, monkeypatch):
    result = score_with(course, monkeypatch, accept)
    assert len(result.verdicts) == 4
    assert (result.share, result.held) == (0.0, False)


def accept(submission) -> None:
    """Anything goes."""
    submission.call("double", 1)


def test_a_measurement_that_stays_undecided_kills_nothing_and_refuses_nothing(course, monkeypatch):
    result = score_with(course, monkeypatch, leave_undecided)
    assert (result.count("killed"), result.count("survived"), result.refused) == (0, 4, [])


def score_with(course, monkeypatch, function) -> Score:
    task = course.SYNTHETIC.task("T9.1")
    checks = tuple(replace(check, function=function) for check in task.checks)
    project = replace(course.SYNTHETIC, tasks=(replace(task, checks=checks),))
    monkeypatch.setitem(PROJECTS, "T9", project)
    with NotebookRun(course.notebook(), project) as run:
        (found,) = list(run.tasks(project.tasks))
        return score(found, sample=4)


def leave_undecided(submission) -> None:
    """The machine is too noisy."""
    raise CheckUndecided(f"{UNDECIDED}: which of the two is faster")


def test_a_file_that_the_solution_has_written_is_not_there_for_a_mutant(course):
    source = "from pathlib import Path\ndef double(x):\n    return 2 * x\nPath('written').touch()"
    with NotebookRun(course.notebook(course.SOLUTIONS | {"T9.1": source}), course.SYNTHETIC) as run:
        (task,) = list(run.tasks([course.SYNTHETIC.task("T9.1")]))
        assert (run.kernel.folder / "written").exists()
        task.grade(dict.fromkeys(task.solution, "def double(x):\n    return 2 * x"))
        assert not (run.kernel.folder / "written").exists()


def test_what_a_given_cell_has_made_is_made_anew_for_a_mutant(course, tmp_path, monkeypatch):
    source = "filled.append(21)\ndef double(x):\n    return x * len(filled) * 2"
    book = course.notebook(course.SOLUTIONS | {"T9.1": source})
    given_course.add(book, "T9-1-text", course.labelled(new_code_cell("filled = []"), "T9.1", "given", locked=True))
    given_course.sync(tmp_path, monkeypatch, book)
    with NotebookRun(book, course.SYNTHETIC) as run:
        (task,) = list(run.tasks([course.SYNTHETIC.task("T9.1")]))
        assert task.grade(task.solution).full
        assert not task.grade(dict.fromkeys(task.solution, source.replace("filled.append(21)", "pass"))).full


def test_a_mutant_that_damages_the_notebook_costs_no_other_one_its_verdict(course):
    source = "import builtins\ndef double(x):\n    builtins.len = len\n    return x + x"
    result = score_of(course, "T9.1", source)
    clean = score_of(course, "T9.1", "def double(x):\n    return x + x")
    states = {v.mutant.change: v.state for v in result.verdicts}
    assert {v.mutant.change: v.state for v in clean.verdicts}.items() <= states.items()


def test_a_wrong_solution_has_no_score(course):
    with pytest.raises(GradingError, match="the solution itself is refused"):
        score_of(course, "T9.1", "def double(x):\n    return x")


def test_the_solutions_before_a_task_have_run(course):
    result = score_of(course, "T9.3", "def quadruple(x):\n    return double(double(x))")
    assert {verdict.mutant.kind for verdict in result.verdicts if verdict.state == "survived"} <= TYPES
    assert result.count("killed") >= 2


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("task", "sample"), [("P3.1", 6), ("P3.3", 12)])
def test_checks_of_the_course_refuse_mutants_and_accept_styles(task, sample):
    """A sample of `python -m tests.tools.grading checks`."""
    project = PROJECTS[task.partition(".")[0]]
    with NotebookRun(read(ROOT / f"{project.id}.ipynb"), project) as run:
        (found,) = list(run.tasks([project.task(task)]))
        result = score(found, sample=sample)
    assert result.refused == []
    assert result.share >= GOAL, [str(verdict) for verdict in result.verdicts if verdict.state == "survived"]


def test_the_whole_course_is_measured_by_name():
    ((project, tasks),) = _selected(["P3.2", "P3.4"])
    assert (project.id, [task.id for task in tasks]) == ("P3", ["P3.2", "P3.4"])
    assert len(_selected([])) == 5
    with pytest.raises(GradingError, match="no such project or task"):
        _selected(["P9"])


def mutant(change: str) -> Mutant:
    return Mutant("swapped", 1, change, "")


def test_an_equivalent_mutant_needs_a_reason(tmp_path):
    project = Project("T9", "Title", ())
    file = tmp_path / "t9.toml"
    entry = '[[equivalent]]\ncell = "T9-1-solution"\nchange = "f(a) -> b"\nreason = "{}"\n'
    file.write_text(entry.format("the same number"))
    (known,) = equivalent_mutants(project, tmp_path)
    assert known.matches("T9-1-solution", mutant("f(a) -> b"))
    assert not known.matches("T9-2-solution", mutant("f(a) -> b"))
    assert not known.matches("T9-1-solution", mutant("f(a) -> bc"))
    assert known.reason == "the same number"
    file.write_text(entry.format(" "))
    with pytest.raises(GradingError, match="has no reason"):
        equivalent_mutants(project, tmp_path)
    file.write_text("[[equivalent]]\ncell = 1")
    with pytest.raises(GradingError, match="cannot be read"):
        equivalent_mutants(project, tmp_path)
    assert equivalent_mutants(project, tmp_path / "nowhere") == []


def test_an_equivalent_mutant_is_one_in_every_variant(tmp_path):
    file = tmp_path / "t9.toml"
    entry = "[[equivalent]]\ncell = 'T9-1-solution'\npattern = {}\nreason = 'their order is open'\n"
    file.write_text(entry.format(r"'tile\(.*\) -> swapped'"))
    (known,) = equivalent_mutants(Project("T9", "Title", ()), tmp_path)
    assert known.matches("T9-1-solution", mutant("tile(i=8) -> swapped"))
    file.write_text(entry.format("'('"))
    with pytest.raises(GradingError, match="cannot be read"):
        equivalent_mutants(Project("T9", "Title", ()), tmp_path)
