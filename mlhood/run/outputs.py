"""What the report of `mlhood run` shows of an executed notebook: its measured tables and its main pictures.

A notebook may be a student's. So tables are read strictly and rendered by us, pictures are decoded and encoded again,
and the number of both is bounded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from mlhood.errors import MeasureError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.excerpts import EXCERPTS, Excerpt, output, text_table
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.reports.outputs import MAX_ALT
from mlhood.grading.reports.pictures import FORMATS, Picture, data_uri, prepare
from mlhood.grading.reports.sanitize import MAX_HTML, plain
from mlhood.measure.claims import ratio
from mlhood.measure.table import MIME, Table

MAX_TABLES = 12  # of a notebook
MAX_PICTURES = 12
MAX_ROWS = 60  # of a table
MAX_COLUMNS = 12
MAX_CELL = 200  # characters
MAX_REASON = 300
MAX_WIDTH = 1.7  # of the interval of a ratio: its upper bound over its lower
CLEAR = 5.0  # times or more, and no text depends on how many
PLAIN_NUMBER = re.compile(r"[-+]?\d[\d,.]*(e[-+]?\d+)?|–|NaN|nan|inf")


@dataclass(frozen=True)
class ShownTable:
    """A table as text: its caption, its cells, the notes under it, and the verdicts on its claims, as (state, text)."""

    caption: str
    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column contains nothing but plain numbers, which are read best flush right."""
        columns = zip(*self.rows, strict=True) if self.rows else [("",)] * len(self.heading)
        return tuple(all(map(PLAIN_NUMBER.fullmatch, column)) for column in columns)


@dataclass(frozen=True)
class ShownPicture:
    """A picture as a `data:` address, with the caption under it and its alternative text."""

    uri: str
    caption: str
    alt: str


@dataclass(frozen=True)
class RunOutputs:
    """What a report shows of a notebook, and in words what it cannot show."""

    tables: tuple[ShownTable, ...] = ()
    pictures: tuple[ShownPicture, ...] = ()
    absent: tuple[str, ...] = ()


def run_outputs(notebooks: Iterable[tuple[NotebookNode, Project]]) -> list[RunOutputs]:
    """Return what the report shows of executed notebooks, each with its project, in their order."""
    notebooks = list(notebooks)
    drawn = [list(_pictures(notebook, project)) for notebook, project in notebooks]
    prepare([picture for _, picture, _ in found] for found in drawn)
    return [_outputs(*pair, found) for pair, found in zip(notebooks, drawn, strict=True)]


Found = tuple[NotebookNode, Picture, str]
"""The cell of a picture, the picture, and its alternative text."""


def _outputs(notebook: NotebookNode, project: Project, drawn: list[Found]) -> RunOutputs:
    excerpt = EXCERPTS.get(project.id)
    absent: list[str] = []
    tables = list(map(_declared_table, _measured_tables(notebook, absent)))
    if excerpt and not output(notebook, excerpt.table, MIME):
        tables = [*_plain_table(notebook, excerpt), *tables]
        if not output(notebook, excerpt.table, "text/html"):
            absent.append(_absent(notebook, project, excerpt.table, "the table"))
    pictures = []
    for cell, picture, alt in drawn:
        if uri := data_uri(picture):
            pictures.append(ShownPicture(uri, _title(cell, project), alt))
        else:
            absent.append(f"a picture of {_title(cell, project)}: it is damaged or too large")
    shown = {cell.id for cell, _, _ in drawn}
    for cell_id in excerpt.pictures if excerpt else ():
        if cell_id not in shown:
            absent.append(_absent(notebook, project, cell_id, "the picture"))
    return RunOutputs(tuple(tables[:MAX_TABLES]), tuple(pictures), tuple(dict.fromkeys(absent)))


def uncertain(notebook: NotebookNode) -> Iterator[str]:
    """Yield the claims and ratios of measured tables that another run may well contradict."""
    for table in _measured_tables(notebook, []):
        yield from (str(verdict) for verdict in table.verdicts() if verdict.state == "open")
        for row, column in itertools.product(table.rows, table.columns):
            base, other = (row, table.baseline or ""), (row, column)
            if column != table.baseline and base in table and other in table:
                measured = ratio(table[base], table[other])
                is_clear = measured.low > CLEAR or measured.high < 1 / CLEAR
                if measured.high > MAX_WIDTH * measured.low and not is_clear:
                    yield f"{table.id}: {row}: {table.baseline} / {column} is {measured}"


def _measured_tables(notebook: NotebookNode, absent: list[str]) -> Iterable[Table]:
    """Return the measured tables; of several with one id, the last one, which is the one in use."""
    tables: dict[str, Table] = {}
    for data in _data(notebook):
        if MIME not in data:
            continue
        try:
            table = Table.from_dict(data[MIME])
        except MeasureError as error:
            absent.append(f"a table of measurements: {plain(error.what, MAX_REASON)}")
        else:
            tables[table.id] = table
    return tables.values()


def _data(notebook: NotebookNode) -> Iterator[dict[str, Any]]:
    for cell in notebook.cells:
        for shown in cell.get("outputs", []):
            data = shown.get("data")
            if isinstance(data, dict):
                yield data


def _declared_table(table: Table) -> ShownTable:
    frame = table.frame()
    rows = zip(map(str, frame.index), frame.to_numpy().tolist(), strict=True)
    claims = tuple((verdict.state, _claim(str(verdict))) for verdict in table.verdicts())
    return _bounded(
        table.title or table.id,
        ("", *map(str, frame.columns)),
        tuple((name, *map(str, cells)) for name, cells in rows),
        (table.note(),),
        claims,
    )


def _claim(text: str) -> str:
    """Return a verdict on one line: `fails: JAX is faster (conv/JAX against ...)`."""
    first, *reasons = text.splitlines()
    reason = "; ".join(line.strip() for line in reasons)
    return plain(f"{first} ({reason})" if reason else first, 2 * MAX_REASON)


def _plain_table(notebook: NotebookNode, excerpt: Excerpt) -> Iterator[ShownTable]:
    html = output(notebook, excerpt.table, "text/html")
    if html and len(html) <= MAX_HTML:
        table = text_table(html, excerpt.columns)
        yield _bounded(excerpt.caption, table.heading, table.rows, table.notes)


def _bounded(
    caption: str,
    heading: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
    notes: tuple[str, ...],
    claims: tuple[tuple[str, str], ...] = (),
) -> ShownTable:
    cut = [f"{len(rows) - MAX_ROWS} more rows are not shown"] if len(rows) > MAX_ROWS else []
    cut += [f"{len(heading) - MAX_COLUMNS} more columns are not shown"] if len(heading) > MAX_COLUMNS else []
    return ShownTable(
        plain(caption, MAX_CELL),
        _cells(heading),
        tuple(map(_cells, rows[:MAX_ROWS])),
        tuple(plain(note, MAX_REASON) for note in (*notes, *cut)),
        claims,
    )


def _cells(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(plain(text, MAX_CELL) for text in texts[:MAX_COLUMNS])


def _pictures(notebook: NotebookNode, project: Project) -> Iterator[Found]:
    """Yield the pictures of the cells that an excerpt names; of another project, the first ones."""
    excerpt = EXCERPTS.get(project.id)
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    wanted = [cells[name] for name in excerpt.pictures if name in cells] if excerpt else list(cells.values())
    found = (each for cell in wanted for each in _pictures_of(cell))
    yield from (each for _, each in zip(range(MAX_PICTURES), found, strict=False))


def _pictures_of(cell: NotebookNode) -> Iterator[Found]:
    for shown in cell.outputs:
        data = shown.get("data")
        kind = next((kind for kind in FORMATS if isinstance(data, dict) and kind in data), None)
        if kind:
            yield cell, (kind, "".join(data[kind])), _alt(shown, kind)


def _alt(shown: NotebookNode, kind: str) -> str:
    try:
        return plain(shown["metadata"][kind]["alt"], MAX_ALT)
    except (KeyError, TypeError):  # no metadata, or not as IPython writes them
        return "a picture of the notebook, without a description"


def _title(cell: NotebookNode, project: Project) -> str:
    """Return id and title of a cell's task, or the project's title."""
    of = label(cell)
    task = project.task(of.task) if of else None
    return f"{task.id} {task.title}" if task else project.title


def _absent(notebook: NotebookNode, project: Project, cell_id: str, what: str) -> str:
    """Return why an output is not there: what its cell printed instead, if anything."""
    cell = next((cell for cell in notebook.cells if cell.id == cell_id), None)
    if cell is None:
        return f"{what} of the cell `{cell_id}`: the notebook has no such cell"
    printed = " ".join(plain(_printed(cell), MAX_REASON).split())
    return f"{what} of {_title(cell, project)}: {printed or 'its cell has shown none'}"


def _printed(cell: NotebookNode) -> str:
    """Return what a cell printed, or the error that stopped it."""
    texts = []
    for shown in cell.get("outputs", []):
        if shown.output_type == "stream":
            texts.append(shown.text)
        elif shown.output_type == "error":
            texts.append(f"its cell stopped with {shown.ename}: {shown.evalue}")
    return "\n".join(texts)
