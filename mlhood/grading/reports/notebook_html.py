"""Marks as tables that a notebook shows: they survive a sanitiser, without scripts and without necessary styles."""

from __future__ import annotations

from collections.abc import Iterable

from mlhood.grading.checks.marks import TaskResult
from mlhood.grading.reports.marks_text import SIGNS, score_line
from mlhood.grading.reports.render import render


def task_html(result: TaskResult) -> str:
    """Return a task's result."""
    sign = SIGNS["passed" if result.full else "failed"]
    return _stored(render("task.html.j2", heading=f"{sign} {score_line(result)}", result=result))


def progress_html(rows: Iterable[tuple[str, str, str, str]]) -> str:
    """Return the progress of a notebook: id, title, bar and state of each task."""
    return _stored(render("progress.html.j2", rows=rows))


def _stored(html: str) -> str:
    """Return HTML with the character references in the outputs stored in the notebooks, which nbval compares."""
    return html.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")
