"""A project's table: declared before anything is measured, filled with measurements, and parsed from a notebook."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from mlhood.errors import MeasureError
from mlhood.measure.claims import EVERY, Cell, Claim, Position, Verdict, ratio
from mlhood.measure.measurement import Count, Measurement, check_keys
from mlhood.measure.units import TIMES

if TYPE_CHECKING:
    import pandas as pd

    from mlhood.measure.measurement import Comparison

MIME = "application/vnd.mlhood.table+json"
FORMAT = 1
Kind = Literal["measurement", "count"]
_KINDS: dict[str, type[Measurement] | type[Count]] = {"measurement": Measurement, "count": Count}
_MAX_LINES = 500
_MAX_CELLS = 5_000
_MAX_NAME = 200
_changes = itertools.count(1)
_KEYS = {"format", "id", "title", "rows", "columns", "unit", "kind", "baseline", "claims", "cells"}


@dataclass
class Table:
    """Rows and columns of cells that are measurements or counts, and claims about them.

    Args:
        id: Such as `P3.convolutions`; the harness finds the table by it.
        rows: Names of the rows.
        columns: Names of the columns.
        unit: Unit that cells are shown in: a unit of time for measurements; any for counts.
        title: Title shown above the table.
        kind: Kind of all cells: `measurement` or `count`.
        baseline: A column; the table also shows the speed-ups of the other columns over it.
        claims: Claims about the cells.

    Attributes:
        labels: What a cell was measured with, such as the sizes of tiles, by its position: shown before the cell, and
            not stored.
        changed: Grows with each table that is declared and each cell that is filled in this process: of several tables
            with one id, the one with the largest number is the one in use.
    """

    id: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    unit: str = "ms"
    title: str = ""
    kind: Kind = "measurement"
    baseline: str | None = None
    claims: tuple[Claim, ...] = ()
    labels: dict[Position, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    changed: int = field(default=0, init=False, repr=False, compare=False)
    _cells: dict[Position, Cell] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.rows, self.columns, self.claims = tuple(self.rows), tuple(self.columns), tuple(self.claims)
        _check_names("rows", self.rows)
        _check_names("columns", self.columns)
        texts = (self.id, self.unit, self.title)
        if not self.id or not all(isinstance(text, str) and len(text) <= _MAX_NAME for text in texts):
            raise MeasureError("a table has an id, a unit and a title", expected="short texts", got=texts)
        if len(self.rows) * len(self.columns) > _MAX_CELLS:
            raise MeasureError("the table is too large", where=self.id, expected=f"{_MAX_CELLS:,} cells at most")
        if self.kind not in _KINDS or (self.kind == "measurement" and self.unit not in TIMES):
            raise MeasureError(
                "invalid unit for cells of this kind", where=self.id, got=f"{self.kind!r}, {self.unit!r}"
            )
        if self.baseline is not None and self.baseline not in self.columns:
            raise MeasureError("the baseline is not a column", where=self.id, expected=self.columns, got=self.baseline)
        for claim in self.claims:
            list(claim.pairs(self.rows, self.columns))  # raises if the claim names an unknown row or column
        self.changed = next(_changes)

    def __setitem__(self, position: Position, cell: Cell) -> None:
        position = self._check_position(position)
        kind = _KINDS[self.kind]
        if not isinstance(cell, kind):
            raise MeasureError(
                "invalid value for a cell",
                where=f"{self.id}, {position[0]}/{position[1]}",
                expected=f"a {kind.__name__}",
                got=repr(cell)[:100],
                todo='measure with `compare`, and assign comparison["name"]' if kind is Measurement else None,
            )
        self._cells[position] = cell
        self.changed = next(_changes)

    def __getitem__(self, position: Position) -> Cell:
        position = self._check_position(position)
        if position not in self._cells:
            raise MeasureError("this cell is empty", where=f"{self.id}, {position[0]}/{position[1]}")
        return self._cells[position]

    def __contains__(self, position: object) -> bool:
        return position in self._cells

    def fill(self, row: str, comparison: Comparison, names: Mapping[str, str] | None = None) -> None:
        """Fill a row from a comparison.

        Args:
            row: Name of the row.
            comparison: A comparison with an alternative for each column.
            names: Column -> alternative; by default alternatives have the names of columns.

        Raises:
            MeasureError: An alternative was not measured, or a row or column is unknown.
        """
        names = names or {column: column for column in self.columns}
        cells = {self._check_position((row, column)): comparison[name] for column, name in names.items()}
        for position, cell in cells.items():
            self[position] = cell

    @property
    def missing(self) -> list[Position]:
        """Empty cells."""
        return [(row, column) for row in self.rows for column in self.columns if (row, column) not in self._cells]

    def verdicts(self) -> list[Verdict]:
        """Evaluate all claims from the cells that are filled."""
        return [claim.evaluate(self._cells, self.rows, self.columns) for claim in self.claims]

    def frame(self) -> pd.DataFrame:
        """Return the formatted table, with a column of speed-ups over the baseline for each other column."""
        import pandas as pd

        frame = pd.DataFrame({column: [self._text(row, column) for row in self.rows] for column in self.columns})
        for column in self.columns:
            if self.baseline is not None and column != self.baseline:
                frame[f"{self.baseline} / {column}"] = [self._speedup(row, column) for row in self.rows]
        frame.index = pd.Index(self.rows)  # the id is for the harness, not for readers
        return frame

    def _text(self, row: str, column: str) -> str:
        cell = self._cells.get((row, column))
        label = f"{self.labels[row, column]}: " if (row, column) in self.labels else ""
        return label + ("–" if cell is None else cell.text(self.unit))

    def _speedup(self, row: str, column: str) -> str:
        base, other = (self._cells.get((row, name)) for name in (self.baseline or "", column))
        return "–" if base is None or other is None else str(ratio(base, other))

    def note(self) -> str:
        """Explain the format of the cells."""
        if self.kind == "count":
            return "counted"
        return "median (first and third quartile); ratios are medians over rounds [95 % interval]"

    def __str__(self) -> str:
        parts = [self.title, self.frame().to_string(), self.note(), *map(str, self.verdicts())]
        return "\n".join(part for part in parts if part)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": str(self), "text/html": self._repr_html_(), MIME: self.to_dict()}

    def _repr_html_(self) -> str:
        title = f"<p><b>{escape(self.title)}</b></p>" if self.title else ""
        claims = "".join(f"<li>{escape(str(verdict))}</li>" for verdict in self.verdicts())
        claims = f"<ul>{claims}</ul>" if claims else ""
        cells = self.frame().map(lambda text: text.replace(" ", "\xa0"))  # a value and its interval stay on one line
        if len(cells.columns) > 2 * len(cells):
            cells = cells.T  # few rows of many columns would not fit a page
        return f"{title}{cells.to_html()}<p>{escape(self.note())}</p>{claims}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data: the declaration, and the filled cells."""
        return {
            "format": FORMAT,
            **self._declaration(),
            "cells": [[row, column, cell.to_dict()] for (row, column), cell in sorted(self._cells.items())],
        }

    def _declaration(self) -> dict[str, Any]:
        names = ("id", "title", "rows", "columns", "unit", "kind", "baseline")
        data = {name: getattr(self, name) for name in names}
        lists = {"rows": list(self.rows), "columns": list(self.columns)}
        return data | lists | {"claims": [claim.to_dict() for claim in self.claims]}

    def read(self, data: Any) -> Table:
        """Return a table with this declaration and the cells of a stored one.

        The stored table is not trusted: it must have the same declaration.

        Args:
            data: The result of `to_dict`, or JSON of it.

        Raises:
            MeasureError: The data are invalid, or have another declaration.
        """
        table = Table.from_dict(data)
        stored = table._declaration()
        for name, value in self._declaration().items():
            if stored[name] != value:
                raise MeasureError(
                    "the stored table has another declaration",
                    where=f"{self.id}, {name}",
                    expected=value,
                    got=stored[name],
                    todo="leave the table's declaration as it was given",
                )
        return table

    @classmethod
    def from_dict(cls, data: Any) -> Table:
        """Parse the result of `to_dict`, or JSON of it, with whatever declaration it has.

        Raises:
            MeasureError: The data are invalid.
        """
        data = check_keys(_parse_json(data), _KEYS, "table")
        if data["format"] != FORMAT or not isinstance(data["claims"], list) or len(data["claims"]) > _MAX_LINES:
            raise MeasureError("invalid stored table", expected=f"format {FORMAT}", got=repr(data["format"])[:50])
        claims = [Claim.from_dict(claim) for claim in data["claims"]]
        rows, columns = (_names(data[part], part) for part in ("rows", "columns"))
        kind, baseline = data["kind"], data["baseline"]
        if not isinstance(kind, str) or not (baseline is None or isinstance(baseline, str)):
            got = f"{kind!r}, {baseline!r}"[:100]
            raise MeasureError("invalid stored table", where="kind and baseline", got=got)
        table = cls(data["id"], rows, columns, data["unit"], data["title"], kind, baseline, tuple(claims))  # type: ignore[arg-type]
        table._read_cells(data["cells"])
        return table

    def _read_cells(self, cells: Any) -> None:
        if not isinstance(cells, list) or len(cells) > len(self.rows) * len(self.columns):
            raise MeasureError("invalid list of cells", where=self.id, got=type(cells).__name__)
        for cell in cells:
            if not isinstance(cell, list) or len(cell) != 3:
                raise MeasureError("invalid cell", where=self.id, expected="[row, column, cell]", got=repr(cell)[:50])
            position = self._check_position((cell[0], cell[1]))
            where = f"{self.id}, {position[0]}/{position[1]}"
            if position in self._cells:
                raise MeasureError("duplicate cell", where=where)
            self[position] = _KINDS[self.kind].from_dict(cell[2], where)

    def _check_position(self, position: Any) -> Position:
        is_pair = isinstance(position, tuple) and len(position) == 2 and all(isinstance(n, str) for n in position)
        if is_pair and position[0] in self.rows and position[1] in self.columns:
            return position
        expected = f"one of {self.rows} and one of {self.columns}"
        raise MeasureError("the table has no such cell", where=self.id, expected=expected, got=repr(position)[:100])


def _check_names(what: str, names: Sequence[Any]) -> None:
    valid = all(isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name != EVERY for name in names)
    if not valid or not 0 < len(names) <= _MAX_LINES or len(set(names)) != len(names):
        raise MeasureError(
            f"invalid names of {what}",
            expected=f"1 to {_MAX_LINES} different short names, none of them {EVERY!r}",
            got=repr(names)[:100],
        )


def _names(data: Any, where: str) -> tuple[str, ...]:
    if isinstance(data, list):
        return tuple(data)
    raise MeasureError("names are not stored as a list", where=where, got=type(data).__name__)


def _parse_json(data: Any) -> Any:
    """Parse strict JSON: NaN and infinity are rejected, and so is unbounded nesting."""
    if not isinstance(data, str | bytes):
        return data
    try:
        return json.loads(data, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise MeasureError("invalid JSON", where="table", got=error) from None


def _reject_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number in JSON")
