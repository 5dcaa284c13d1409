"""Affine expressions of loop variables, such as `2*oh + kh`: array indices and the left sides of guards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Affine:
    """A linear combination of loop variables plus a constant.

    Args:
        terms: Pairs of variable and coefficient; each variable at most once, no coefficient zero.
        constant: The constant term.
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @property
    def variables(self) -> frozenset[str]:
        """The variables with a coefficient other than zero."""
        return frozenset(name for name, _ in self.terms)

    def coefficient(self, name: str) -> int:
        """Return a variable's coefficient; 0 if it does not occur."""
        return dict(self.terms).get(name, 0)

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.terms)
        for name, factor in other.terms:
            total[name] = total.get(name, 0) + factor
        terms = tuple((name, factor) for name, factor in total.items() if factor)
        return Affine(terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple((name, c * factor) for name, c in self.terms if factor), self.constant * factor)

    def substitute(self, values: Mapping[str, Affine | int]) -> Affine:
        """Return the expression with variables replaced by expressions or integers."""
        total = Affine(constant=self.constant)
        for name, factor in self.terms:
            value = values.get(name, variable(name))
            total += (value if isinstance(value, Affine) else Affine(constant=value)) * factor
        return total

    def restrict(self, names: frozenset[str]) -> Affine:
        """Return the terms of some variables, without the constant."""
        return Affine(tuple((name, factor) for name, factor in self.terms if name in names))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the value where every variable has one: numbers or NumPy arrays."""
        return sum((factor * values[name] for name, factor in self.terms), start=self.constant)

    def bounds(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Return the minimum and the maximum over 0 <= variable < extent."""
        ends = [factor * (extents[name] - 1) for name, factor in self.terms]
        return self.constant + sum(min(0, end) for end in ends), self.constant + sum(max(0, end) for end in ends)

    def __str__(self) -> str:
        terms = [(factor, name if abs(factor) == 1 else f"{abs(factor)}*{name}") for name, factor in self.terms]
        if self.constant or not terms:
            terms.append((self.constant, str(abs(self.constant))))
        terms.sort(key=lambda term: term[0] < 0)  # a positive term first, which needs no sign
        sign = "-" if terms[0][0] < 0 else ""
        return sign + terms[0][1] + "".join(f" {'-' if factor < 0 else '+'} {text}" for factor, text in terms[1:])


def variable(name: str) -> Affine:
    """Return the expression that is a single variable."""
    return Affine(((name, 1),))
