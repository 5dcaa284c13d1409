"""A student's code as HTML: highlighted by pygments by weight and slant, so that it reads in print as on screens."""

from __future__ import annotations

from collections.abc import Collection

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from mlhood.grading.reports.sanitize import plain

MAX_CODE = 20_000


def code_html(source: object, marked: Collection[int] = ()) -> str:
    """Source code in a frame.

    Args:
        source: What a cell holds; anything else than text is written as text.
        marked: Lines (from 1) to set off.
    """
    text = plain(source, MAX_CODE)
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    lines = highlight(text, lexer, HtmlFormatter(nowrap=True)).split("\n")
    if not marked:
        return f'<div class="code"><pre>{chr(10).join(lines)}</pre></div>'
    shown = (f"<mark>{line or ' '}</mark>" if at in marked else f"{line}\n" for at, line in enumerate(lines, start=1))
    return f'<div class="code"><pre>{"".join(shown)}</pre></div>'
