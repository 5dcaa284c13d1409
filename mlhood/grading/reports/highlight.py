"""Syntax highlighting of a student's code by pygments."""

from __future__ import annotations

from collections.abc import Collection

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from mlhood.grading.reports.sanitize import plain, trusted

MAX_CODE = 20_000


def highlight_python(source: object, marked: Collection[int] = ()) -> Markup:
    """Return source code as HTML for a `<pre>` element.

    Args:
        source: Of a cell; anything other than text is converted to text.
        marked: Lines (from 1) to emphasise.
    """
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    html = trusted(highlight(plain(source, MAX_CODE), lexer, HtmlFormatter(nowrap=True)))
    if not marked:
        return Markup("\n").join(html.split("\n"))
    lines = enumerate(html.split("\n"), start=1)
    return Markup().join(
        Markup("<mark>{}</mark>").format(line or " ") if number in marked else line + "\n" for number, line in lines
    )
