"""Listings: files of the course that pages link to and that are no pages, such as modules, with an anchor a line.

They are written beside the pages and not by Sphinx, which would take ten times as long for hundreds of files.
"""

from __future__ import annotations

import posixpath
from html import escape
from pathlib import Path

SUFFIX = ".html"
LINE = "line"
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} · {title}</title>
<link rel="stylesheet" href="{static}/listing.css">
<script src="{static}/listing.js"></script>
</head>
<body>
<p><a href="{home}">{title}</a></p>
<h1>{name}</h1>
{code}
</body>
</html>
"""


def listing_path(name: str) -> str:
    """Return where the listing of a file of the repository stands on the site."""
    return f"{name}{SUFFIX}"


def listing(name: str, text: str, title: str) -> str:
    """Return the page of a file: its text with line numbers, coloured if its language is known.

    Args:
        name: The path of the file in the repository.
        text: The file.
        title: Of the site.
    """
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_for_filename(name, stripnl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    folder = posixpath.dirname(listing_path(name)) or "."
    code = highlight(text, lexer, HtmlFormatter(linenos="table", lineanchors=LINE, anchorlinenos=True))
    return _PAGE.format(
        name=escape(name),
        title=escape(title),
        static=posixpath.relpath("_static", folder),
        home=posixpath.relpath("index.html", folder),
        code=code,
    )


def listing_styles() -> str:
    """Return the colours of listings, in light and dark."""
    from pygments.formatters import HtmlFormatter

    light, dark = (
        HtmlFormatter(style=style).get_style_defs(f"{theme} .highlight")
        for style, theme in (("default", "html"), ("github-dark", "html[data-theme=dark]"))
    )
    return f"{light}\n{dark}\n"


def write_listings(root: Path, names: set[str], html: Path, title: str) -> None:
    """Write the listings of files of the repository, and their colours, into the folder of the site."""
    with (html / "_static" / "listing.css").open("a", encoding="utf-8") as styles:
        styles.write(listing_styles())
    for name in sorted(names):
        path = html / listing_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(listing(name, (root / name).read_text(encoding="utf-8"), title), encoding="utf-8")
