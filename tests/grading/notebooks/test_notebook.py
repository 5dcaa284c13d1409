from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from mlhood.errors import NotebookError, OutputError
from mlhood.grading.execution.grade_notebook import grade_file
from mlhood.grading.notebooks import notebook as module
from mlhood.grading.notebooks.notebook import (
    Label,
    course_notebooks,
    find_notebook,
    label,
    project_of,
    read,
    write,
)


def written(text: str, tmp_path):
    path = tmp_path / "P1.ipynb"
    path.write_text(text)
    return path


def test_reading_a_notebook_compiles_no_grammar_of_addresses():
    """It takes a second or two in every command and kernel, and no notebook needs it."""
    program = (
        "import sys, mlhood.grading.notebooks.notebook\n"
        "from nbformat import validate, ValidationError, NotebookNode\n"
        "try:\n    validate(NotebookNode(nbformat=4, nbformat_minor=5, metadata={}, cells=[{}]))\n"
        "except ValidationError:\n    print('invalid', sys.modules.get('lark'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "invalid None\n"


def test_written_notebook_is_read_back(solved, course):
    assert [cell.source for cell in read(solved).cells] == [cell.source for cell in course.notebook().cells]
    assert not list(solved.parent.glob(".*.part"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not JSON"),
        ("import numpy", "not JSON"),
        ("[1, 2]", "damaged"),
        ("null", "damaged"),
        ('{"a": 1}', "damaged"),
        ('{"cells": 3}', "damaged"),
        ('{"cells": [], "metadata": {}, "nbformat": "four"}', "damaged"),
        ('{"cells": [3], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "damaged"),
        ('{"cells": [{"cell_type": "poem"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "damaged"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_that_is_not_a_notebook_is_refused(text, what, tmp_path):
    with pytest.raises(NotebookError, match=what) as caught:
        read(written(text, tmp_path))
    assert "P1.ipynb" in str(caught.value)
    assert "what to do" in str(caught.value)


def test_truncated(solved, tmp_path):
    text = solved.read_text()
    with pytest.raises(NotebookError, match="not JSON"):
        read(written(text[: len(text) // 2], tmp_path))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document"),
        (b"PK\x03\x04\x14\x00\x00\x00\x08\x00\xb6", "a ZIP archive"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (b"\xff\xfe{\x00", "UTF-16"),
        (b"\x80\x81", "begins with"),
    ],
)
def test_not_text(content, kind, tmp_path):
    path = tmp_path / "P1.ipynb"
    path.write_bytes(content)
    with pytest.raises(NotebookError, match="not text") as caught:
        read(path)
    assert kind in str(caught.value)


def test_missing_or_folder(tmp_path):
    with pytest.raises(NotebookError, match="no notebook"):
        read(tmp_path / "P1.ipynb")
    with pytest.raises(NotebookError) as caught:
        read(tmp_path)
    assert caught.value.parts["got"] == "a folder"


def test_a_mistyped_name_tells_the_nearest(tmp_path):
    written("{}", tmp_path)
    with pytest.raises(NotebookError, match=r"did you mean P1\.ipynb\?"):
        read(tmp_path / "P1.ipny")


@pytest.fixture
def within_course(tmp_path, monkeypatch) -> Path:
    """The working folder is one within a course, whose root is returned."""
    for name in ("P1.ipynb", "P3.ipynb", "pyproject.toml"):
        (tmp_path / name).touch()
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "tests" / "deep")
    return tmp_path


@pytest.mark.parametrize("name", ["P3", "p3", "../../P3", "../../P3.ipynb"])
def test_a_project_is_found_by_name_from_any_folder_of_the_course(name, within_course):
    assert find_notebook(Path(name)).resolve() == within_course / "P3.ipynb"
    assert [path.resolve().name for path in course_notebooks(Path.cwd())] == ["P1.ipynb", "P3.ipynb"]


@pytest.mark.parametrize(("name", "expected"), [("P7", "P7.ipynb"), ("thesis", "thesis"), ("P3.onnx", "P3.onnx")])
def test_what_is_no_notebook_is_left_to_its_reader(name, expected, within_course):
    assert find_notebook(Path(name)) == Path(expected)


def test_too_large(solved, monkeypatch):
    monkeypatch.setattr(module, "MAX_NOTEBOOK_BYTES", 100)
    with pytest.raises(NotebookError, match="too large"):
        read(solved)


MANY = {
    "objects": "[" + "{}," * 1_500_000 + "0]",
    "objects that are cells": '{"cells": [' + "{}," * 300_000 + "{}]}",
    "wide text": '{"cells": ["\U0001f600' + "x" * (10 << 20) + '"]}',
}


@pytest.mark.parametrize("text", MANY.values(), ids=MANY)
def test_what_would_take_much_memory_is_refused_before_it_is_parsed(text, tmp_path, monkeypatch):
    monkeypatch.setattr(module.json, "loads", lambda text: pytest.fail("it was parsed"))
    path = tmp_path / "P1.ipynb"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NotebookError, match="too large"):
        read(path)


def test_missing_and_duplicate_cell_ids_are_replaced_silently(course, tmp_path):
    book = json.loads(nbformat.writes(course.notebook()))
    del book["cells"][0]["id"]
    book["cells"][1]["id"] = book["cells"][2]["id"]
    cells = read(written(json.dumps(book), tmp_path)).cells
    assert len({cell.id for cell in cells}) == len(cells)


def test_old_format_is_read(tmp_path):
    cell = {"cell_type": "code", "language": "python", "input": "x = 1", "outputs": [], "metadata": {}}
    worksheets = [{"metadata": {}, "cells": [cell]}]
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": worksheets}
    assert read(written(json.dumps(old), tmp_path)).cells[0].source == "x = 1"


def test_write_into_a_file(tmp_path, course):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be created"):
        write(course.notebook(), tmp_path / "file" / "P1.ipynb")


def test_a_label_is_in_the_metadata_and_in_the_name(course):
    cell = course.notebook().cells[4]
    assert label(cell) == Label("T9.1", "solution")
    bare = copy.deepcopy(cell)
    del bare.metadata["mlhood"]
    assert label(bare) == Label("T9.1", "solution")
    bare.metadata = {}
    assert label(bare) == Label("T9.1", "solution")
    bare.id = "another"
    assert label(bare) is None


@pytest.mark.parametrize("metadata", [{"mlhood": 3}, {"nbgrader": 3}, {"mlhood": {"task": 3}}, {"nbgrader": {}}])
def test_invalid_metadata_are_not_a_label(course, metadata):
    assert label(new_code_cell("", id="x", metadata=metadata)) is None


def test_project_by_metadata_or_by_cells(course):
    book = course.notebook()
    assert project_of(book, "x").id == "T9"
    book.metadata.pop("mlhood")
    assert project_of(book, "x").id == "T9"
    for cell in book.cells:
        cell.metadata, cell.id = {}, f"cell-{cell.id}"
    assert project_of(book, "x").id == "T9"  # by its calls of checks
    with pytest.raises(NotebookError, match="no task of the course"):
        project_of(new_notebook(metadata={"mlhood": {"project": "T9"}}), "x")


def test_marks_of_a_notebook_without_a_solution_cell(course, tmp_path):
    book = course.notebook()
    book.cells = [cell for cell in book.cells if cell.id != "T9-1-solution"]
    write(book, tmp_path / "T9.ipynb")
    marks = grade_file(tmp_path / "T9.ipynb")
    assert [task.earned for task in marks.tasks] == [0, 20, 20]
    assert "the solution cell of T9.1 is missing" in marks.tasks[0].notes
