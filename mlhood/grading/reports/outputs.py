"""A student's code and outputs as fragments of a page: pictures and text, nothing that runs.

Of an output in several formats the safest one that still shows it is taken: a table of measurements, parsed strictly
and written by us; a PNG, as a `data:` address; text. HTML and SVG are not shown: they can hold programs.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import escape

from mlhood.grading.reports.sanitize import highlight_python, plain
from mlhood.measure.table import MIME, Table

MAX_PAGE = 6_000_000  # characters
MAX_OUTPUTS = 12  # of a cell
MAX_PICTURE = 2 << 20  # characters
MAX_PIXELS = 8_000_000  # a picture of few bytes can have many
PNG = "image/png"
SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_ALT = 1_000  # characters
SVG = "image/svg+xml"


@dataclass(frozen=True)
class Fragment:
    """A piece of a page: text, code (markup), a picture (a `data:` address), or what is missing.

    A picture has alternative text.
    """

    kind: Literal["text", "code", "picture", "note"]
    content: str
    alt: str = ""


PAGE_FULL = Fragment("note", "Not shown: this page has reached its largest size.")


@dataclass
class PageBudget:
    """Characters that a page may still grow by: many small things also make a large page and hours of work.

    Templates call its methods; what exceeds the budget is replaced by a note and exhausts it.
    """

    remaining: int = MAX_PAGE

    def text(self, text: object) -> Fragment:
        """Return a student's text."""
        return self._admit([Fragment("code", plain(text))])[0]

    def code(self, source: object, marked: Collection[int] = ()) -> Fragment:
        """Return highlighted source code, with some lines emphasised."""
        return self._admit([Fragment("code", highlight_python(source, marked))])[0] if self.remaining else PAGE_FULL

    def outputs(self, cell: Any) -> list[list[Fragment]]:
        """Return what a code cell of a notebook shows: fragments for each output that is not empty."""
        outputs = list(cell.get("outputs", []))
        shown = [self._output(output) for output in outputs[:MAX_OUTPUTS]]
        if len(outputs) > MAX_OUTPUTS:
            shown.append([Fragment("note", f"{len(outputs) - MAX_OUTPUTS:,} more outputs are not shown.")])
        return [fragments for fragments in shown if fragments]

    def _output(self, output: Any) -> list[Fragment]:
        return self._admit(_fragments(output)) if self.remaining else [PAGE_FULL]

    def _admit(self, fragments: list[Fragment]) -> list[Fragment]:
        cost = sum(len(escape(fragment.content + fragment.alt)) for fragment in fragments)
        if cost > self.remaining:
            self.remaining = 0
            return [PAGE_FULL]
        self.remaining -= cost
        return fragments


def _data(output: Any) -> dict[str, Any]:
    data = output.get("data")
    return data if isinstance(data, dict) else {}


def _fragments(output: Any) -> list[Fragment]:
    kind = output.get("output_type")
    if kind == "stream":
        return _text(output.get("text", ""))
    if kind == "error":
        return _text(f"{output.get('ename', '')}: {output.get('evalue', '')}")
    data = _data(output)
    fragments = _table(data) or _picture(output) or _text(data.get("text/plain", ""))
    if SVG in data:
        fragments.append(Fragment("note", "An SVG picture is not shown here: look at it in your notebook."))
    return fragments


def _table(data: dict[str, Any]) -> list[Fragment]:
    """Return a table of measurements, written from its numbers."""
    if MIME not in data:
        return []
    try:
        return _text(Table.from_dict(data[MIME]))
    except Exception:  # a hostile table may raise anything; the page continues without it
        return [Fragment("note", "A table of measurements is not shown: it is damaged or too large.")]


def _picture(output: Any) -> list[Fragment]:
    picture = _data(output).get(PNG)
    if picture is None:
        return []
    uri = data_uri(picture)
    if uri is None:
        return [Fragment("note", "A picture is not shown: it is damaged or too large.")]
    try:
        alt = plain(output["metadata"][PNG]["alt"], MAX_ALT)
    except (KeyError, TypeError):  # no metadata, or not as IPython writes them
        alt = "a picture from your notebook"
    return [Fragment("picture", uri, alt)]


def data_uri(encoded: object) -> str | None:
    """Return the `data:` address of a PNG in base64, or None for what does not begin like one, or is too large."""
    try:
        data = base64.b64decode("".join(str(encoded)[: MAX_PICTURE + 1].split()), validate=True)
    except ValueError:
        return None
    width, height = (int.from_bytes(data[i : i + 4]) for i in (16, 20))
    if not data.startswith(SIGNATURE) or len(str(encoded)) > MAX_PICTURE or width * height > MAX_PIXELS:
        return None
    return f"data:{PNG};base64,{base64.b64encode(data).decode()}"


def _text(text: object) -> list[Fragment]:
    cleaned = plain(text)
    return [Fragment("text", cleaned)] if cleaned.strip() else []
