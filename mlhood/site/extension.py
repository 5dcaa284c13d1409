"""What the site adds to Sphinx: formulas drawn as SVG, alternative texts of pictures, and a word on progress."""

from __future__ import annotations

import builtins
import re
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

from mlhood.notebook_view.formulas import drawing

STATIC = Path(__file__).with_name("static")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")  # of a list, which may go on after an empty line


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("alt_texts", {}, "env", dict)
    app.add_html_math_renderer("drawing", (_visit_inline, None), (_visit_block, None))
    app.connect("autodoc-process-docstring", _mark_examples, priority=400)  # before the sections are read
    app.connect("doctree-read", _set_alt_texts)
    app.connect("doctree-read", _unlink_builtins)
    app.add_css_file("site.css")
    app.add_js_file("search-from-files.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _mark_examples(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Say of an indented block after an empty line that it is code, as it is in Markdown."""
    last, after_blank = "", False
    marked: list[str] = []
    for line in lines:
        if line.strip() and after_blank and _indentation(line) > _indentation(last) and not _ITEM.match(last):
            marked += [" " * _indentation(last) + "::", ""]
        marked.append(line)
        after_blank = not line.strip()
        last = line if line.strip() else last
    lines[:] = marked


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _set_alt_texts(app: Sphinx, doctree: nodes.document) -> None:
    for image in doctree.findall(nodes.image):
        if alt := app.config.alt_texts.get(PurePosixPath(image["uri"]).stem):
            image["alt"] = alt


def _unlink_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """Make a type such as `bytes` plain text, which Sphinx would link to some attribute of that name."""
    for reference in [*doctree.findall(pending_xref)]:
        if hasattr(builtins, reference.get("reftarget", "")):
            reference.replace_self(reference.children)


def _visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(_drawn("span", "formula", node))
    raise nodes.SkipNode


def _visit_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(_drawn("div", "formula display", node))
    raise nodes.SkipNode


def _drawn(tag: str, kind: str, node: nodes.math | nodes.math_block) -> str:
    tex = node.astext().strip()
    svg = drawing(tex)
    if svg is None:
        getLogger(__name__).warning("a formula that is not understood: %s", tex, location=node, type="formula")
        svg = escape(tex)
    return f'<{tag} class="{kind}" role="img" aria-label="{escape(tex, quote=True)}">{svg}</{tag}>'
