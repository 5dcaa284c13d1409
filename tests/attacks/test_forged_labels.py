"""What a submission says about its own cells earns nothing and takes nothing away."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.execution.grade_notebook import grade
from tests.grading import given_course
from tests.grading.given_course import by_id

LEANS = "import operator\ndef double(x):\n    return operator.add(x, x)"


@pytest.fixture(autouse=True)
def carries(course, tmp_path, monkeypatch):
    given_course.carry(tmp_path / "carried", monkeypatch)


def earned(book, course, sandboxes, tmp_path, forbidden=()) -> list[float]:
    first, *others = course.SYNTHETIC.tasks
    project = replace(course.SYNTHETIC, tasks=(replace(first, forbidden=forbidden), *others))
    folder = tmp_path / "work"
    folder.mkdir()
    return [task.earned for task in grade(book, project, folder, seed=4711, sandbox=sandboxes).tasks]


def test_a_given_cell_that_asks_less_is_run_as_it_was_given(course, sandboxes, tmp_path):
    book = given_course.notebook(given_course.SOLUTIONS | {"T9.2": "def text(number): return 'wrong'"})
    by_id(book, "T9-2-given").source = "open('answer.txt', 'w').write('42')"
    assert earned(book, course, sandboxes, tmp_path) == [40, 0, 20]


def test_nobody_is_trusted_for_a_label(course, sandboxes, tmp_path):
    book = given_course.notebook()
    forged = copy.deepcopy(by_id(book, "T9-2-given"))
    forged.id, forged.source = "forged", LEANS
    given_course.add(book, "T9-1-solution", forged)
    by_id(book, "T9-1-solution").source = ""
    assert earned(book, course, sandboxes, tmp_path, forbidden=("operator.add",)) == [0, 20, 20]


def test_a_notebook_of_solutions_alone_in_the_wrong_order_has_its_marks(course, sandboxes, tmp_path):
    book = given_course.notebook()
    solutions = [by_id(book, f"T9-{task}-solution") for task in (3, 1, 2)]
    book.cells = [book.cells[1], *solutions[:2], new_code_cell(given_course.SOLUTIONS["T9.2"])]
    assert earned(book, course, sandboxes, tmp_path) == [40, 20, 20]
