from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from mlhood.errors import GradingError, NotebookError, OutputError
from mlhood.grading.notebooks.notebook import clean, course_notebooks, read, write
from mlhood.grading.projects.collect import VARIANT
from mlhood.run import output_folder
from mlhood.run import run as run_module
from mlhood.run.report import write_report
from mlhood.run.run import kernels_of_variant, require_for_variant, run_notebooks, variant_folder
from tests.waiting import PATIENCE, wait_until


class Observer:
    """A silent observer that may raise KeyboardInterrupt at a step."""

    def __init__(self, interrupt_at: str | None = None) -> None:
        self.interrupt_at = interrupt_at

    def begin(self, name, number, count):
        pass

    def step(self, step):
        if step.text == self.interrupt_at:
            raise KeyboardInterrupt

    def end(self, run):
        pass


def run(notebooks, out, observer=None, **options):
    return run_notebooks(notebooks, out, observer or Observer(), write_report, **options)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_solved_notebook_writes_everything_into_out(solved, tmp_path):
    before = digest(solved)
    outcome = run([solved], tmp_path / "out")
    assert outcome.code == 0
    assert digest(solved) == before
    names = {path.name for path in (tmp_path / "out" / "T9").iterdir()}
    assert names == {"T9.ipynb", "T9.html", "answer.txt", output_folder.MANIFEST}
    marks = json.loads((tmp_path / "out" / "marks.json").read_text())
    assert (marks["earned"], marks["points"], marks["notebooks"][0]["marks"]["skipped"]) == (80, 80, 20)
    executed = read(tmp_path / "out" / "T9" / "T9.ipynb")
    counts = [cell.execution_count for cell in executed.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


def test_the_report_needs_no_network_and_no_colours(course, tmp_path):
    wrong = course.SOLUTIONS | {"T9.1": "def double(x):\n    return '<script>alert(1)</script>'"}
    write(course.notebook(wrong), tmp_path / "T9.ipynb")
    run([tmp_path / "T9.ipynb"], tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "✗ failed" in page
    assert "40 of 80 points" in page
    assert '<html lang="en">' in page
    notebook_page = (tmp_path / "out" / "T9" / "T9.html").read_text()
    assert "<script" not in notebook_page
    assert "default-src 'none'" in notebook_page


def test_bad_notebook_does_not_stop_the_next(solved, tmp_path):
    bad = tmp_path / "bad.ipynb"
    bad.write_text("{")
    outcome = run([bad, solved], tmp_path / "out")
    assert outcome.code == 1
    assert isinstance(outcome.runs[0].error, NotebookError)
    assert outcome.runs[1].full
    assert "not JSON" in (tmp_path / "out" / "report.html").read_text()


def test_interruption_keeps_what_is_done(solved, tmp_path):
    outcome = run([solved, solved], tmp_path / "out", Observer(interrupt_at="marking T9.2"))
    assert outcome.code == 130
    assert len(outcome.runs) == 1
    assert [task.id for task in outcome.runs[0].marks.tasks] == ["T9.1"]
    executed = read(tmp_path / "out" / "T9" / "T9.ipynb")
    cells = {cell.id: cell for cell in executed.cells}
    assert cells["imports"].outputs
    assert cells["T9-3-solution"].execution_count is None
    assert "Interrupted: tasks that are not listed" in (tmp_path / "out" / "report.html").read_text()


def test_same_name_gets_a_folder_of_its_own(solved, tmp_path):
    outcome = run([solved, solved], tmp_path / "out")
    assert [run.name for run in outcome.runs] == ["T9", "T9-2"]
    assert outcome.code == 0


@pytest.mark.parametrize(("solution", "copied"), [({}, True), ({"T9.1": "double = None"}, False)])
def test_reads_a_file_of_a_notebook_that_lost_no_points(course, solved, tmp_path, monkeypatch, solution, copied):
    monkeypatch.setattr(run_module, "project_of", lambda *_: replace(course.SYNTHETIC, reads=("first.html",)))
    write(course.notebook(course.SOLUTIONS | solution), tmp_path / "first.ipynb")
    outcome = run([tmp_path / "first.ipynb", solved], tmp_path / "out")
    assert outcome.runs[0].full == copied
    assert (tmp_path / "out" / "T9" / "first.html").exists() == copied


def test_stale_file_does_not_pass_and_own_files_are_kept(course, solved, tmp_path):
    out = tmp_path / "out"
    run([solved], out)
    (out / "T9" / "diary.txt").write_text("mine")
    lazy = course.SOLUTIONS | {"T9.2": "pass"}
    write(course.notebook(lazy), solved)
    outcome = run([solved], out)
    assert [task.earned for task in outcome.runs[0].marks.tasks] == [40, 0, 20]
    assert (out / "T9-kept-1" / "diary.txt").read_text() == "mine"
    assert not (out / "T9-kept-1" / "answer.txt").exists()
    assert "T9-kept-1" in outcome.runs[0].notes[0]


def test_changed_result_is_kept(solved, tmp_path):
    out = tmp_path / "out"
    run([solved], out)
    (out / "T9" / "T9.ipynb").write_text("my remarks")
    run([solved], out)
    assert (out / "T9-kept-1" / "T9.ipynb").read_text() == "my remarks"


def test_write_back_is_stable(solved, tmp_path):
    run([solved], tmp_path / "out", write_back=True)
    first = digest(solved)
    assert read(solved).cells[2].outputs
    run([solved], tmp_path / "out", write_back=True)
    assert digest(solved) == first


def test_failed_cell_is_not_written_back(course, tmp_path):
    path = tmp_path / "T9.ipynb"
    write(course.notebook(course.SOLUTIONS | {"T9.2": "1 / 0"}), path)
    before = digest(path)
    outcome = run([path], tmp_path / "out", write_back=True)
    assert outcome.code == 1
    assert "ZeroDivisionError" in outcome.runs[0].failed_cells[0]
    assert digest(path) == before


def test_out_that_is_a_file_is_refused_before_work(solved, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        run([solved], tmp_path / "out", Observer(interrupt_at="import runpy"))


def test_full_disk_is_refused_before_work(solved, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 20))
    with pytest.raises(OutputError, match="nearly full"):
        run([solved], tmp_path / "out", Observer(interrupt_at="import runpy"))


def test_read_only_folder_is_refused_before_work(solved, tmp_path, monkeypatch):
    def refuse(self, data):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OutputError) as caught:
        run([solved], tmp_path / "out", Observer(interrupt_at="import runpy"))
    assert "Read-only" in str(caught.value)


def test_foreign_report_is_not_replaced(solved, tmp_path):
    (tmp_path / "report.html").write_text("<p>my thesis")
    with pytest.raises(OutputError, match="did not write"):
        run([solved], tmp_path)
    assert (tmp_path / "report.html").read_text() == "<p>my thesis"


def test_disk_that_fills_up_does_not_lose_the_marks(solved, tmp_path, monkeypatch):
    def full(path, text):
        raise OutputError("the result cannot be written", where=path, got="No space left on device")

    monkeypatch.setattr("mlhood.run.report.write_text", full)
    outcome = run([solved], tmp_path / "out")
    assert outcome.code == 2
    assert outcome.runs[0].marks.earned == 80
    assert "No space" in str(outcome.error)


def test_default_notebooks(tmp_path):
    with pytest.raises(NotebookError, match="no notebook of the course"):
        course_notebooks(tmp_path)
    for name in ("P2.ipynb", "P1.ipynb", "notes.ipynb"):
        (tmp_path / name).write_text("")
    assert [path.name for path in course_notebooks(tmp_path)] == ["P1.ipynb", "P2.ipynb"]


def test_clean_merges_streams_and_drops_widgets(course):
    book = course.notebook()
    cell = book.cells[1]
    cell.execution_count = 17
    cell.metadata["execution"] = {"iopub.execute_input": "now"}
    cell.outputs = [
        course.NotebookNode(output_type="stream", name="stdout", text="a"),
        course.NotebookNode(output_type="stream", name="stdout", text="b"),
        course.NotebookNode(
            output_type="display_data", metadata={}, data={"application/vnd.jupyter.widget-view+json": {}}
        ),
    ]
    clean(book)
    assert (cell.execution_count, [output.text for output in cell.outputs]) == (1, ["ab"])
    assert "execution" not in cell.metadata
    assert book.metadata.language_info == {"name": "python"}


COMMAND = "from tests.grading import synthetic_course as s; s.install(); from mlhood.cli import main; main()"


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_ctrl_c_from_the_command_line(course, tmp_path):
    slow = course.SOLUTIONS | {"T9.2": "import time\nopen('started', 'w').close()\ntime.sleep(600)"}
    write(course.notebook(slow), tmp_path / "T9.ipynb")
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "run", "T9.ipynb"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": course.ROOT},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert wait_until(lambda: list(tmp_path.rglob("started")))
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "40 of 40" in printed
    assert "what was finished is kept" in printed
    assert "Traceback" not in errors
    assert "Task was destroyed" not in errors
    assert (tmp_path / "out" / "T9" / "T9.ipynb").exists()
    assert (tmp_path / "out" / "report.html").exists()


def test_clean_makes_pictures_small_and_keeps_what_they_show():
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:, 32:] = (0, 114, 178)
    pixels[::3, ::5] = np.arange(22 * 13).reshape(22, 13, 1) % 200
    picture = io.BytesIO()
    Image.fromarray(pixels).save(picture, "PNG", compress_level=0)
    data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
    book = new_notebook(cells=[new_code_cell("draw()", outputs=[new_output("display_data", data)])])
    clean(book)
    small = book.cells[0].outputs[0].data["image/png"]
    assert len(small) < len(data["image/png"]) / 2
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(small))).convert("RGB"), int)
    assert np.abs(shown - pixels).max() <= 8
    clean(book)
    assert book.cells[0].outputs[0].data["image/png"] == small


# -- variants


def test_the_kernels_of_a_run_know_the_variant_and_later_ones_do_not(solved, tmp_path):
    notebook = read(solved)
    notebook.cells.append(new_code_cell(f"import os\nprint(os.environ['{VARIANT}'])"))
    write(notebook, solved)
    outcome = run([solved], tmp_path / "out", variant="autumn")
    executed = read(outcome.runs[0].folder / "T9.ipynb")
    assert executed.cells[-1].outputs[0].text == "autumn\n"
    assert VARIANT not in os.environ


def test_an_earlier_variant_is_restored(monkeypatch):
    monkeypatch.setenv(VARIANT, "spring")
    with kernels_of_variant("autumn"):
        assert os.environ[VARIANT] == "autumn"
    assert os.environ[VARIANT] == "spring"
    with pytest.raises(GradingError, match="name of a variant"), kernels_of_variant("?"):
        pass


def test_the_sources_of_a_variant_are_kept_out_of_the_course(solved, tmp_path):
    folder = variant_folder(tmp_path, "autumn/B")
    assert folder.name == f"{tmp_path.name}-autumn-B"
    assert folder.parent == tmp_path.parent
    require_for_variant([solved], folder, write_back=False)
    for inside in (tmp_path, tmp_path / "out"):
        with pytest.raises(OutputError, match="do not belong"):
            require_for_variant([solved], inside, write_back=False)
    with pytest.raises(GradingError, match="written back"):
        require_for_variant([solved], folder, write_back=True)
