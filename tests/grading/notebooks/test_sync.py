"""`mlhood sync` labels new cells, updates points and titles, and leaves everything else as it is."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.nbgraderformat.v3 import MetadataValidatorV3
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import NotebookError
from mlhood.grading.notebooks.notebook import notebook_text, write
from mlhood.grading.notebooks.restore import restore
from mlhood.grading.notebooks.sync import cell_files, outdated_files, sync_notebook
from tests.grading import given_course
from tests.grading.given_course import by_id
from tests.grading.synthetic_course import SOLUTIONS, SYNTHETIC

ROOT = Path(__file__).parents[3]
TITLE = "# T9\n\n`1 points` · `9 tasks` · `1 questions`\n\n| task | what you do | points |\n|---|---|---|\n"
ROWS = "| [T9.1](#t9-1) | Twice | 1 |\n| [T9.8](#t9-8) | No task any more | 2 |\n| T9.4 | Why two? | bonus, up to 5 |"
PATH = Path("T9.ipynb")
CELLS = "mlhood/grading/projects/t9/cells.json"
SOLUTIONS_FILE = "mlhood/grading/projects/t9/solutions.json"
QUESTIONS = "mlhood/grading/projects/t9/questions.json"
VARIANTS = "mlhood/grading/projects/t9/variants.json"


def section(task: str, *after: str) -> list:
    """The cells of a task as an author writes them."""
    heading = new_markdown_cell(f'<a id="{task.lower()}"></a>\n### {task} · A title (7 points)\n\nDo it.')
    sources = ["x = 1", SOLUTIONS[task], f'mlhood.check("{task}")', *after]
    return [heading, *map(new_code_cell, sources)]


@pytest.fixture
def book(course):
    cells = [new_markdown_cell(TITLE + ROWS), new_code_cell("import mlhood"), *section("T9.1", "print(double(2))")]
    cells += [*section("T9.2"), *section("T9.3"), new_markdown_cell("## The end"), new_code_cell("mlhood.progress()")]
    return new_notebook(cells=cells, metadata={"mlhood": {"project": "T9"}})


def synced(book):
    sync_notebook(book, SYNTHETIC, PATH)
    return book


def test_new_cells_are_labelled_by_their_place(book):
    labelled = [cell for cell in synced(book).cells if "mlhood" in cell.metadata]
    assert [cell.id for cell in labelled] == [
        *("T9-1-given-1", "T9-1-solution", "T9-1-check", "T9-1-result-1"),
        *("T9-2-given-1", "T9-2-solution", "T9-2-check", "T9-3-given-1", "T9-3-solution", "T9-3-check"),
    ]
    assert [cell.metadata.nbgrader.grade_id for cell in labelled] == [cell.id for cell in labelled]
    check = by_id(book, "T9-1-check").metadata
    assert check.mlhood == {"task": "T9.1", "role": "check"}
    assert (check.nbgrader.points, check.nbgrader.grade, check.nbgrader.locked, check.editable) == (
        40,
        True,
        True,
        False,
    )
    assert "editable" not in by_id(book, "T9-1-solution").metadata
    MetadataValidatorV3().validate_nb(book)


def test_titles_and_points_come_from_the_check_modules(book):
    text = synced(book).cells[0].source
    assert "`100 points` · `3 tasks` · `1 questions`" in text
    rows = [
        "| [T9.1](#t9-1) | Double | 40 |",
        "| [T9.2](#t9-2) | A file | 40 |",
        "| [T9.3](#t9-3) | Build on it | 20 |",
    ]
    assert [line for line in text.splitlines() if line.startswith("| [")] == rows
    assert "| T9.4 | Why two? | bonus, up to 5 |" in text
    assert "### T9.1 · Double (40 points)\n\nDo it." in book.cells[2].source


def test_a_synced_notebook_does_not_change(book):
    text = notebook_text(synced(book))
    assert notebook_text(synced(book)) == text


def test_a_label_is_kept_and_a_changed_role_renames_the_cell(book):
    by_id(synced(book), "T9-1-result-1").metadata["mlhood"]["role"] = "given"
    assert by_id(synced(book), "T9-1-given-2").metadata.nbgrader.locked


def test_a_copy_is_labelled_by_its_place(book):
    synced(book)
    for name, index in (("T9-3-given-1", len(book.cells)), ("T9-1-check", 8), ("T9-1-solution", 4)):
        duplicate = copy.deepcopy(by_id(book, name))
        duplicate.id = "copy"  # as nbformat does
        book.cells.insert(index, duplicate)
    names = [cell.id for cell in synced(book).cells]
    assert names[4:6] == ["T9-1-solution", "T9-1-solution-2"]
    assert names[9] == "T9-1-check-2"
    assert book.cells[-1].metadata == {}


@pytest.mark.parametrize("missing", [SOLUTIONS["T9.3"], 'mlhood.check("T9.2")'])
def test_a_task_without_one_of_its_cells_is_an_error(book, missing):
    book.cells = [cell for cell in book.cells if cell.source != missing]
    with pytest.raises(NotebookError, match=r"a task has no (solution|check) cell"):
        synced(book)


def test_a_cell_of_a_task_that_is_not_declared_is_an_error(book):
    book.cells.append(new_code_cell('mlhood.check("T9.7")'))
    with pytest.raises(NotebookError, match="not declared"):
        synced(book)


def test_the_command_writes_and_check_only_lists(book, tmp_path, monkeypatch):
    write(book, tmp_path / "P1.ipynb")
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "P1.ipynb").read_text()
    listed = CliRunner().invoke(app, ["sync", "--check"])
    assert listed.exit_code == 1
    assert listed.stdout.splitlines() == [
        f"not in sync: {name}" for name in ("P1.ipynb", CELLS, SOLUTIONS_FILE, QUESTIONS, VARIANTS)
    ]
    assert (tmp_path / "P1.ipynb").read_text() == before
    assert CliRunner().invoke(app, ["sync"]).exit_code == 0
    assert CliRunner().invoke(app, ["sync", "--check"]).exit_code == 0


def test_the_repository_is_in_sync():
    assert outdated_files(ROOT) == {}, "run `mlhood sync`"


def test_solutions_are_copied_without_their_markers(book, tmp_path):
    write(synced(book), tmp_path / "T9.ipynb")
    files = cell_files([tmp_path / "T9.ipynb"])
    assert '"T9.1": "def double(x):\\n    return 2 * x"' in files[SOLUTIONS_FILE]


def test_the_synthetic_notebook_restores_to_itself_after_a_sync(book, tmp_path, monkeypatch):
    given_course.sync(tmp_path / "synced", monkeypatch, synced(book))
    assert restore(book, SYNTHETIC).changes == ()
