from __future__ import annotations

import io

from rich.console import Console

from mlhood.grading.reports import page_progress
from mlhood.grading.reports.page_progress import PageProgress


def test_a_log_has_a_line_for_each_step_and_every_few_seconds(monkeypatch):
    out, clock = io.StringIO(), [10.0]
    monkeypatch.setattr(page_progress.time, "monotonic", lambda: clock[0])
    with PageProgress(Console(file=out)) as progress:
        for done in range(5):
            progress("reading [red]x", done, 5)
            clock[0] += 1.0
        progress("writing", 0, 1)
    assert out.getvalue().splitlines() == ["reading [red]x: 0 of 5", "reading [red]x: 3 of 5", "writing: 0 of 1"]


def test_a_terminal_has_a_bar_for_each_step():
    out = io.StringIO()
    with PageProgress(Console(file=out, force_terminal=True, width=120)) as progress:
        progress("reading [red]x", 0, 5)
        progress("reading [red]x", 4, 5)
        progress("writing", 0, 1)
    assert "reading [red]x" in out.getvalue()
    assert "4/5" in out.getvalue()
    assert "0/1" in out.getvalue()
