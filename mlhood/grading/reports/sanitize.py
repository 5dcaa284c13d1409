"""Make a student's text and code harmless for a page. Only this module turns strings into markup."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any

from markupsafe import Markup

MAX_TEXT = 10_000
MAX_CODE = 20_000

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# control characters, and those that reverse the direction of the text around them, so that it reads differently
INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def plain(text: object, limit: int = MAX_TEXT) -> str:
    """Return text without control characters and ANSI colours; a text longer than `limit` loses its middle."""
    cleaned = text if isinstance(text, str) else str(text)
    cleaned = cleaned[: 8 * limit] + cleaned[8 * limit :][-limit:]  # first, since it could be megabytes
    cleaned = INVISIBLE.sub("\ufffd", ANSI.sub("", cleaned.replace("\r\n", "\n")))
    cleaned = cleaned.encode("utf-8", "replace").decode()
    if len(cleaned) <= limit:
        return cleaned
    half = limit // 2
    return f"{cleaned[:half]}\n[… cut: {len(cleaned) - 2 * half:,} characters or more …]\n{cleaned[-half:]}"


def rich_text(text: str) -> Markup:
    """Return text as HTML with line breaks; what is between backticks is set as code."""
    pieces = re.split(r"`([^`]+)`", text)
    pieces[1::2] = [Markup("<code>{}</code>").format(code) for code in pieces[1::2]]
    return Markup().join(pieces).replace("\n", Markup("<br>"))


@cache
def _highlighter() -> tuple[Any, Any]:
    """Return pygments' lexer and formatter, which take longer to make than most cells to highlight."""
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)


def highlight_python(source: object, marked: Collection[int] = ()) -> Markup:
    """Return source code as highlighted HTML for a `<pre>` element; `marked` lines (from 1) are emphasised."""
    from pygments import highlight  # not needed for the tables in a student's notebook

    html = Markup(highlight(plain(source, MAX_CODE), *_highlighter()))  # noqa: S704 (pygments' output)
    lines = [
        Markup("<mark>{}</mark>").format(line or " ") if number in marked else line + "\n"
        for number, line in enumerate(html.split("\n"), start=1)
    ]
    return Markup().join(lines)[: None if marked else -1]
