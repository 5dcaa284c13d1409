"""What the report of `mlhood run` shows of an executed notebook: its main tables and pictures.

A notebook may be a student's. So its HTML is filtered as GitHub does, and the number and size of outputs are bounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from markupsafe import Markup
from nbformat import NotebookNode

from mlhood.errors import MeasureError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.excerpts import EXCERPTS
from mlhood.grading.notebooks.notebook import label
from mlhood.measure.claims import ratio
from mlhood.measure.table import MIME, Table
from mlhood.notebook_view.github_view import sanitized

MAX_SHOWN = 16  # outputs of a notebook
MAX_BYTES = 1 << 20  # of an output
MAX_WIDTH = 1.7  # of the interval of a ratio: its upper bound over its lower
CLEAR = 5.0  # times or more, and no text depends on how many


@dataclass(frozen=True)
class Shown:
    """A table or a picture as filtered HTML, and the title of the task that it belongs to."""

    title: str
    html: Markup


def shown(notebook: NotebookNode, project: Project) -> list[Shown]:
    """Return the tables of measurements, and the table and pictures of the project's excerpt; without one, all."""
    excerpt = EXCERPTS.get(project.id)
    found = []
    for cell in notebook.cells:
        for data, alt in _data(cell):
            is_table = MIME in data or ("text/html" in data and (not excerpt or cell.id == excerpt.table))
            if is_table:
                found.append((cell, "".join(data.get("text/html", ""))))
            elif "image/png" in data and (not excerpt or cell.id in excerpt.pictures):
                source = "".join("".join(data["image/png"]).split())
                found.append((cell, f'<img src="data:image/png;base64,{escape(source)}" alt="{escape(alt)}">'))
    small = ((cell, html) for cell, html in found if html and len(html) <= MAX_BYTES)
    return [Shown(_title(cell, project), Markup(sanitized(html))) for cell, html in itertools.islice(small, MAX_SHOWN)]  # noqa: S704


def _data(cell: NotebookNode) -> Iterator[tuple[dict, str]]:
    """Yield the formats of each output of a cell, and its alternative text."""
    for output in cell.get("outputs", []):
        data, metadata = output.get("data"), output.get("metadata")
        picture = metadata.get("image/png") if isinstance(metadata, dict) else None
        alt = picture.get("alt") if isinstance(picture, dict) else None
        if isinstance(data, dict):
            yield data, str(alt or "a picture of the notebook, without a description")


def _title(cell: NotebookNode, project: Project) -> str:
    """Return id and title of a cell's task, or the project's title."""
    of = label(cell)
    task = project.task(of.task) if of else None
    return f"{task.id} {task.title}" if task else project.title


def uncertain(notebook: NotebookNode) -> Iterator[str]:
    """Yield the claims and ratios of measured tables that another run may well contradict."""
    for table in _measured_tables(notebook):
        yield from (str(verdict) for verdict in table.verdicts() if verdict.state == "open")
        for row, column in itertools.product(table.rows, table.columns):
            base, other = (row, table.baseline or ""), (row, column)
            if column != table.baseline and base in table and other in table:
                measured = ratio(table[base], table[other])
                is_clear = measured.low > CLEAR or measured.high < 1 / CLEAR
                if measured.high > MAX_WIDTH * measured.low and not is_clear:
                    yield f"{table.id}: {row}: {table.baseline} / {column} is {measured}"


def _measured_tables(notebook: NotebookNode) -> Iterable[Table]:
    """Return the measured tables; of several with one id, the last one, which is the one in use."""
    tables: dict[str, Table] = {}
    for cell in notebook.cells:
        for data, _ in _data(cell):
            try:
                table = Table.from_dict(data[MIME])
            except (KeyError, MeasureError):
                continue
            tables[table.id] = table
    return tables.values()
