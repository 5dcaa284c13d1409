from __future__ import annotations

import pytest

from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult, unsolved
from mlhood.grading.execution import grade_notebook
from mlhood.grading.notebooks.notebook import write
from tests.grading.synthetic_course import SYNTHETIC

pytest_plugins = ["pytester"]

INI = """
[pytest]
testpaths = .
addopts = --strict-markers --strict-config -ra --nbval
filterwarnings = error
"""


@pytest.fixture
def repository(pytester, course):
    """A repository like ours, with a test of its own that must not be collected."""
    pytester.makeini(INI)
    pytester.makepyfile(test_own="def test_own(): raise SystemError('collected')")
    write(course.notebook(), pytester.path / "T9.ipynb")
    write(course.notebook(course.EMPTY), pytester.path / "empty.ipynb")
    return pytester


def test_solved_submission_passes_and_skips(repository):
    result = repository.runpytest_inprocess("--submission", "T9.ipynb", "-v")
    result.assert_outcomes(passed=4, skipped=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "T9.ipynb::T9.1::doubles_numbers PASSED*",
            "*marks of T9.ipynb*",
            "T9.1 *40 of 40*",
            "*T9.4*marked by hand*",
        ]
    )


def test_failure_shows_the_message_for_the_student(repository):
    result = repository.runpytest_inprocess("--submission", "empty.ipynb")
    result.assert_outcomes(failed=4, skipped=1)
    result.stdout.fnmatch_lines(
        ["*T9.1 `double` doubles numbers (20 points)*", "`double` is not written yet", "note:*"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_an_undecided_check_fails_with_its_reason(repository, monkeypatch):
    first, second = SYNTHETIC.tasks[0].checks
    checks = (
        CheckResult(first.name, first.title, first.points, "passed"),
        CheckResult(second.name, second.title, second.points, "undecided", "within the noise"),
    )
    others = tuple(unsolved(task, "no") for task in SYNTHETIC.tasks[1:])
    marks = Marks("T9", "T9", (TaskResult("T9.1", "Double", checks), *others))
    monkeypatch.setattr(grade_notebook, "grade_file", lambda *given: marks)
    result = repository.runpytest_inprocess("--submission", "T9.ipynb", "-k", "T9.1", "--junitxml", "report.xml")
    result.assert_outcomes(passed=1, failed=1, deselected=3)
    result.stdout.fnmatch_lines(["within the noise"])
    report = (repository.path / "report.xml").read_text()
    assert [f'name="earned" value="{earned}"' in report for earned in (first.points, 0.0)] == [True, True]


def test_several_submissions_with_a_selection(repository):
    result = repository.runpytest_inprocess(
        "--submission=T9.ipynb", "--submission=empty.ipynb", "-k", "doubles_numbers"
    )
    result.assert_outcomes(passed=1, failed=1, deselected=8)


def test_submission_outside_the_repository(repository, course, tmp_path):
    path = tmp_path / "anna" / "T9.ipynb"
    write(course.notebook(), path)
    (path.parent / "conftest.py").write_text("raise SystemError('ran in the process of the grader')")
    result = repository.runpytest_inprocess("--submission", str(path), "--seed", "7")
    result.assert_outcomes(passed=4, skipped=1)


@pytest.mark.parametrize("name", ["absent.ipynb", "test_own.py"])
def test_bad_submission_is_a_usage_error(repository, name):
    result = repository.runpytest_inprocess("--submission", name)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: notebook: *", "*where: *"])


def test_points_go_into_the_junit_report(repository):
    repository.runpytest_inprocess("--submission", "T9.ipynb", "--junitxml", "report.xml")
    assert '<property name="earned" value="20"' in (repository.path / "report.xml").read_text()
