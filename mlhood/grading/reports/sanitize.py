"""Make a student's text and HTML harmless for a page. Only this module turns strings into markup.

HTML is filtered by nh3 (the ammonia library), which parses as browsers do, keeps what is on a list and serialises it
again. The list holds what tables are made of: no links, images, styles, classes, ids or forms.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any

import nh3
from markupsafe import Markup

MAX_HTML = 60_000
MAX_TEXT = 10_000
MAX_CODE = 20_000
MAX_SPAN = 100

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# control characters, and those that reverse the direction of the text around them, so that it reads differently
INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")

TABLE_TAGS = {"table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td"}
TEXT_TAGS = {"p", "br", "ul", "ol", "li", "b", "i", "em", "strong", "code", "pre", "sub", "sup"}
SPANS = {"colspan", "rowspan"}
# removed with their content, which is not text for a reader
DROPPED = {"script", "style", "template", "iframe", "object", "svg", "math", "title", "noscript", "textarea", "select"}


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


def table_html(html: str) -> Markup | None:
    """Return HTML with only tables and simple text markup, or None if it is too long.

    Open elements are closed, so the page around it stays well formed.
    """
    if len(html) > MAX_HTML:
        return None
    cleaned = nh3.clean(
        INVISIBLE.sub("\ufffd", html.encode("utf-8", "replace").decode()),
        tags=TABLE_TAGS | TEXT_TAGS,
        clean_content_tags=DROPPED,
        attributes={"th": SPANS | {"scope"}, "td": SPANS},
        attribute_filter=_attribute,
        url_schemes=set(),
        link_rel=None,
        strip_comments=True,
    )
    return Markup(cleaned)  # noqa: S704 (nh3's output)


def _attribute(tag: str, name: str, value: str) -> str | None:
    if name == "scope":
        return value if value in ("row", "col", "rowgroup", "colgroup") else None
    return value if value.isascii() and value.isdigit() and 1 <= int(value[:4]) <= MAX_SPAN and len(value) < 4 else None


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
