from __future__ import annotations

import io

import pytest
from rich.console import Console

from mlhood.grading.batch.progress import BatchProgress
from mlhood.grading.intake.collect import SubmittedFile

HOSTILE = "[red]\x1b]0;owned\x07[/nowhere]\ud800.ipynb"


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_progress_shows_counts_failures_and_reasons(terminal):
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with BatchProgress(Console(file=out, force_terminal=terminal, width=200)) as progress:
        progress.begin(3, 5)
        progress.graded(SubmittedFile("a", source="a.ipynb"), "done", "")
        progress.lost(SubmittedFile("b", source=HOSTILE), "no memory")
        progress.graded(SubmittedFile("b", source=HOSTILE), "failed", "no memory")
        progress.graded(SubmittedFile("c", source="c.ipynb"), "refused", "not JSON")
    out.flush()
    text = out.buffer.getvalue().decode()
    assert "3 notebooks to grade, 5 are graded already" in text
    assert "FAILED: no memory" in text
    assert "c.ipynb: could not be run: not JSON" in text
    assert "[red]?]0;owned?[/nowhere]?.ipynb: a worker was lost and is replaced: no memory" in text
    assert "\x1b]0;" not in text
    assert ("a.ipynb: graded" in text) is not terminal
    assert ("3/3" in text and "1 failed" in text) is terminal


def test_there_is_no_bar_if_there_is_nothing_to_do():
    out = io.StringIO()
    with BatchProgress(Console(file=out, force_terminal=True, width=200)) as progress:
        progress.begin(0, 2)
    assert out.getvalue() == "0 notebooks to grade, 2 are graded already\n"
