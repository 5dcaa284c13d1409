"""A hostile submission loses its own points, and the grading goes on."""

from __future__ import annotations

import os

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.notebooks.notebook import read, write_text
from mlhood.grading.notebooks.restore import grading_points, restore
from mlhood.grading.rpc.server import write_fresh
from tests.waiting import PATIENCE


def test_a_removed_folder_is_created_again(tmp_path):
    with Kernel(tmp_path / "work") as kernel:
        remove = f"import os, shutil\nshutil.rmtree({str(kernel.folder)!r})\nos._exit(0)"
        assert not kernel.run(new_code_cell(remove), PATIENCE).alive
        assert kernel.run(new_code_cell("open('x', 'w').close()"), PATIENCE).error == ""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are files on POSIX only")
def test_a_pipe_at_the_path_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "request-1")
    write_fresh(tmp_path / "request-1", b"text")
    assert (tmp_path / "request-1").read_bytes() == b"text"


def test_a_link_at_the_path_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    write_fresh(tmp_path / "link", b"new")
    assert (tmp_path / "mine").read_text() == "mine"


def test_lone_surrogates_are_written_and_read(tmp_path):
    write_text(tmp_path / "text", "a\ud800b")
    assert (tmp_path / "text").read_text() == "a?b"
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "id": "a", "source": "x='Q'"}
    text = nbformat.writes(nbformat.from_dict({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    (tmp_path / "P1.ipynb").write_text(text.replace("'Q'", r"'\ud800'"))
    assert read(tmp_path / "P1.ipynb").cells[0].source == "x='?'"


def test_a_copy_of_a_cell_does_not_delay_grading(course):
    book = course.notebook()
    before = grading_points(restore(book, course.SYNTHETIC).cells, course.SYNTHETIC)
    book.cells.append(nbformat.from_dict(dict(book.cells[1])))
    assert grading_points(restore(book, course.SYNTHETIC).cells, course.SYNTHETIC) == before
