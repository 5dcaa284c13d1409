"""Which outputs stand for a project: its measured table and its main pictures, by the ids of their cells."""

from __future__ import annotations

from dataclasses import dataclass

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


def output(notebook: NotebookNode, cell_id: str, mime_type: str) -> str:
    """Return the first output of a MIME type that a cell shows; empty if it shows none."""
    outputs = [output for cell in notebook.cells if cell.id == cell_id for output in cell.get("outputs", [])]
    shown = ("".join(output.get("data", {}).get(mime_type, "")) for output in outputs)
    return next(filter(None, shown), "")
