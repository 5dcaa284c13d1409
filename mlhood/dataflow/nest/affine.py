"""Affine expressions of loop variables, `2*oh + kh`: what indexes an array, and what a guard compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Affine:
    """A sum of loop variables, each times a number, and of a constant.

    Args:
        terms: Variable and coefficient; no variable twice, no coefficient zero.
        constant: What is added to them.
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @property
    def loops(self) -> frozenset[str]:
        """The variables."""
        return frozenset(name for name, _ in self.terms)

    def of(self, name: str) -> int:
        """Return a variable's coefficient; 0 if it does not appear."""
        return dict(self.terms).get(name, 0)

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.terms)
        for name, factor in other.terms:
            total[name] = total.get(name, 0) + factor
        terms = tuple((name, factor) for name, factor in total.items() if factor)
        return Affine(terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple((name, c * factor) for name, c in self.terms if factor), self.constant * factor)

    def put(self, name: str, value: Affine) -> Affine:
        """Return the expression with a variable replaced."""
        parts = [value * factor if one == name else Affine(((one, factor),)) for one, factor in self.terms]
        return sum(parts, Affine(constant=self.constant))

    def fixed(self, values: Mapping[str, int]) -> Affine:
        """Return the expression with the variables that have a value replaced by it."""
        found = self
        for name in self.loops & values.keys():
            found = found.put(name, Affine(constant=values[name]))
        return found

    def only(self, names: frozenset[str]) -> Affine:
        """Return the part that is made of some variables, without the constant."""
        return Affine(tuple((name, factor) for name, factor in self.terms if name in names))

    def at(self, values: Mapping[str, Any]) -> Any:
        """Return the value where every variable has one; numbers or NumPy arrays."""
        return sum((factor * values[name] for name, factor in self.terms), start=self.constant)

    def limits(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Return the smallest and the largest value while each variable runs from 0 to below its extent."""
        ends = [factor * (extents[name] - 1) for name, factor in self.terms]
        return self.constant + sum(min(0, end) for end in ends), self.constant + sum(max(0, end) for end in ends)

    def __str__(self) -> str:
        pieces = [(factor, name if abs(factor) == 1 else f"{abs(factor)}*{name}") for name, factor in self.terms]
        if self.constant or not pieces:
            pieces.append((self.constant, str(abs(self.constant))))
        pieces.sort(key=lambda piece: piece[0] < 0)  # no sign at the front where that can be had
        first = "-" if pieces[0][0] < 0 else ""
        rest = "".join(f" {'-' if factor < 0 else '+'} {text}" for factor, text in pieces[1:])
        return first + pieces[0][1] + rest


def variable(name: str) -> Affine:
    """Return the expression that is one variable."""
    return Affine(((name, 1),))
