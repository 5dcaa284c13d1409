"""Real notebooks of a small project through the real marker."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from mlhood.grading.batch.course_grader import plan_of
from mlhood.grading.batch.result_keys import checks_digest, environment_digest
from mlhood.grading.execution.grade_file import grade_file
from mlhood.grading.gradebook.course_plan import read_plan
from mlhood.grading.notebooks import master
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.projects import PROJECTS


@pytest.mark.slow
def test_notebooks_get_their_marks_and_keep_them(room, course):
    wrong = course.SOLUTIONS | {"T9.1": "def double(x):\n    return 3 * x"}
    write(course.notebook(), room.folder / "ada.ipynb")
    write(course.notebook(wrong), room.folder / "bob.ipynb")
    (room.folder / "zoe.ipynb").write_text('{"cells": [')
    graded = room.grade(marker="tests.grading.batch.synthetic_grader:make")
    found = {one.student: one for one in graded.records}
    assert {who: [task.earned for task in one.tasks] for who, one in found.items()} == {
        "ada": [40, 20, 20],
        "bob": [0, 20, 20],
    }
    assert {one.possible for one in graded.records} == {80}
    assert found["bob"].tasks[0].checks[0].what == "`double` is wrong"
    assert [one.problem.partition(",")[0] for one in graded.strays] == ["the file is not JSON"]


def test_a_timed_task_runs_alone_from_its_first_cell_until_it_is_judged(course, solved, monkeypatch):
    first, second, third = course.SYNTHETIC.tasks
    tasks = (first, replace(second, timed=True), third)
    monkeypatch.setitem(PROJECTS, "T9", replace(course.SYNTHETIC, tasks=tasks))
    told = []

    @contextlib.contextmanager
    def alone():
        told.append("alone")
        yield
        told.append("not alone")

    grade_file(
        solved,
        on_step=lambda step: told.append(step.text),
        on_result=lambda result: told.append(result.id),
        alone=alone,
    )
    begin, end = told.index("alone"), told.index("not alone")
    assert told[begin - 1 : end + 1] == [
        "import os",
        "alone",
        'mlhood.check("T9.2")',
        "marking T9.2",
        "T9.2",
        "not alone",
    ]
    assert told.count("alone") == 1


def test_every_project_has_a_plan_that_travels_as_plain_data():
    for project in PROJECTS.values():
        plan = plan_of(project)
        assert read_plan(plan.as_dict()) == plan
        assert plan.points == project.points


def test_the_tables_are_timed():
    timed = [task.id for project in PROJECTS.values() for task in project.tasks if task.timed]
    assert timed == ["P3.5", "P4.5", "P5.3"]


def test_the_digest_of_checks_is_that_of_their_project_alone(monkeypatch):
    from mlhood.grading.batch import result_keys

    texts = result_keys._text
    before = {name: checks_digest(project) for name, project in PROJECTS.items()}
    changed = "mlhood.grading.projects.p4.table"
    monkeypatch.setattr(result_keys, "_text", lambda module: texts(module) + ("\n#" if module == changed else ""))
    assert {name for name, project in PROJECTS.items() if checks_digest(project) != before[name]} == {"P4"}


def test_the_digest_of_checks_covers_the_given_cells(course, tmp_path, monkeypatch):
    before = checks_digest(course.SYNTHETIC)
    monkeypatch.setattr(master, "FOLDER", tmp_path)
    (tmp_path / "t9").mkdir()
    cells = master.cells_of(course.SYNTHETIC)
    digests = {before}
    for source in ("x = 1", "x = 2"):
        given = master.MasterCell("T9-1-given-1", "T9.1", "given", source)
        for order in ((given, *cells), (*cells, given)):
            (tmp_path / "t9" / master.NAME).write_text(master.as_text(order))
            digests.add(checks_digest(course.SYNTHETIC))
    assert len(digests) == 5


def test_the_digest_of_checks_covers_what_they_import(monkeypatch):
    from mlhood.grading.batch import result_keys

    read = []
    texts = result_keys._text
    monkeypatch.setattr(result_keys, "_text", lambda module: read.append(module) or texts(module))
    checks_digest(PROJECTS["P3"])
    room = "mlhood.grading"
    assert {
        f"{room}.projects.p3.ladder",
        f"{room}.projects.p3.probes",
        f"{room}.expect",
        f"{room}.projects.tables",
    } <= set(read)
    assert not any(f"{room}.projects.p{other}" in module for module in read for other in (1, 2, 4))


def test_the_digest_of_checks_covers_points_and_stand_ins(course):
    task = course.SYNTHETIC.tasks[0]
    others = [replace(task, stand_in="x = 1"), replace(task, checks=task.checks[:1]), replace(task, seconds=1.0)]
    digests = {checks_digest(replace(course.SYNTHETIC, tasks=(one,))) for one in [task, *others]}
    assert len(digests) == 4


def test_the_environment_is_that_of_the_seed_and_does_not_tell_it():
    assert environment_digest("1") == environment_digest("1") != environment_digest("2")
    assert "12345" not in environment_digest("12345")
