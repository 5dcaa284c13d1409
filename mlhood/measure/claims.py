"""Claims about the cells of a table: declared as data, and evaluated from the cells' confidence intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from mlhood.errors import MeasureError
from mlhood.measure.measurement import Count, Measurement, check_keys, check_positive
from mlhood.measure.ratio import Ratio

EVERY = "*"
Cell = Measurement | Count
Position = tuple[str, str]
"""Row and column of a cell."""
Relation = Literal["<", ">", "agree"]
State = Literal["fails", "missing", "open", "holds"]
# worst first: a claim about several pairs of cells has the state of the worst of them
STATES: tuple[State, ...] = get_args(State)
_MAX_TEXT = 500


@dataclass(frozen=True)
class Claim:
    """A statement about pairs of cells: left < factor x right, left > factor x right, or both agree.

    Args:
        text: The claim in words.
        left: Row and column; `EVERY` for all rows (or columns), paired with the same one on the right.
        relation: `<`, `>` or `agree`.
        right: Row and column.
        factor: Factor of the right side.
    """

    text: str
    left: Position
    relation: Relation
    right: Position
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.relation not in get_args(Relation):
            expected = get_args(Relation)
            raise MeasureError("unknown relation", where=self.text, expected=expected, got=repr(self.relation))
        if not isinstance(self.text, str) or not 0 < len(self.text) <= _MAX_TEXT:
            raise MeasureError("invalid text of a claim", expected=f"1 to {_MAX_TEXT} characters", got=self.text)
        wildcards = [[name == EVERY for name in position] for position in (self.left, self.right)]
        if wildcards[0] != wildcards[1]:
            got = f"{self.left}, {self.right}"
            raise MeasureError("a claim has `every` on both sides or on neither", where=self.text, got=got)
        check_positive(self.factor, self.text)

    def pairs(self, rows: tuple[str, ...], columns: tuple[str, ...]) -> Iterator[tuple[Position, Position]]:
        """Yield the pairs of cells that are compared.

        Raises:
            MeasureError: The claim names an unknown row or column.
        """
        for position in (self.left, self.right):
            for name, names in zip(position, (rows, columns), strict=True):
                if name != EVERY and name not in names:
                    what = "a claim names an unknown row or column"
                    raise MeasureError(what, where=self.text, expected=names, got=repr(name))
        for row in rows if self.left[0] == EVERY else [None]:
            for column in columns if self.left[1] == EVERY else [None]:
                yield _substitute(self.left, row, column), _substitute(self.right, row, column)

    def evaluate(self, cells: Mapping[Position, Cell], rows: tuple[str, ...], columns: tuple[str, ...]) -> Verdict:
        """Evaluate the claim from the cells that are filled.

        It holds if the whole confidence interval of the ratio satisfies it, fails if none of it does, and is open if
        the interval contains the threshold.
        """
        pairs = [self._evaluate_pair(cells, left, right) for left, right in self.pairs(rows, columns)]
        states: set[State] = {state for state, _ in pairs}
        worst = min(states, key=STATES.index)
        return Verdict(self.text, worst, tuple(reason for state, reason in pairs if state == worst))

    def _evaluate_pair(self, cells: Mapping[Position, Cell], left: Position, right: Position) -> tuple[State, str]:
        where = f"{_name(left)} against {_name(right)}"
        if left not in cells or right not in cells:
            missing = " and ".join(_name(position) for position in (left, right) if position not in cells)
            return "missing", f"{missing} not measured yet"
        if self.relation == "agree":
            return _agreement(cells[left], cells[right], where)
        measured = ratio(cells[left], cells[right], where)
        reason = f"{where}: ratio {measured}, claimed {self.relation} {self.factor:g}"
        low, high, factor = measured.low, measured.high, self.factor
        if self.relation == "<":
            holds, undecided = high < factor, low < factor
        else:
            holds, undecided = low > factor, high > factor
        if holds:
            return "holds", reason
        if undecided:
            return "open", f"{reason}; measure more rounds, on a quieter machine"
        return "fails", reason

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data."""
        return asdict(self) | {"left": list(self.left), "right": list(self.right)}

    @classmethod
    def from_dict(cls, data: Any, where: str = "claim") -> Claim:
        """Parse the result of `to_dict`.

        Raises:
            MeasureError: The data are invalid.
        """
        data = check_keys(data, {"text", "left", "relation", "right", "factor"}, where)
        left, right = (_parse_position(data[side], where) for side in ("left", "right"))
        if not all(isinstance(data[name], str) for name in ("text", "relation")):
            raise MeasureError("a claim has a text and a relation", where=where, got=repr(data["relation"])[:50])
        return cls(data["text"], left, data["relation"], right, check_positive(data["factor"], where))


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Args:
        text: The claim's text.
        state: `holds`, `fails`, `open` (the intervals do not decide it) or `missing` (cells are empty).
        reasons: One for each pair of cells in that state.
    """

    text: str
    state: State
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.state == "holds"

    def __str__(self) -> str:
        verdict = f"{self.state}: {self.text}"
        return verdict if self.state == "holds" else "\n".join([verdict, *(f"  {reason}" for reason in self.reasons)])


def faster(column: str, than: str, text: str | None = None) -> Claim:
    """Return the claim that in every row `column` is faster than `than`."""
    return Claim(text or f"{column} is faster than {than} in every row", (EVERY, than), ">", (EVERY, column))


def agree(column: str, other: str, text: str | None = None) -> Claim:
    """Return the claim that in every row the results of two columns were compared when measured, and agreed."""
    text = text or f"{column} and {other} compute the same in every row"
    return Claim(text, (EVERY, column), "agree", (EVERY, other))


def ratio(cell: Cell, other: Cell, where: str = "cells") -> Ratio:
    """Return the ratio of two cells of the same kind.

    Raises:
        MeasureError: One is a measurement, the other a count.
    """
    if type(cell) is not type(other):
        raise MeasureError("a measurement and a count have no ratio", where=where)
    return cell.ratio(other)  # type: ignore[arg-type]


def _agreement(cell: Cell, other: Cell, where: str) -> tuple[State, str]:
    if isinstance(cell, Count) or isinstance(other, Count):
        return ("holds" if cell == other else "fails"), f"{where}: {cell} and {other}"
    if not (cell.run and cell.run == other.run):
        return "fails", f"{where}: not from the same comparison, so their results were never compared"
    if not (cell.agreed and other.agreed):
        return "fails", f"{where}: measured without comparing the results; leave check=False out"
    return "holds", f"{where}: compared in the same run"


def _parse_position(data: Any, where: str) -> Position:
    if isinstance(data, list) and len(data) == 2 and all(isinstance(name, str) for name in data):
        return data[0], data[1]
    raise MeasureError("invalid cell of a claim", where=where, expected="[row, column]", got=repr(data)[:50])


def _substitute(position: Position, row: str | None, column: str | None) -> Position:
    """Replace the wildcards of a cell."""
    return (position[0] if row is None else row), (position[1] if column is None else column)


def _name(position: Position) -> str:
    return f"{position[0]}/{position[1]}"
