"""A project's table: declared before anything is measured, filled with measurements, read again from a notebook."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from mlhood.errors import MeasureError
from mlhood.measure.claims import EVERY, Cell, Claim, Place, Verdict, ratio
from mlhood.measure.measurement import Count, Measurement, exactly
from mlhood.measure.units import TIMES

if TYPE_CHECKING:
    import pandas as pd

    from mlhood.measure.result import Comparison

MIME = "application/vnd.mlhood.table+json"
FORMAT = 1
Kind = Literal["measurement", "count"]
_KINDS: dict[str, type[Measurement] | type[Count]] = {"measurement": Measurement, "count": Count}
_MOST_LINES = 500
_MOST_CELLS = 5_000
_LONGEST_NAME = 200
_PARTS = {"format", "id", "title", "rows", "columns", "unit", "kind", "baseline", "claims", "cells", "verdicts"}


@dataclass
class Table:
    """Rows and columns of cells that are measurements, and claims about them.

    Args:
        id: Such as `P3.convolutions`; by it the harness finds the table.
        rows: Names of rows.
        columns: Names of columns.
        unit: In which cells are shown: a unit of time for measurements; any for counts.
        title: Shown above.
        kind: What goes into a cell: `measurement` or `count`.
        baseline: A column; the table also shows how many times as fast as it the others are.
        claims: What must hold between cells.
    """

    id: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    unit: str = "ms"
    title: str = ""
    kind: Kind = "measurement"
    baseline: str | None = None
    claims: tuple[Claim, ...] = ()
    _cells: dict[Place, Cell] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.rows, self.columns, self.claims = tuple(self.rows), tuple(self.columns), tuple(self.claims)
        _check_names("rows", self.rows)
        _check_names("columns", self.columns)
        texts = (self.id, self.unit, self.title)
        if not self.id or not all(isinstance(text, str) and len(text) <= _LONGEST_NAME for text in texts):
            raise MeasureError("a table has an id, a unit and a title", expected="short texts", got=texts)
        if len(self.rows) * len(self.columns) > _MOST_CELLS:
            raise MeasureError("the table is too large", where=self.id, expected=f"{_MOST_CELLS:,} cells at most")
        if self.kind not in _KINDS or (self.kind == "measurement" and self.unit not in TIMES):
            raise MeasureError("this unit does not fit the cells", where=self.id, got=f"{self.kind!r} in {self.unit!r}")
        if self.baseline is not None and self.baseline not in self.columns:
            raise MeasureError("the baseline is no column", where=self.id, expected=self.columns, got=self.baseline)
        for claim in self.claims:
            list(claim.pairs(self.rows, self.columns))

    def __setitem__(self, place: Place, cell: Cell) -> None:
        place = self._place(place)
        wanted = _KINDS[self.kind]
        if not isinstance(cell, wanted):
            raise MeasureError(
                "this does not go into a cell",
                where=f"{self.id}, {place[0]}/{place[1]}",
                expected=f"a {wanted.__name__}",
                got=repr(cell)[:100],
                todo='measure with `compare`, and give comparison["name"]' if wanted is Measurement else None,
            )
        self._cells[place] = cell

    def __getitem__(self, place: Place) -> Cell:
        place = self._place(place)
        if place not in self._cells:
            raise MeasureError("this cell is empty", where=f"{self.id}, {place[0]}/{place[1]}")
        return self._cells[place]

    def __contains__(self, place: object) -> bool:
        return place in self._cells

    def fill(self, row: str, comparison: Comparison, names: Mapping[str, str] | None = None) -> None:
        """Put a comparison into a row.

        Args:
            row: Which.
            comparison: With an alternative for each column.
            names: Column -> alternative; if left out, alternatives are named like columns.

        Raises:
            MeasureError: The comparison has not measured one of them, or there is no such row or column.
        """
        names = names or {column: column for column in self.columns}
        found = {self._place((row, column)): comparison[name] for column, name in names.items()}
        for place, cell in found.items():
            self[place] = cell

    @property
    def missing(self) -> list[Place]:
        """Places that are empty."""
        return [(row, column) for row in self.rows for column in self.columns if (row, column) not in self._cells]

    def verdicts(self) -> list[Verdict]:
        """Judge all claims from the cells there are."""
        return [claim.judge(self._cells, self.rows, self.columns) for claim in self.claims]

    def frame(self) -> pd.DataFrame:
        """Return the table formatted for people, with a column of speed-ups for each that is not the baseline."""
        import pandas as pd

        found = pd.DataFrame({column: [self._text(row, column) for row in self.rows] for column in self.columns})
        for column in self.columns:
            if self.baseline is not None and column != self.baseline:
                found[f"{self.baseline} / {column}"] = [self._speedup(row, column) for row in self.rows]
        found.index = pd.Index(self.rows, name=self.id)
        return found

    def _text(self, row: str, column: str) -> str:
        cell = self._cells.get((row, column))
        return "–" if cell is None else cell.text(self.unit)

    def _speedup(self, row: str, column: str) -> str:
        base, other = (self._cells.get((row, name)) for name in (self.baseline or "", column))
        return "–" if base is None or other is None else str(ratio(base, other))

    def note(self) -> str:
        """Say how cells are to be read."""
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
        listed = f"<ul>{claims}</ul>" if claims else ""
        return f"{title}{self.frame().to_html()}<p>{escape(self.note())}</p>{listed}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the declaration, the cells that are filled, and the verdicts."""
        return {
            "format": FORMAT,
            **self._declared(),
            "cells": [[row, column, cell.to_dict()] for (row, column), cell in sorted(self._cells.items())],
            "verdicts": [[verdict.text, verdict.state] for verdict in self.verdicts()],
        }

    def _declared(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "title": self.title,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "unit": self.unit,
            "kind": self.kind,
            "baseline": self.baseline,
            "claims": [claim.to_dict() for claim in self.claims],
        }

    def read(self, data: Any) -> Table:
        """Return a table declared like this one, with the cells of one that was stored.

        What the stored one says of itself is not believed: its declaration has to be this one, and the verdicts are
        judged anew from its cells.

        Args:
            data: What `to_dict` returned, or JSON of it.

        Raises:
            MeasureError: It is not what `to_dict` writes, or is declared otherwise.
        """
        found = Table.from_dict(data)
        told, wanted = found._declared(), self._declared()
        for name, value in wanted.items():
            if told[name] != value:
                raise MeasureError(
                    "the stored table is declared otherwise",
                    where=f"{self.id}, {name}",
                    expected=value,
                    got=told[name],
                    todo="leave the table's declaration as it was given",
                )
        return found

    @classmethod
    def from_dict(cls, data: Any) -> Table:
        """Read what `to_dict` wrote, or JSON of it, and take its declaration as it is.

        Raises:
            MeasureError: It is not what `to_dict` writes.
        """
        data = exactly(_parsed(data), _PARTS, "table")
        if data["format"] != FORMAT or not isinstance(data["claims"], list) or len(data["claims"]) > _MOST_LINES:
            raise MeasureError("this is no stored table", expected=f"format {FORMAT}", got=repr(data["format"])[:50])
        claims = [Claim.from_dict(claim) for claim in data["claims"]]
        rows, columns = (_names(data[part], part) for part in ("rows", "columns"))
        kind, baseline = data["kind"], data["baseline"]
        if not isinstance(kind, str) or not (baseline is None or isinstance(baseline, str)):
            raise MeasureError(
                "this is no stored table", where="kind and baseline", got=f"{kind!r}, {baseline!r}"[:100]
            )
        table = cls(data["id"], rows, columns, data["unit"], data["title"], kind, baseline, tuple(claims))  # type: ignore[arg-type]
        table._read_cells(data["cells"])
        return table

    def _read_cells(self, cells: Any) -> None:
        if not isinstance(cells, list) or len(cells) > len(self.rows) * len(self.columns):
            raise MeasureError("this is no list of cells", where=self.id, got=type(cells).__name__)
        for cell in cells:
            if not isinstance(cell, list) or len(cell) != 3:
                raise MeasureError(
                    "this is no cell", where=self.id, expected="[row, column, cell]", got=repr(cell)[:50]
                )
            place = self._place((cell[0], cell[1]))
            if place in self._cells:
                raise MeasureError("a cell is there twice", where=f"{self.id}, {place[0]}/{place[1]}")
            self[place] = _KINDS[self.kind].from_dict(cell[2], f"{self.id}, {place[0]}/{place[1]}")

    def _place(self, place: Any) -> Place:
        known = isinstance(place, tuple) and len(place) == 2 and all(isinstance(name, str) for name in place)
        if known and place[0] in self.rows and place[1] in self.columns:
            return place
        wanted = f"one of {self.rows} and one of {self.columns}"
        raise MeasureError("the table has no such place", where=self.id, expected=wanted, got=repr(place)[:100])


def _check_names(what: str, names: Sequence[Any]) -> None:
    fine = all(isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name != EVERY for name in names)
    if not fine or not 0 < len(names) <= _MOST_LINES or len(set(names)) != len(names):
        raise MeasureError(
            f"these are no {what}",
            expected=f"1 to {_MOST_LINES} different short names, none of them {EVERY!r}",
            got=repr(names)[:100],
        )


def _names(data: Any, where: str) -> tuple[str, ...]:
    if isinstance(data, list):
        return tuple(data)
    raise MeasureError("names are stored as a list", where=where, got=type(data).__name__)


def _parsed(data: Any) -> Any:
    """Return JSON as data; NaN and infinity are no JSON, nor is what is nested without end."""
    if not isinstance(data, str | bytes):
        return data
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise MeasureError("this is no JSON", where="table", got=error) from None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")
