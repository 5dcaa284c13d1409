"""What must hold between the cells of a table: said in words, as data, and judged from the cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mlhood.errors import MeasureError
from mlhood.measure.measurement import Count, Measurement, exactly, positive
from mlhood.measure.ratio import Ratio

EVERY = "*"
Cell = Measurement | Count
Place = tuple[str, str]
Relation = Literal["<", ">", "agree"]
State = Literal["fails", "missing", "open", "holds"]
# A claim about several pairs of cells is as good as the worst of them, in the order of `State`
STATES: tuple[State, ...] = get_args(State)
_RELATIONS = ("<", ">", "agree")
_LONGEST_TEXT = 500


@dataclass(frozen=True)
class Claim:
    """A statement about pairs of cells: left < factor x right, left > factor x right, or both agree.

    Args:
        text: In words.
        left: Row and column; `EVERY` for all rows (or columns), and then the same one on the right.
        relation: `<`, `>` or `agree`.
        right: Row and column.
        factor: By which the right side is multiplied.
    """

    text: str
    left: Place
    relation: Relation
    right: Place
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.relation not in _RELATIONS:
            raise MeasureError("this is no relation", where=self.text, expected=_RELATIONS, got=repr(self.relation))
        if not isinstance(self.text, str) or not 0 < len(self.text) <= _LONGEST_TEXT:
            raise MeasureError("a claim is said in words", expected=f"1 to {_LONGEST_TEXT} characters", got=self.text)
        stars = [[name == EVERY for name in place] for place in (self.left, self.right)]
        if stars[0] != stars[1]:
            raise MeasureError("a claim says `every` on both sides", where=self.text, got=f"{self.left}, {self.right}")
        positive(self.factor, self.text)

    def pairs(self, rows: tuple[str, ...], columns: tuple[str, ...]) -> Iterator[tuple[Place, Place]]:
        """Yield the places that are compared.

        Raises:
            MeasureError: The claim names a row or column that there is not.
        """
        for name, known in ((self.left, rows), (self.right, rows)):
            _check_known(self.text, name[0], known)
        for name in (self.left[1], self.right[1]):
            _check_known(self.text, name, columns)
        for row in rows if self.left[0] == EVERY else [None]:
            for column in columns if self.left[1] == EVERY else [None]:
                yield _filled(self.left, row, column), _filled(self.right, row, column)

    def judge(self, cells: Mapping[Place, Cell], rows: tuple[str, ...], columns: tuple[str, ...]) -> Verdict:
        """Judge the claim from the cells there are.

        It holds where the whole interval of the ratio does, fails where the whole interval does not, and is open
        where the interval goes across.
        """
        found = [self._judge_pair(cells, left, right) for left, right in self.pairs(rows, columns)]
        states: set[State] = {state for state, _ in found}
        state = min(states, key=STATES.index)
        reasons = tuple(reason for one, reason in found if one == state)
        return Verdict(self.text, state, reasons)

    def _judge_pair(self, cells: Mapping[Place, Cell], left: Place, right: Place) -> tuple[State, str]:
        where = f"{_name(left)} against {_name(right)}"
        if left not in cells or right not in cells:
            missing = " and ".join(_name(place) for place in (left, right) if place not in cells)
            return "missing", f"{missing} not measured yet"
        one, other = cells[left], cells[right]
        if self.relation == "agree":
            return _agreement(one, other, where)
        return self._compared(ratio(one, other, where), where)

    def _compared(self, found: Ratio, where: str) -> tuple[State, str]:
        reason = f"{where}: ratio {found}, claimed {self.relation} {self.factor:g}"
        low, high = found.low - self.factor, found.high - self.factor
        if self.relation == ">":
            low, high = -high, -low
        if high < 0:
            return "holds", reason
        return ("fails", reason) if low >= 0 else ("open", f"{reason}; measure more rounds, on a quieter machine")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "text": self.text,
            "left": list(self.left),
            "relation": self.relation,
            "right": list(self.right),
            "factor": self.factor,
        }

    @classmethod
    def from_dict(cls, data: Any, where: str = "claim") -> Claim:
        """Read what `to_dict` wrote.

        Raises:
            MeasureError: It is not what `to_dict` writes.
        """
        data = exactly(data, {"text", "left", "relation", "right", "factor"}, where)
        left, right = (_place(data[side], where) for side in ("left", "right"))
        if not all(isinstance(data[name], str) for name in ("text", "relation")):
            raise MeasureError("a claim has a text and a relation", where=where, got=repr(data["relation"])[:50])
        return cls(data["text"], left, data["relation"], right, positive(data["factor"], where))


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Args:
        text: The claim's.
        state: `holds`, `fails`, `open` (the intervals do not decide it) or `missing` (cells are empty).
        reasons: One for each pair of cells in that state.
    """

    text: str
    state: State
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.state == "holds"

    def __str__(self) -> str:
        told = f"{self.state}: {self.text}"
        return told if self.state == "holds" else "\n".join([told, *(f"  {reason}" for reason in self.reasons)])


def faster(column: str, than: str, text: str | None = None, by: float = 1.0) -> Claim:
    """Return the claim that in every row `column` takes less time than `than`, at least `by` times less."""
    amount = "" if by == 1 else f" by {by:g} times"
    return Claim(
        text or f"{column} is faster than {than}{amount} in every row", (EVERY, than), ">", (EVERY, column), by
    )


def agree(column: str, other: str, text: str | None = None) -> Claim:
    """Return the claim that in every row the results of two columns were compared when measured, and agreed."""
    return Claim(
        text or f"{column} and {other} compute the same in every row", (EVERY, column), "agree", (EVERY, other)
    )


def ratio(one: Cell, other: Cell, where: str = "cells") -> Ratio:
    """Return the ratio of two cells of the same kind.

    Raises:
        MeasureError: One is measured, the other counted.
    """
    if isinstance(one, Measurement) and isinstance(other, Measurement):
        return one.ratio(other)
    if isinstance(one, Count) and isinstance(other, Count):
        return one.ratio(other)
    raise MeasureError("a measurement and a count have no ratio", where=where)


def _agreement(one: Cell, other: Cell, where: str) -> tuple[State, str]:
    if isinstance(one, Count) or isinstance(other, Count):
        return ("holds" if one == other else "fails"), f"{where}: {one} and {other}"
    if not (one.run and one.run == other.run):
        return "fails", f"{where}: not from the same comparison, so their results were never compared"
    if not (one.agreed and other.agreed):
        return "fails", f"{where}: measured without comparing the results; leave check=False out"
    return "holds", f"{where}: compared in the same run"


def _place(data: Any, where: str) -> Place:
    if isinstance(data, list) and len(data) == 2 and all(isinstance(name, str) for name in data):
        return data[0], data[1]
    raise MeasureError("this is no place in a table", where=where, expected="[row, column]", got=repr(data)[:50])


def _check_known(text: str, name: str, known: tuple[str, ...]) -> None:
    if name != EVERY and name not in known:
        raise MeasureError("a claim names what is not in the table", where=text, expected=known, got=repr(name))


def _filled(place: Place, row: str | None, column: str | None) -> Place:
    return (place[0] if row is None else row), (place[1] if column is None else column)


def _name(place: Place) -> str:
    return f"{place[0]}/{place[1]}"
