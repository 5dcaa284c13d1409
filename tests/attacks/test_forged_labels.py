"""The labels of a submission's cells neither earn nor cost points."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.bare.libraries import ARRAYS
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from tests.grading import given_course
from tests.grading.given_course import by_id

USES = "import torch\ndef double(x):\n    return torch.add(torch.as_tensor(x), torch.as_tensor(x)).numpy()"


@pytest.fixture(autouse=True)
def synced(course, tmp_path, monkeypatch):
    given_course.sync(tmp_path / "synced", monkeypatch)


def earned(book, course, pool, tmp_path, libraries=None) -> list[float]:
    first, *others = course.SYNTHETIC.tasks
    project = replace(course.SYNTHETIC, tasks=(replace(first, libraries=libraries), *others))
    folder = tmp_path / "work"
    folder.mkdir()
    return [task.earned for task in grade(book, project, folder, RunSettings(4711, kernels=pool.kernel)).tasks]


def test_a_weakened_given_cell_runs_as_it_was_given(course, pool, tmp_path):
    book = given_course.notebook(given_course.SOLUTIONS | {"T9.2": "def text(number): return 'wrong'"})
    by_id(book, "T9-2-given").source = "open('answer.txt', 'w').write('42')"
    assert earned(book, course, pool, tmp_path) == [40, 0, 20]


def test_a_label_does_not_make_a_cell_trusted(course, pool, tmp_path):
    book = given_course.notebook()
    forged = copy.deepcopy(by_id(book, "T9-2-given"))
    forged.id, forged.source = "forged", USES
    given_course.add(book, "T9-1-solution", forged)
    by_id(book, "T9-1-solution").source = ""
    assert earned(book, course, pool, tmp_path, libraries=ARRAYS) == [0, 20, 20]


def test_solutions_alone_in_the_wrong_order_get_their_marks(course, pool, tmp_path):
    book = given_course.notebook()
    solutions = [by_id(book, f"T9-{task}-solution") for task in (3, 1, 2)]
    book.cells = [book.cells[1], *solutions[:2], new_code_cell(given_course.SOLUTIONS["T9.2"])]
    assert earned(book, course, pool, tmp_path) == [40, 20, 20]
