"""A notebook as GitHub shows it: no scripts, no widgets, no style of an output's own, formulas drawn, light and dark.

GitHub renders notebooks with nbconvert, filters the HTML and draws the formulas with MathJax. We do the same steps with
nbconvert's `basic` template, nh3 and MathML. The measures and colours are those of GitHub's style sheet.
"""

from __future__ import annotations

import mimetypes
import re
import warnings
from base64 import b64encode
from html import escape
from pathlib import Path

import nh3
from bs4 import BeautifulSoup
from bs4.element import NavigableString
from nbformat import NotebookNode

from mlhood.notebook_view.formulas import Formula, formulas, mathml

# the source of a cell is not filtered here, as all of the page is later
TEMPLATE = """{% extends 'basic/index.html.j2' %}
{% block input %}
<div class="inner_cell"><div class="input_area">{{ cell.source | highlight_code(metadata=cell.metadata) }}</div></div>
{% endblock %}
{% block data_svg scoped %}
{%- set alt = output | get_metadata('alt', 'image/svg+xml') -%}
{{ super() | replace('<img', '<img alt="' ~ alt | escape_html ~ '"', 1) if alt else super() }}
{% endblock %}
"""
# what GitHub keeps of HTML in notebooks, as far as nbconvert or the course writes it
_STRUCTURE = {"div", "span", "section", "p", "br", "hr", "pre", "blockquote", "details", "summary", "a", "img"}
_TABLES = {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "col", "colgroup"}
_LISTS = {"ul", "ol", "li", "dl", "dt", "dd"}
_PHRASES = {"b", "strong", "i", "em", "s", "del", "ins", "u", "code", "kbd", "samp", "var", "sub", "sup", "small", "q"}
KEPT_TAGS = _STRUCTURE | _TABLES | _LISTS | _PHRASES | {f"h{level}" for level in range(1, 7)}
_KEPT_ATTRIBUTES = {
    "*": {"id", "class", "title", "align", "valign", "role", "aria-label"},
    "a": {"href", "name"},
    "img": {"src", "alt", "width", "height"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
    "table": {"border"},
    "details": {"open"},
    "ol": {"start"},
}
_DROPPED_WITH_TEXT = {"script", "style"}
_NO_FORMULAS = {"pre", "code", "kbd", "samp"}
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --page: #ffffff; --soft: #f6f8fa; --line: #d1d9e0;
  --muted: #59636e; --link: #0969da; --keyword: #cf222e; --string: #0a3069; --number: #0550ae; --name: #6639ba; }
@media (prefers-color-scheme: dark) { :root { --text: #f0f6fc; --page: #0d1117; --soft: #151b23; --line: #3d444d;
  --muted: #9198a1; --link: #4493f8; --keyword: #ff7b72; --string: #a5d6ff; --number: #79c0ff; --name: #d2a8ff; } }
* { box-sizing: border-box; }
body { margin: 0; color: var(--text); background: var(--page); line-height: 1.5;
  font: 16px/1.5 -apple-system, BlinkMacSystemFont, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; }
main { max-width: 1012px; margin: 0 auto; padding: 16px; overflow-wrap: break-word; }
a { color: var(--link); }
h1, h2 { border-bottom: 1px solid var(--line); padding-bottom: .3em; }
h1, h2, h3, h4 { line-height: 1.25; margin: 1.5em 0 1rem; }
pre, code, .prompt { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
pre, code { font-size: 85%; }
code { background: var(--soft); border-radius: 6px; padding: .2em .4em; white-space: break-spaces; }
pre { margin: 0; overflow-x: auto; line-height: 1.45; }
pre code { padding: 0; background: none; white-space: pre; font-size: 100%; }
blockquote { margin: 0 0 1rem; padding: 0 1em; color: var(--muted); border-left: .25em solid var(--line); }
img { max-width: 100%; height: auto; }
table { display: block; width: max-content; max-width: 100%; overflow-x: auto; border-collapse: collapse;
  font-variant-numeric: tabular-nums; margin-bottom: 1rem; border: 0; }
th, td { padding: 6px 13px; border: 1px solid var(--line); text-align: left; }
.input { display: flex; margin-top: 1rem; }
.prompt { flex: 0 0 5.5rem; font-size: 12px; padding: 8px 8px 8px 0; color: var(--muted); text-align: right; }
.text_cell .prompt { display: none; }
.inner_cell, .output_subarea { flex: 1 1 0; min-width: 0; }
.input_area { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: 8px; }
.output_area { display: flex; margin-top: .5rem; }
.output_subarea { padding-top: 8px; }
.display { display: block; overflow-x: auto; }
.anchor-link { display: none; }
.hll { background: var(--soft); }
.k, .kn, .kd, .kc, .kr, .kp, .ow, .o { color: var(--keyword); }
.s, .s1, .s2, .sa, .sd, .se, .si, .sb, .sc, .sh, .sx, .sr { color: var(--string); }
.m, .mi, .mf, .mh, .mb, .mo, .nb, .bp { color: var(--number); }
.nf, .fm, .nc, .nd { color: var(--name); }
.c, .c1, .cm, .ch, .cs { color: var(--muted); }
@media (max-width: 640px) { .input, .output_area { display: block; }
  .prompt { text-align: left; padding: 4px 0; } .output_area .prompt:not(.output_prompt) { display: none; } }
"""


def github_page(notebook: NotebookNode, title: str, folder: Path | None = None) -> str:
    """Return a notebook as a complete HTML page: as GitHub shows it, in the reader's light or dark theme."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>",
            github_html(notebook, folder),
            "</main>\n</body>\n</html>\n",
        ]
    )


def github_html(notebook: NotebookNode, folder: Path | None = None) -> str:
    """Return the cells of a notebook as HTML that GitHub keeps; cell `c` is the element with the id `cell-id=c`.

    Args:
        notebook: Executed.
        folder: Of its repository: pictures of files in it, which GitHub shows, too, are put into the page.
    """
    html = _convert_formulas(sanitized(_converted(notebook)))
    return _with_pictures(html, folder) if folder else html


def _with_pictures(html: str, folder: Path) -> str:
    page = BeautifulSoup(html, "html.parser")
    for picture in page.find_all("img"):
        source = str(picture.get("src") or "")
        path = (folder / source).resolve()
        kind = mimetypes.guess_type(source)[0]
        if ":" not in source and kind and path.is_relative_to(folder.resolve()) and path.is_file():
            picture["src"] = f"data:{kind};base64,{b64encode(path.read_bytes()).decode()}"
    return str(page)


def _converted(notebook: NotebookNode) -> str:
    from nbconvert.exporters.html import HTMLExporter

    exporter = HTMLExporter()
    exporter.raw_template = TEMPLATE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pictures without a description: `view_defects` finds them
        html, _ = exporter.from_notebook_node(notebook)
    return html


def sanitized(html: str) -> str:
    """Return HTML with the tags and attributes that GitHub keeps in notebooks."""
    return nh3.clean(
        html,
        tags=KEPT_TAGS,
        attributes=_KEPT_ATTRIBUTES,
        clean_content_tags=_DROPPED_WITH_TEXT,
        url_schemes={"http", "https", "mailto", "data", "attachment"},
        link_rel=None,
    )


def _convert_formulas(html: str) -> str:
    """Put MathML in the place of formulas, wherever MathJax would look for them: not in code."""
    page = BeautifulSoup(html, "html.parser")
    for text in page.find_all(string=re.compile(r"\$")):
        if not any(parent.name in _NO_FORMULAS for parent in text.parents):
            _replace_formulas(page, text)
    return str(page)


def _replace_formulas(page: BeautifulSoup, text: NavigableString) -> None:
    rest = str(text)
    pieces: list[BeautifulSoup | NavigableString] = []
    for formula in formulas(rest):
        dollars = "$$" if formula.display else "$"
        before, _, rest = rest.partition(f"{dollars}{formula.tex}{dollars}")
        pieces += [NavigableString(before), _shown(formula)]
    if pieces:
        text.replace_with(*pieces, NavigableString(rest))


def _shown(formula: Formula) -> BeautifulSoup:
    """Return a formula as MathML, or its TeX if it is not understood."""
    shown = mathml(formula) or f'<code class="formula">{escape(formula.tex)}</code>'
    return BeautifulSoup(f'<span class="display">{shown}</span>' if formula.display else shown, "html.parser")
