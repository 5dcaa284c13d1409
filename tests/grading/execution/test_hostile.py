"""A hostile submission loses its own points, and the grading goes on."""

from __future__ import annotations

import os

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.expect import format_value
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task, points
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.notebooks.notebook import read, write_text
from mlhood.grading.notebooks.restore import grading_points, restore
from mlhood.grading.reports import marks_text
from mlhood.grading.rpc.file_channel import write_fresh
from tests.waiting import PATIENCE

LIMIT = PATIENCE


@points(1)
def f_gives_one(submission):
    """f() gives 1."""
    if submission.call("f") != 1:
        raise AssertionError


TASK = Task("T9.1", "f", (f_gives_one,), seconds=LIMIT)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    with Kernel(tmp_path_factory.mktemp("work")) as kernel:
        yield kernel


def earned(kernel) -> float:
    return grade_task(TASK, Session(kernel, kernel.folder, kernel.scratch), 0).earned


def run(kernel, source: str, tags: tuple[str, ...] = ()):
    return kernel.run(new_code_cell(source, metadata={"tags": list(tags)}), LIMIT)


@pytest.mark.parametrize("source", ["exit()", "get_ipython().ask_exit()"])
def test_exit_does_not_end_the_kernel_later(kernel, source):
    run(kernel, "def f(): return 1")
    run(kernel, source)
    assert run(kernel, "import time; time.sleep(1)").alive
    assert earned(kernel) == 1


def test_a_tag_does_not_skip_a_cell(kernel):
    run(kernel, "def f(): return 1", tags=("skip-execution",))
    assert earned(kernel) == 1


def test_a_removed_folder_is_created_again(kernel):
    run(kernel, "def f(): return 1")
    outcome = run(kernel, f"import os, shutil\nshutil.rmtree({str(kernel.folder)!r})\nos._exit(0)")
    assert not outcome.alive
    assert earned(kernel) == 1


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


def test_a_message_of_a_student_does_not_control_the_terminal(kernel):
    run(kernel, "def f(): raise ValueError('\\x1b[2J\\ud800\\nP1 100 of 100')")
    text = marks_text.task_text(grade_task(TASK, Session(kernel, kernel.folder, kernel.scratch), 0))
    assert "\x1b" not in text
    assert text.encode()
    assert not any(line.startswith("P1 100") for line in text.splitlines())
    assert format_value("\x1b") == "\N{REPLACEMENT CHARACTER}"


def test_a_copy_of_a_cell_does_not_delay_grading(course):
    book = course.notebook()
    before = grading_points(restore(book, course.SYNTHETIC).cells, course.SYNTHETIC)
    book.cells.append(nbformat.from_dict(dict(book.cells[1])))
    assert grading_points(restore(book, course.SYNTHETIC).cells, course.SYNTHETIC) == before
