"""A class of hostile notebooks in `mlhood grade`: each loses its own points, and the honest one keeps its marks."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from mlhood.grading.batch import executor
from mlhood.grading.batch.grade_class import GradeOptions, grade_class
from mlhood.grading.exporters.formats import plain_csv
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER
from mlhood.grading.reports.feedback import student_page
from tests.grading.fake_class import RecordingObserver

SCRIPT = "<script>owned=1</script><img src=x onerror=owned=1><style>*{display:none}</style>"
SIGN = f"88{os.getpid()}"


def with_first(course, *cells):
    book = course.notebook()
    book.cells[2:2] = cells
    return json.dumps(book)


def with_hostile_metadata(course) -> str:
    book = course.notebook()
    book.metadata |= {"kernelspec": {"name": "../../bin/sh", "display_name": SCRIPT, "language": "python"}}
    book.metadata["mlhood"] |= {"earned": 100, "cells": [SCRIPT] * 99, "seed": 1, "points": {"T9.1": 1000}}
    for cell in book.cells:
        cell.metadata |= {"tags": ["raises-exception", "skip-execution", SCRIPT, 5][:3], "trusted": True}
        cell.metadata |= {"name": "../../../x", "deep": json.loads("[" * 50 + "]" * 50), "points": 1e308}
        if isinstance(cell.metadata.get("nbgrader"), dict):
            cell.metadata["nbgrader"] |= {"points": 1e9, "checksum": SCRIPT, "grade": "yes"}
    return json.dumps(book)


def large(course) -> str:
    return with_first(course, new_code_cell("x = 1", outputs=[new_output("stream", text="x" * (50 << 20))]))


def many(course) -> str:
    return with_first(course, *(new_code_cell("x = 1") for _ in range(300)))


def pages(course) -> str:
    shown = [new_output("display_data", {kind: SCRIPT}) for kind in ("text/html", "image/svg+xml", "text/markdown")]
    cell = new_code_cell(f"# {SCRIPT}", outputs=shown)
    cell.metadata["mlhood"] = {"task": "T9.1", "role": "solution"}
    return with_first(course, cell, new_markdown_cell(SCRIPT))


FULL = [40, 20, 20]
CLASS = {
    "ada": lambda course: json.dumps(course.notebook()),
    "=cmd|calc": pages,
    "bomb": lambda course: with_first(course, new_code_cell(f"import os\nos.system('sleep {SIGN} &')\nos._exit(0)")),
    "broken": lambda course: json.dumps(course.notebook())[:-99],
    "code": lambda course: with_first(course, new_code_cell("x = [" + "1," * (600 << 10) + "]")),
    "deep": lambda course: "[" * 200_000,
    "empty": lambda course: "",
    "large": large,
    "many": many,
    "metadata": with_hostile_metadata,
    "nobody": lambda course: '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    "wrong kinds": lambda course: '{"cells": [5], "metadata": [], "nbformat": "4", "nbformat_minor": {}}',
}


@pytest.fixture(scope="module")
def graded(bubblewrap, tmp_path_factory):
    from tests.grading import synthetic_course

    folder = tmp_path_factory.mktemp("class")
    for name, text in CLASS.items():
        (folder / "in" / name).mkdir(parents=True)
        (folder / "in" / name / "T9.ipynb").write_text(text(synthetic_course))
    (folder / "in" / "link").mkdir()
    (folder / "in" / "link" / "T9.ipynb").symlink_to(folder / "in" / "ada" / "T9.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setattr(executor, "WORKER", "tests.attacks.hostile_worker")
        return grade_class([folder / "in"], folder / "out", GradeOptions(layout="classroom"), RecordingObserver())


def test_everyone_has_a_result_and_who_can_be_graded_keeps_what_was_earned(graded):
    assert {record.student: [task.earned for task in record.tasks] for record in graded.records} == {
        **dict.fromkeys(("ada", "=cmd|calc", "metadata", "many", "bomb"), FULL),
        "code": [0, 0, 0],  # what comes after the flood is not run either
    }
    assert {record.status for record in graded.records} == {"done"}
    assert {record.possible for record in graded.records} == {80}


def test_files_that_cannot_be_graded_have_a_reason(graded):
    reasons = {file.source.partition("/")[0]: file.problem for file in graded.unassigned}
    assert set(reasons) == {"broken", "deep", "empty", "large", "link", "nobody", "wrong kinds"}
    assert "larger than 32 MiB; clear its outputs" in reasons["large"]
    assert "not followed" in reasons["link"]
    assert all("Traceback" not in reason and len(reason) < 1000 for reason in reasons.values())


def test_a_name_is_no_formula(graded):
    rows = list(csv.reader(io.StringIO(plain_csv(graded.records))))
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@", "\t"))]
    assert any("cmd|calc" in cell for row in rows for cell in row)


def test_no_page_holds_a_script(graded):
    pages = [student_page(record, graded.gradebook.parent / SUBMISSIONS_FOLDER) for record in graded.records]
    assert any("&lt;script&gt;" in page for page in pages)
    assert not any("<script" in page or "<img src=x" in page or "<style>*" in page for page in pages)


def test_no_process_is_left(graded):
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines.append((process / "cmdline").read_bytes())
    assert not [line for line in lines if SIGN.encode() in line]
