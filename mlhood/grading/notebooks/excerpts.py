"""Which outputs stand for a project: its measured table and its main pictures, by the ids of their cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bs4 import BeautifulSoup, Tag
from nbformat import NotebookNode


@dataclass(frozen=True)
class Excerpt:
    """Which output of a notebook the README shows, and which ones the report of `mlhood run` shows besides.

    Args:
        picture: Id of the cell whose first picture the README shows.
        table: Id of the cell whose first table the report shows, and that of P4 the README, too.
        more_pictures: Ids of further cells, whose pictures only the report shows.
    """

    picture: str
    table: str
    more_pictures: tuple[str, ...] = ()

    @property
    def pictures(self) -> tuple[str, ...]:
        """Ids of all cells whose pictures the report shows."""
        return (self.picture, *self.more_pictures)


EXCERPTS = {
    "P1": Excerpt(
        "P1-6-result-1",
        "P1-6-result-1",
        more_pictures=("P1-7-result-1", "P1-3-result-1"),
    ),
    "P2": Excerpt(
        "P2-11-result-7",
        "P2-11-result-4",
        more_pictures=("P2-8-given-2", "P2-14-result-1"),
    ),
    "P3": Excerpt(
        "P3-10-result-3",
        "P3-5-solution-2",
        more_pictures=("P3-7-result-2", "P3-9-result-1", "P3-10-result-2", "P3-11-result-2"),
    ),
    "P4": Excerpt(
        "P4-6-result-3",
        "P4-5-solution-2",
        more_pictures=("P4-2-result-1", "P4-5-result-1", "P4-8-result-1"),
    ),
    "P5": Excerpt(
        "P5-3-result-1",
        "P5-3-solution-3",
        more_pictures=("P5-8-result-1", "P5-8-result-2", "P5-12-result-2"),
    ),
}


@dataclass(frozen=True)
class TextTable:
    """A table that a notebook shows, as text: its headings, its rows, and the notes around it."""

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def output(notebook: NotebookNode, cell_id: str, mime_type: str) -> str:
    """Return the first output of a MIME type that a cell shows; empty if it shows none."""
    outputs = [output for cell in notebook.cells if cell.id == cell_id for output in cell.get("outputs", [])]
    shown = ("".join(output.get("data", {}).get(mime_type, "")) for output in outputs)
    return next(filter(None, shown), "")


def text_table(html: str, columns: tuple[str, ...] = ()) -> TextTable:
    """Return a table of a notebook as text; of pandas' default index nothing is kept, since it says nothing.

    Args:
        html: What pandas or a declared table of the course shows in a notebook.
        columns: The columns to keep, by their headings; all if empty.
    """
    soup = BeautifulSoup(html, "html.parser")
    heads, lines = _lines(soup)
    # pandas names the columns of an index in a line of its own
    heading = [next(filter(None, texts), "") for texts in zip(*heads, strict=True)]
    rows = [line for line in lines if any(line[1:])]
    if rows and all(row[0].isdigit() for row in rows):
        heading, rows = heading[1:], [row[1:] for row in rows]
    keep = [i for i, title in enumerate(heading) if not columns or title in columns]
    return TextTable(_kept(heading, keep), tuple(_kept(row, keep) for row in rows), tuple(_notes(soup)))


def _lines(soup: BeautifulSoup) -> tuple[list[list[str]], list[list[str]]]:
    """Return the texts of the heading's lines and of all others; a cell that spans lines has its text in each."""
    heads, lines = [], []
    below: dict[int, list[str]] = {}  # column -> the texts of a cell from above in the lines to come
    for row in soup.find_all("tr"):
        line: list[str] = []
        for cell in row.find_all(["th", "td"]):
            while below.get(len(line)):
                line.append(below[len(line)].pop())
            below[len(line)] = [_text(cell)] * (int(str(cell.get("rowspan", "1"))) - 1)
            line.append(_text(cell))
        (lines if row.find("td") else heads).append(line)
    return heads, lines


def _text(tag: Tag) -> str:
    return " ".join(tag.get_text(" ").split())


def _kept(cells: list[str], keep: list[int]) -> tuple[str, ...]:
    return tuple(cells[i] if i < len(cells) else "" for i in keep)


def _notes(soup: BeautifulSoup) -> Iterator[str]:
    for tag in soup.find_all(["p", "li"]):
        yield ", ".join(filter(None, map(str.strip, tag.get_text().splitlines())))
