from __future__ import annotations

import io

import pytest
from rich.console import Console

from mlhood.grading import progress as module
from mlhood.grading.execution.grade_notebook import CellStep
from mlhood.grading.progress import CommandProgress, duration


def test_a_log_has_a_line_for_each_part_and_every_few_seconds(monkeypatch):
    out, clock = io.StringIO(), [10.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with CommandProgress(Console(file=out)) as progress:
        for done in range(5):
            progress("reading [red]x", done, 5)
            clock[0] += 1.0
        progress("writing", 0, 1)
    assert out.getvalue().splitlines() == ["reading [red]x: 0 of 5", "reading [red]x: 3 of 5", "writing: 0 of 1"]


def test_a_terminal_has_a_bar_for_each_part():
    out = io.StringIO()
    with CommandProgress(Console(file=out, force_terminal=True, width=120)) as progress:
        progress("reading [red]x", 0, 5)
        progress("reading [red]x", 4, 5)
        progress("writing", 0, 1)
    assert "reading [red]x" in out.getvalue()
    assert "4/5" in out.getvalue()
    assert "0/1" in out.getvalue()


def test_each_step_of_a_notebook_has_a_line_in_a_log_and_is_in_the_bar_of_a_terminal():
    shown = {}
    for terminal in (False, True):
        out = io.StringIO()
        with CommandProgress(Console(file=out, force_terminal=terminal, width=160)) as progress:
            progress.begin("P1", 1, 2)
            progress.step(CellStep(1, 3, "the [red]cell"))
            progress.end(None)
        shown[terminal] = out.getvalue()
    first, step, last = shown[False].splitlines()
    assert first == "P1 (1 of 2)"
    assert step.startswith("P1 (1 of 2) [  2/3]")
    assert step.endswith(" s  the [red]cell")
    assert last.startswith("P1 (1 of 2): done after")
    assert "P1 (1 of 2)" in shown[True]
    assert "3/3" in shown[True]


# -- the notebooks of a class

HOSTILE = "[red]\x1b]0;owned\x07[/nowhere]\ud800.ipynb"


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_progress_shows_counts_failures_and_reasons(terminal):
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with CommandProgress(Console(file=out, force_terminal=terminal, width=200)) as progress:
        progress.begin_class(3, 5)
        progress.graded("a.ipynb", "done", "")
        progress.lost(HOSTILE, "no memory")
        progress.graded(HOSTILE, "failed", "no memory")
        progress.graded("c.ipynb", "refused", "not JSON")
    out.flush()
    text = out.buffer.getvalue().decode()
    assert "3 notebooks to grade, 5 are graded already" in text
    assert "FAILED: no memory" in text
    assert "c.ipynb: could not be run: not JSON" in text
    assert "[red]\\x1b]0;owned\\x07[/nowhere]\\ud800.ipynb: a worker was lost and is replaced: no memory" in text
    assert "\x1b]0;" not in text
    assert ("a.ipynb: graded" in text) is not terminal
    assert ("3/3" in text and "1 failed" in text) is terminal


def test_there_is_no_bar_if_there_is_nothing_to_do():
    out = io.StringIO()
    with CommandProgress(Console(file=out, force_terminal=True, width=200)) as progress:
        progress.begin_class(0, 2)
    assert out.getvalue() == "0 notebooks to grade, 2 are graded already\n"


def test_a_log_says_what_begins_and_about_how_much_time_is_left(monkeypatch):
    out, clock = io.StringIO(), [10.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with CommandProgress(Console(file=out, width=200)) as progress:
        progress.stage("starting a worker")
        progress.begin_class(3, 0)
        progress.started("ada.ipynb")
        clock[0] += 60
        progress.graded("ada.ipynb", "done", "")
    assert out.getvalue().splitlines() == [
        *("starting a worker", "3 notebooks to grade", "ada.ipynb: grading"),
        "[1/3] ada.ipynb: graded; about 2 min left",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(3, "3 s"), (99, "99 s"), (100, "2 min"), (7_500, "2 h 5 min")])
def test_durations_are_said_as_a_person_does(seconds, text):
    assert duration(seconds) == text
