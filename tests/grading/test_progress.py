from __future__ import annotations

import io

from rich.console import Console

from mlhood.grading import progress as module
from mlhood.grading.execution.grade_notebook import CellStep
from mlhood.grading.progress import CommandProgress


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
