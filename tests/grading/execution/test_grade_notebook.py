from __future__ import annotations

import pytest

from mlhood.errors import NotebookError
from mlhood.grading.execution.grade_notebook import RunSettings, grade_file
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.reports import marks_text


def test_solved_gets_full_marks(solved):
    before = solved.read_bytes()
    steps = []
    marks = grade_file(solved, RunSettings(on_step=steps.append))
    assert (marks.earned, marks.points, marks.skipped) == (80, 80, 20)
    assert solved.read_bytes() == before
    assert list(dict.fromkeys(step.done for step in steps)) == list(range(steps[-1].total))
    assert "marking T9.1: " in [step.text for step in steps if step.text.startswith("marking T9.1")][1]


def test_empty_gets_nothing_and_says_so(empty):
    marks = grade_file(empty)
    assert marks.earned == 0
    assert marks_text.full_text(marks).count("is not written yet") == 3


def test_a_fallback_makes_later_tasks_independent(course, tmp_path):
    path = tmp_path / "T9.ipynb"
    wrong = course.SOLUTIONS | {"T9.1": "def double(x):\n    return 3 * x"}
    write(course.notebook(wrong), path)
    assert [task.earned for task in grade_file(path).tasks] == [0, 20, 20]


def test_errors_name_the_cell_and_its_line(course, tmp_path):
    path = tmp_path / "T9.ipynb"
    broken = {
        "T9.1": "def double(x):\n    y = [x]\n    y[1] = x\n    return y",
        "T9.2": "import os\nopen('answer.txt', 'w').write(double(1))",
    }
    write(course.notebook(course.SOLUTIONS | broken), path)
    first, second, third = grade_file(path).tasks
    error = "IndexError: list assignment index out of range"
    assert first.checks[0].parts["got"] == f"{error} in line 3 of the solution cell of T9.1: `y[1] = x`"
    assert "TypeError" in second.notes[0]  # a fallback solution doubles
    assert "in line 2 of the solution cell of T9.2: `open('answer.txt', 'w').write(double(1))`" in second.notes[0]
    assert third.full


def test_not_a_notebook(course, tmp_path):
    with pytest.raises(NotebookError):
        grade_file(tmp_path / "absent.ipynb")
