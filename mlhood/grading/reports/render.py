"""Render Jinja templates: every value is escaped, except what `sanitize` has turned into `Markup`.

Tables of marks survive the sanitiser of a notebook's front end: they need no scripts and no styles.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mlhood.grading.checks.marks import TaskResult
from mlhood.grading.reports.marks_text import SIGNS, format_points, score_line, score_words, unasked_text
from mlhood.grading.reports.sanitize import plain, rich_text

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **context: object) -> str:
    """Return a template of the folder `templates`, rendered."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "anchor": lambda name: quote(name.replace(" ", "-"), safe="-_", errors="replace"),
        "hundredths": lambda points: format_points(round(points, 2)),
        "plain": plain,
        "points": format_points,
        "score": score_words,
        "unasked": unasked_text,
        "rich": rich_text,
    }
    environment.globals["SIGNS"] = SIGNS
    return environment


def task_html(result: TaskResult) -> str:
    """Return a task's result."""
    sign = SIGNS["undecided" if result.undecided else "passed" if result.full else "failed"]
    return _stored(render("task.html.j2", heading=f"{sign} {score_line(result)}", result=result))


def progress_html(rows: Iterable[tuple[str, str, str, str]]) -> str:
    """Return the progress of a notebook: id, title, bar and state of each task."""
    return _stored(render("progress.html.j2", rows=rows))


def hints_html(task_id: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return the hints for the failed checks of a task: title and hint of each."""
    return _stored(render("hints.html.j2", task=task_id, rows=list(rows)))


def _stored(html: str) -> str:
    """Return HTML with the character references in the outputs stored in the notebooks, which nbval compares."""
    return html.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")
