"""The outputs of a student's cells as HTML for a page of ours: tables, pictures and text, nothing that runs.

Of an output that comes in several forms the safest that still shows it is taken: a table of measurements, read
strictly and drawn by us; a picture, drawn anew; HTML, of which tables are left; text. SVG is not shown: it is a program
as much as a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlhood.grading.reports.images import FORMATS, data_uri
from mlhood.grading.reports.sanitize import escaped, table_html
from mlhood.measure.table import MIME, Table

PAGE_CHARACTERS = 6_000_000
CELL_OUTPUTS = 12
PICTURE_WORK = 100_000  # a picture of few bytes can have millions of pixels
SVG = "image/svg+xml"
NOT_SHOWN = '<p class="soft">{}</p>'


@dataclass
class Room:
    """How much more a page takes in: many small things make a large page and hours of work, too."""

    left: int = PAGE_CHARACTERS

    def take(self, html: str, work: int = 0) -> str:
        """The HTML, or a sentence where there is no room for it.

        Args:
            html: What is to be shown.
            work: What it cost to make it, in characters; counts where it is more than its length.
        """
        cost = max(len(html), work)
        if cost > self.left:
            self.left = 0
            return self.full()
        self.left -= cost
        return html

    def full(self) -> str:
        """Said in place of what there is no room for."""
        return NOT_SHOWN.format("Not shown: this page has reached its largest size.")


def outputs_html(cell: Any, room: Room) -> str:
    """What a code cell of a notebook shows."""
    outputs = list(cell.get("outputs", []))
    shown = [_taken(output, room) for output in outputs[:CELL_OUTPUTS]]
    if len(outputs) > CELL_OUTPUTS:
        shown.append(NOT_SHOWN.format(f"{len(outputs) - CELL_OUTPUTS:,} more outputs are not shown."))
    return "".join(f'<div class="output">{html}</div>' for html in shown if html)


def _taken(output: Any, room: Room) -> str:
    if not room.left:
        return room.full()
    data = _data(output)
    pictures = sum(kind in data for kind in FORMATS)
    return room.take(_output(output), pictures * PICTURE_WORK + len(str(data.get("text/html", ""))))


def _data(output: Any) -> dict[str, Any]:
    data = output.get("data")
    return data if isinstance(data, dict) else {}


def _output(output: Any) -> str:
    kind = output.get("output_type")
    if kind == "stream":
        return _text(output.get("text", ""))
    if kind == "error":
        return _text(f"{output.get('ename', '')}: {output.get('evalue', '')}")
    return _shown(_data(output))


def _shown(data: dict[str, Any]) -> str:
    found = (_table(data) or _picture(data) or _html(data)) or _text(data.get("text/plain", ""))
    if SVG in data:
        found += NOT_SHOWN.format("An SVG picture is not shown here: look at it in your notebook.")
    return found


def _table(data: dict[str, Any]) -> str | None:
    """A table of measurements, drawn from its numbers."""
    if MIME not in data:
        return None
    try:
        shown = table_html(Table.from_dict(data[MIME])._repr_html_())
    except Exception:  # a hostile table may provoke anything; the page goes on without it
        shown = None
    return shown or NOT_SHOWN.format("A table of measurements is not shown: it is damaged or too large.")


def _picture(data: dict[str, Any]) -> str | None:
    kind = next((kind for kind in FORMATS if kind in data), None)
    if kind is None:
        return None
    uri = data_uri(kind, data[kind])
    if uri is None:
        return NOT_SHOWN.format("A picture is not shown: it is damaged or too large.")
    return f'<img src="{uri}" alt="a picture from your notebook">'


def _html(data: dict[str, Any]) -> str | None:
    return table_html(data["text/html"]) if isinstance(data.get("text/html"), str) else None


def _text(text: object) -> str:
    shown = escaped(text)
    return f"<pre>{shown}</pre>" if shown.strip() else ""
