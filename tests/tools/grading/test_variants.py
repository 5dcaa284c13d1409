"""Submissions of known marks: as a student would submit them, no two identical."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from mlhood.errors import GradingError
from mlhood.grading.execution.grade_notebook import RunSettings, grade_file
from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.projects import PROJECTS
from tests.grading.projects import wrong_table
from tests.tools.grading.variants import (
    SOLVED,
    Mutation,
    empty_tasks,
    read_mutations,
    solved,
    variants,
    write_submissions,
)

MASTER = Path("T9.ipynb")


@pytest.fixture
def edition(course):
    return solved(course.notebook(), MASTER)


def test_a_solved_edition_has_the_masters_code_and_none_of_its_marks(course, edition):
    sources = {cell.id: cell.source for cell in edition.cells}
    assert sources["T9-1-solution"] == "def double(x):\n    return 2 * x"
    assert not any("SOLUTION" in source for source in sources.values())
    assert not next(cell for cell in edition.cells if cell.id == "T9-1-check").metadata["editable"]


def test_submissions_cycle_through_the_mutations_and_no_two_are_identical(edition):
    mutation = Mutation("triples", {"T9-1-solution": "def double(x):\n    return 3 * x"}, frozenset({("T9.1", "x")}))
    submissions = variants(edition, [SOLVED, mutation], 5)
    assert [variant.name for variant in submissions] == ["solved", "triples", "solved", "triples", "solved"]
    assert [variant.loses for variant in submissions[:2]] == [frozenset(), mutation.loses]
    assert len({variant.content for variant in submissions}) == 5
    assert "3 * x" in nbformat.reads(submissions[3].content.decode(), as_version=4).cells[4].source


def test_a_variant_fails_the_listed_checks(course, edition, tmp_path):
    project = course.SYNTHETIC
    mutations = empty_tasks(course.notebook(), project, MASTER)
    assert [mutation.name for mutation in mutations] == [f"T9.{n} left empty" for n in (1, 2, 3)]
    (variant,) = variants(edition, mutations, 1)
    folder = write_submissions([variant], tmp_path / "class", "T9")
    marks = grade_file(folder / "s0000_T9.ipynb", RunSettings(1))
    failed = {(task.id, check.name) for task in marks.tasks for check in task.checks if check.status == "failed"}
    assert failed == variant.loses == {("T9.1", "doubles_numbers"), ("T9.1", "doubles_arrays")}


def test_a_missing_cell_is_reported(edition):
    with pytest.raises(GradingError, match="a cell that the notebook does not have"):
        variants(edition, [Mutation("elsewhere", {"T9-7-solution": ""}, frozenset())], 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSONDecodeError"),
        ("[1]", "TypeError"),
        ('[{"name": "x", "cells": {}}]', "loses"),
        ('[{"name": "x", "cells": {}, "loses": ["unknown"]}]', "no check unknown"),
        ("[]", "empty"),
    ],
)
def test_an_invalid_table_is_reported(tmp_path, text, message):
    (tmp_path / "wrong.json").write_text(text)
    with pytest.raises(GradingError, match="the table of wrong solutions") as caught:
        read_mutations(tmp_path / "wrong.json", PROJECTS["P1"])
    assert message in str(caught.value)


def test_a_missing_table_is_reported(tmp_path):
    with pytest.raises(GradingError, match="cannot be read"):
        read_mutations(tmp_path / "nothing.json", PROJECTS["P1"])


@pytest.mark.parametrize("project", wrong_table.GALLERIES)
def test_the_gallery_can_be_read_as_a_table(project, tmp_path):
    rows = wrong_table.rows(project)
    (tmp_path / "wrong.json").write_text(json.dumps(rows))
    mutations = read_mutations(tmp_path / "wrong.json", PROJECTS[project])
    assert len(mutations) == len(rows)
    assert all(len(mutation.loses) == len(row["loses"]) for mutation, row in zip(mutations, rows, strict=True))
    master = read(Path(__file__).parents[3] / f"{project}.ipynb")
    assert len(variants(solved(master, MASTER), mutations, len(mutations))) == len(rows)


def test_a_submission_can_be_written_and_read(edition, tmp_path):
    folder = write_submissions(variants(edition, [SOLVED], 1), tmp_path / "class", "P1")
    book = read(folder / "s0000_P1.ipynb")
    write(book, tmp_path / "again.ipynb")
    assert book.metadata["student"] == "s0000"
