"""Where the time of a grading goes, according to the kernel's clock and the steps of the grading."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from nbformat.v4 import new_code_cell
from typer.testing import CliRunner

from mlhood import cli
from mlhood.grading.sandbox.bubblewrap import problem

if sys.platform != "linux":
    pytest.skip("there is no sandbox", allow_module_level=True)

from mlhood.grading import overhead
from mlhood.grading.checks.marks import TaskResult
from mlhood.grading.execution.grade_notebook import CellStep
from mlhood.grading.overhead import GradingTime, Overheads, Subject, time_grading

PROBLEM = problem()


def test_checks_take_the_time_between_the_step_of_a_task_and_its_result(monkeypatch):
    times = iter((1.0, 2.0, 5.0, 6.0, 6.5))
    monkeypatch.setattr(overhead, "time", SimpleNamespace(perf_counter=times.__next__))
    recorder = overhead._StepRecorder()
    recorder.step(CellStep(0, 3, "a cell"))
    recorder.step(CellStep(1, 3, "marking T1.1"))
    recorder.result(TaskResult("T1.1", "One", ()))
    recorder.step(CellStep(2, 3, "marking T1.2"))
    recorder.result(TaskResult("T1.2", "Two", ()))
    assert (recorder.first, recorder.checks, recorder.last) == (1.0, 3.5, 6.5)


def test_a_cell_lasts_from_busy_to_idle():
    cell = new_code_cell("x")
    assert overhead._seconds(cell) == 0
    cell.metadata["execution"] = {
        "iopub.status.busy": "2026-01-01T00:00:00.250000Z",
        "iopub.status.idle": "2026-01-01T00:00:02.000000Z",
    }
    assert overhead._seconds(cell) == 1.75


def test_overhead_is_the_remaining_time():
    timing = GradingTime(whole=10.0, cells=6.0, checks=3.0, before=0.5, after=0.25, solved=True)
    assert (timing.overhead, timing.between) == (1.0, 0.25)


@pytest.mark.parametrize(("whole", "held"), [(9.9, True), (10.1, False)])
def test_the_median_with_a_warm_sandbox_decides(whole, held):
    def timing(seconds):
        return GradingTime(seconds, 6.0, 3.0, 0.5, 0.2, solved=True)

    overheads = Overheads({("tiny", "warm"): [timing(9.5), timing(whole), timing(20)], ("tiny", "cold"): [timing(30)]})
    assert overheads.held == held
    assert ("held" if held else "MISSED") in overheads.text()


def test_nothing_measured_is_not_held():
    assert not Overheads().held
    assert Overheads().text() == "nothing was measured"


def test_a_grading_without_a_sandbox_is_timed_and_its_parts_add_up(course):
    timing = time_grading(Subject("T9", lambda: course.notebook(course.EMPTY), course.SYNTHETIC), None)
    assert min(timing.cells, timing.checks, timing.before, timing.after) > 0
    parts = timing.cells, timing.checks, timing.before, timing.between, timing.after
    assert sum(parts) == pytest.approx(timing.whole)
    assert not timing.solved
    assert "fallback solutions count" in Overheads({("T9", "no sandbox"): [timing]}).text()


def test_it_waits_until_descendants_are_idle(monkeypatch):
    used = iter([0.0, 1.0, 2.0, 0.5, 0.5, 0.5, 0.5, 9.0])  # works, works, ends, then is idle
    monkeypatch.setattr(overhead, "_cpu_seconds", used.__next__)
    monkeypatch.setattr(overhead, "SAMPLE_SECONDS", 0.001)
    overhead.wait_until_idle()
    assert next(used) == 9.0


@pytest.mark.skipif(bool(PROBLEM), reason=f"no sandbox: {PROBLEM}")
def test_the_command_times_all_three_modes(tmp_path, monkeypatch):
    monkeypatch.setattr(overhead, "wait_until_idle", lambda: None)
    words = ["bench", "grading", "--rounds", "1", "--only-tiny", "--json", str(tmp_path / "overhead.json")]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code in {0, 1}, result.output
    rows = json.loads((tmp_path / "overhead.json").read_text())["rows"]
    assert [row["way"] for row in rows] == ["warm", "cold", "no sandbox"]
    assert all(row["timings"][0]["solved"] for row in rows)
    assert "a median overhead of at most 1 s" in result.stdout


def test_without_bubblewrap_the_error_says_so(monkeypatch):
    monkeypatch.setattr("mlhood.grading.sandbox.bubblewrap.problem", lambda: "there is none")
    result = CliRunner().invoke(cli.app, ["bench", "grading", "--only-tiny"])
    assert "there is none" in str(result.exception)
