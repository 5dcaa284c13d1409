"""Submissions whose marks are known: as a student would hand them in, each with bytes of its own."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from mlhood.errors import GradingError
from mlhood.grading.bench.variants import RIGHT, Fault, empty_tasks, hand_in, read_faults, solved, variants
from mlhood.grading.execution.grade_file import grade_file
from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.projects import PROJECTS
from tests.grading.projects import wrong_table

MASTER = Path("T9.ipynb")


@pytest.fixture
def edition(course):
    return solved(course.notebook(), MASTER)


def test_a_solved_edition_has_the_masters_code_and_none_of_its_marks(course, edition):
    sources = {cell.id: cell.source for cell in edition.cells}
    assert sources["T9-1-solution"] == "def double(x):\n    return 2 * x"
    assert not any("SOLUTION" in source for source in sources.values())
    assert not next(cell for cell in edition.cells if cell.id == "T9-1-check").metadata["editable"]


def test_the_faults_take_turns_and_no_two_have_the_same_bytes(edition):
    fault = Fault("triples", {"T9-1-solution": "def double(x):\n    return 3 * x"}, frozenset({("T9.1", "x")}))
    found = variants(edition, [RIGHT, fault], 5)
    assert [one.name for one in found] == ["solved", "triples", "solved", "triples", "solved"]
    assert [one.loses for one in found[:2]] == [frozenset(), fault.loses]
    assert len({one.content for one in found}) == 5
    assert "3 * x" in nbformat.reads(found[3].content.decode(), as_version=4).cells[4].source


def test_what_a_variant_is_said_to_lose_it_loses(course, edition, tmp_path):
    project = course.SYNTHETIC
    faults = empty_tasks(course.notebook(), project, MASTER)
    assert [fault.name for fault in faults] == [f"T9.{number} left empty" for number in (1, 2, 3)]
    (one,) = variants(edition, faults, 1)
    folder = hand_in([one], tmp_path / "class", "T9")
    marks = grade_file(folder / "s0000_T9.ipynb", seed=1)
    failed = {(task.id, check.name) for task in marks.tasks for check in task.checks if check.status == "failed"}
    assert failed == one.loses == {("T9.1", "doubles_numbers"), ("T9.1", "doubles_arrays")}


def test_a_cell_that_is_not_there_is_told_of(edition):
    with pytest.raises(GradingError, match="a cell that the notebook does not have"):
        variants(edition, [Fault("elsewhere", {"T9-7-solution": ""}, frozenset())], 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSONDecodeError"),
        ("[1]", "TypeError"),
        ('[{"name": "x", "cells": {}}]', "loses"),
        ('[{"name": "x", "cells": {}, "loses": ["unknown"]}]', "no check unknown"),
        ("[]", "empty"),
    ],
)
def test_a_table_with_faults_of_its_own_is_told_of(tmp_path, text, says):
    (tmp_path / "wrong.json").write_text(text)
    with pytest.raises(GradingError, match="the table of wrong solutions") as caught:
        read_faults(tmp_path / "wrong.json", PROJECTS["P1"])
    assert says in str(caught.value)


def test_no_table_is_told_of(tmp_path):
    with pytest.raises(GradingError, match="cannot be read"):
        read_faults(tmp_path / "nothing.json", PROJECTS["P1"])


@pytest.mark.parametrize("project", wrong_table.GALLERIES)
def test_the_gallery_is_a_table(project, tmp_path):
    rows = wrong_table.rows(project)
    (tmp_path / "wrong.json").write_text(json.dumps(rows))
    faults = read_faults(tmp_path / "wrong.json", PROJECTS[project])
    assert len(faults) == len(rows)
    assert all(len(fault.loses) == len(row["loses"]) for fault, row in zip(faults, rows, strict=True))
    master = read(Path(__file__).parents[3] / f"{project}.ipynb")
    assert len(variants(solved(master, MASTER), faults, len(faults))) == len(rows)


def test_a_submission_can_be_written_and_read(edition, tmp_path):
    folder = hand_in(variants(edition, [RIGHT], 1), tmp_path / "class", "P1")
    book = read(folder / "s0000_P1.ipynb")
    write(book, tmp_path / "again.ipynb")
    assert book.metadata["student"] == "s0000"
