"""Render Jinja templates: every value is escaped, except what `sanitize` has turned into `Markup`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mlhood.grading.reports.marks_text import SIGNS, format_points
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
        "anchor": _anchor,
        "hundredths": lambda points: format_points(round(points, 2)),
        "plain": plain,
        "points": format_points,
        "rich": rich_text,
    }
    environment.globals["SIGNS"] = SIGNS
    return environment


def _anchor(name: str) -> str:
    return quote(name.replace(" ", "-"), safe="-_", errors="replace")
