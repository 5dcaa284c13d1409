"""What a student's notebook holds, made harmless for a page: text and HTML.

HTML is filtered by nh3 (the ammonia library), which parses as browsers do, keeps what is listed and writes it anew.
What is listed is what tables are made of: no links, pictures, styles, classes, ids or forms.
"""

from __future__ import annotations

import re
from html import escape

import nh3

MAX_HTML = 60_000
MAX_TEXT = 10_000
MAX_SPAN = 100

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# control characters, and those that turn the direction of the text around them, so that it reads as something else
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")

TABLE_TAGS = {"table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td"}
TEXT_TAGS = {"p", "br", "ul", "ol", "li", "b", "i", "em", "strong", "code", "pre", "sub", "sup"}
SPANS = {"colspan", "rowspan"}
# left out with all that is in them: what stands there is no text for a reader
DROPPED = {"script", "style", "template", "iframe", "object", "svg", "math", "title", "noscript", "textarea", "select"}


def plain(text: object, most: int = MAX_TEXT) -> str:
    """Text without control characters and ANSI colours, with its middle cut out where it is longer than `most`."""
    cleaned = text if isinstance(text, str) else str(text)
    cleaned = cleaned[: 8 * most] + cleaned[8 * most :][-most:]  # before any work on what could be megabytes
    cleaned = UNSEEN.sub("\ufffd", ANSI.sub("", cleaned.replace("\r\n", "\n")))
    cleaned = cleaned.encode("utf-8", "replace").decode()
    if len(cleaned) <= most:
        return cleaned
    half = most // 2
    return f"{cleaned[:half]}\n[… cut: {len(cleaned) - 2 * half:,} characters or more …]\n{cleaned[-half:]}"


def escaped(text: object, most: int = MAX_TEXT) -> str:
    """`plain` text as HTML."""
    return escape(plain(text, most))


def table_html(html: str) -> str | None:
    """HTML with nothing but tables and the simplest marks of text, or None where there is too much of it.

    What was open is closed, so the page around it stays whole.
    """
    if len(html) > MAX_HTML:
        return None
    return nh3.clean(
        UNSEEN.sub("\ufffd", html.encode("utf-8", "replace").decode()),
        tags=TABLE_TAGS | TEXT_TAGS,
        clean_content_tags=DROPPED,
        attributes={"th": SPANS | {"scope"}, "td": SPANS},
        attribute_filter=_attribute,
        url_schemes=set(),
        link_rel=None,
        strip_comments=True,
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    if name == "scope":
        return value if value in ("row", "col", "rowgroup", "colgroup") else None
    return value if value.isascii() and value.isdigit() and 1 <= int(value[:4]) <= MAX_SPAN and len(value) < 4 else None
