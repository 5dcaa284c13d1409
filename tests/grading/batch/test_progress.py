from __future__ import annotations

import io
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from mlhood.grading.batch import progress as module
from mlhood.grading.batch.progress import HEARTBEAT_SECONDS, MAX_RUNNING, BatchProgress, duration
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


class LogFile(io.StringIO):
    """A file that is not a terminal, and counts the lines that were not flushed when the next one was written."""

    unflushed = flushed = 0

    def write(self, text):
        self.unflushed += len(self.getvalue()) > self.flushed
        return super().write(text)

    def flush(self):
        self.flushed = len(self.getvalue())


def test_a_log_is_never_silent_for_long(monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    out = LogFile()
    progress = BatchProgress(Console(file=out, width=200))  # not entered: no thread beats

    def beat(seconds: float) -> str:
        before = len(out.getvalue())
        progress.beat(now + seconds)
        return out.getvalue()[before:]

    progress.stage("starting a worker")
    assert beat(HEARTBEAT_SECONDS / 2) == ""
    assert beat(HEARTBEAT_SECONDS + 2) == "still starting a worker: 12 s\n"
    progress.begin(9, 0)
    notebooks = [SubmittedFile(name, source=f"{name}.ipynb") for name in ("ada", "bob", "carl", "dan", "eve", "fay")]
    for notebook in notebooks:
        progress.started(notebook)
    progress.task_graded(notebooks[0], "P1.2")
    states = ", ".join(
        ["ada.ipynb (P1.2 is graded, 200 s)"]
        + [f"{n.source} (no task is graded yet, 200 s)" for n in notebooks[1:MAX_RUNNING]]
    )
    assert beat(200) == f"still grading, 0 of 9 done: {states}, 2 more\n".replace("200 s", "3 min")
    for notebook in notebooks[1:]:
        progress.graded(notebook, "done", "")
    assert "[5/9] fay.ipynb: graded; " in out.getvalue()
    assert "left" in out.getvalue().splitlines()[-1]
    assert "still grading, 5 of 9 done: ada.ipynb (P1.2 is graded" in beat(HEARTBEAT_SECONDS + 1)
    progress.lost(notebooks[0], "no memory")
    assert beat(HEARTBEAT_SECONDS + 1) == "still waiting for a worker, 5 of 9 done\n"
    assert out.unflushed == 0


@pytest.mark.parametrize(("seconds", "text"), [(3, "3 s"), (99, "99 s"), (100, "2 min"), (7_500, "2 h 5 min")])
def test_durations_are_said_as_a_person_does(seconds, text):
    assert duration(seconds) == text
