"""Real notebooks of a small project, graded by the grader of the course."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from mlhood.grading.batch import course_grader, result_keys
from mlhood.grading.batch.course_grader import CourseGrader, project_spec
from mlhood.grading.batch.result_keys import checks_digest, environment_digest, submission_seed
from mlhood.grading.execution.grade_notebook import RunSettings, grade_file
from mlhood.grading.gradebook.project_spec import ProjectSpec
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.notebooks import source_notebook
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.projects import PROJECTS
from tests.grading.fake_class import SYNTHETIC


@pytest.mark.slow
def test_notebooks_get_their_marks(fake_class, course):
    wrong = course.SOLUTIONS | {"T9.1": "def double(x):\n    return 3 * x"}
    write(course.notebook(), fake_class.folder / "ada.ipynb")
    write(course.notebook(wrong), fake_class.folder / "bob.ipynb")
    (fake_class.folder / "zoe.ipynb").write_text('{"cells": [')
    graded = fake_class.grade(SYNTHETIC)
    records = {record.student: record for record in graded.records}
    assert {student: [task.earned for task in record.tasks] for student, record in records.items()} == {
        "ada": [40, 20, 20],
        "bob": [0, 20, 20],
    }
    assert {record.possible for record in graded.records} == {80}
    assert records["bob"].tasks[0].checks[0].what == "`double` is wrong"
    assert [file.problem.partition(",")[0] for file in graded.unassigned] == ["the file is not JSON"]


def test_a_timed_task_is_exclusive_from_its_first_cell_to_its_result(course, solved, monkeypatch):
    first, second, third = course.SYNTHETIC.tasks
    tasks = (first, replace(second, timed=True), third)
    monkeypatch.setitem(PROJECTS, "T9", replace(course.SYNTHETIC, tasks=tasks))
    events = []

    @contextlib.contextmanager
    def exclusive():
        events.append("locked")
        yield
        events.append("released")

    settings = RunSettings(
        on_step=lambda step: events.append(step.text),
        on_result=lambda result: events.append(result.id),
        exclusive=exclusive,
    )
    grade_file(solved, settings)
    events = [event for event in events if not event.startswith("marking T9.2: ")]  # its checks, one by one
    begin, end = events.index("locked"), events.index("released")
    assert events[begin - 1 : end + 1] == [
        "import os",
        "locked",
        'mlhood.check("T9.2")',
        "marking T9.2",
        "T9.2",
        "released",
    ]
    assert events.count("locked") == 1


def test_the_specification_of_every_project_survives_as_plain_data():
    for project in PROJECTS.values():
        spec = project_spec(project)
        assert ProjectSpec.from_dict(json.loads(json.dumps(spec.as_dict()))) == spec
        assert spec.points == project.points


def test_the_tables_are_timed():
    timed = [task.id for project in PROJECTS.values() for task in project.tasks if task.timed]
    assert timed == ["P2.11", "P3.5", "P3.6", "P3.8", "P4.5", "P4.6", "P5.3"]


def test_the_digest_of_checks_depends_on_their_project_alone(monkeypatch):
    from mlhood.grading.batch import result_keys

    source = result_keys._source
    before = {name: checks_digest(project) for name, project in PROJECTS.items()}
    changed = Path("projects", "p4", "table.py")
    monkeypatch.setattr(result_keys, "_source", lambda file: source(file) + "\n#" * file.match(str(changed)))
    assert {name for name, project in PROJECTS.items() if checks_digest(project) != before[name]} == {"P4"}


def test_the_digest_of_checks_covers_the_given_cells(course, tmp_path, monkeypatch):
    before = checks_digest(course.SYNTHETIC)
    monkeypatch.setattr(source_notebook, "PROJECTS_FOLDER", tmp_path)
    (tmp_path / "t9").mkdir()
    cells = source_notebook.project_cells(course.SYNTHETIC)
    digests = {before}
    for source in ("x = 1", "x = 2"):
        given = source_notebook.SourceCell("T9-1-given-1", "T9.1", "given", source)
        for order in ((given, *cells), (*cells, given)):
            (tmp_path / "t9" / source_notebook.CELLS_FILE).write_text(source_notebook.dump_cells(order))
            digests.add(checks_digest(course.SYNTHETIC))
    assert len(digests) == 5


def test_the_digest_of_checks_covers_what_they_import():
    read = {str(file.relative_to(result_keys.GRADING)) for file in result_keys._files("p4")}
    assert {"checks/expect.py", "projects/p4/table.py", "projects/p3/timed.py", "projects/solution.py"} <= read
    assert not any(name.startswith("projects/p1/") for name in read)


def test_the_digest_of_checks_covers_points_and_fallbacks(course):
    task = course.SYNTHETIC.tasks[0]
    others = [replace(task, fallback="x = 1"), replace(task, checks=task.checks[:1]), replace(task, seconds=1.0)]
    digests = {checks_digest(replace(course.SYNTHETIC, tasks=(changed,))) for changed in [task, *others]}
    assert len(digests) == 4


def test_every_submission_has_inputs_of_its_own(course, solved, monkeypatch):
    seeds = []
    monkeypatch.setattr(course_grader, "grade_file", lambda path, settings, variant_name: seeds.append(settings.seed))
    files = [SubmittedFile(student, path=solved, sha256=sha256) for student in ("ada", "bob") for sha256 in ("1", "2")]
    for secret in (1, 2):
        grader = CourseGrader(secret, contextlib.nullcontext)
        for file in (*files, files[0]):
            grader.grade(file, lambda result: None)
    assert seeds[4] == seeds[0]
    assert seeds[9] == seeds[5]
    assert len(set(seeds)) == 8
    assert all(2**40 < seed < 2**63 for seed in seeds)
    assert submission_seed(1, "ab", "c") != submission_seed(1, "a", "bc")


def test_the_environment_depends_on_the_seed_and_does_not_reveal_it():
    assert environment_digest("1") == environment_digest("1") != environment_digest("2")
    assert "12345" not in environment_digest("12345")


@pytest.mark.parametrize("name", PROJECTS)
def test_the_digest_of_checks_covers_what_runs_in_the_students_process(name, monkeypatch):
    """Probes and fallback solutions are named in strings, and imported by nothing here."""
    project = PROJECTS[name]
    before = checks_digest(project)
    read = result_keys._source
    monkeypatch.setattr(result_keys, "_source", lambda file: read(file) + "\n" * (file.stem == "probes"))
    assert checks_digest(project) != before
