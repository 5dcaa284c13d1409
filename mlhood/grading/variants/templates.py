"""The text of a variant: phrases of the source notebook that follow from parameters, and what they become.

The source notebook's text is that of the default values. A cell lists the phrases in it that depend on parameters, each
with a template (Jinja) that gives the phrase for any values, in its metadata:

"mlhood": {"varies": {"slope 0.01": "slope {{ slope }}"}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined, Template, TemplateError

from mlhood.errors import GradingError

VARIES = "varies"  # the key of a cell's metadata under `mlhood`
Templates = Mapping[str, str]
ENVIRONMENT = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701 no HTML


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return the text of a template for some values.

    Raises:
        GradingError: It is no template, or names something that is no parameter.
    """
    if "{{" not in template and "{%" not in template:
        return template
    try:
        return _compiled(template).render(values)
    except TemplateError as error:
        raise GradingError(
            "a template cannot be rendered",
            where=template[:200],
            expected=f"Jinja with the parameters {', '.join(values) or '(none is declared)'}",
            got=f"{type(error).__name__}: {error}",
            todo="correct it in the cell's metadata, or beside the task's checks",
        ) from None


@cache
def _compiled(template: str) -> Template:
    return ENVIRONMENT.from_string(template)


def vary(text: str, templates: Templates, values: Mapping[str, Any]) -> str:
    """Return a text with every occurrence of each phrase replaced by what its template gives for these values.

    Where phrases overlap, the longer one is replaced. A replacement is not searched again.

    Raises:
        GradingError: A template cannot be rendered.
    """
    if not templates:
        return text
    phrases = sorted(templates, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, phrases)))
    return pattern.sub(lambda match: render(templates[match[0]], values), text)
