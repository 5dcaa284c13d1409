"""The data of a loop nest: affine expressions, loops, accesses and guards.

Vocabulary: the *iteration space* is the set of all values of the loop variables; the *statement* adds one product to
one element of the output at each of its points; a *schedule* is the order in which the points are visited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mlhood.errors import NestError

ELEMENT_BYTES = 4
Item = TypeVar("Item")


@dataclass(frozen=True)
class Affine:
    """A linear combination of loop variables plus a constant, such as `2*oh + kh`: an index, or a guard's left side.

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


@dataclass(frozen=True)
class NestLoop:
    """A loop from 0 to below `extent`; a guard may end it earlier.

    Args:
        name: Its variable.
        extent: The largest trip count.
    """

    name: str
    extent: int


@dataclass(frozen=True)
class Access:
    """An element of an array: `x[n, c, 2*oh + kh, 2*ow + kw]`.

    Args:
        array: The array's name.
        shape: The array's shape, in elements of float32; row-major.
        index: One expression per axis.
    """

    array: str
    shape: tuple[int, ...]
    index: tuple[Affine, ...]

    @property
    def loops(self) -> frozenset[str]:
        """The loops that index the array."""
        return frozenset().union(*(axis.variables for axis in self.index))

    def substitute(self, values: Mapping[str, Affine | int]) -> Access:
        """Return the access with loop variables replaced by expressions or integers."""
        return replace(self, index=tuple(axis.substitute(values) for axis in self.index))

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Guard:
    """The condition that cuts off the last tile: `16*i_o + i_i < 60`. Coefficients are positive, variables start at 0.

    Args:
        expression: The left side.
        bound: The right side.
    """

    expression: Affine
    bound: int

    def __str__(self) -> str:
        return f"{self.expression} < {self.bound}"


def find(kind: str, items: Mapping[str, Item], name: str) -> Item:
    """Return the item of this name.

    Raises:
        NestError: If there is none.
    """
    if name not in items:
        raise NestError(f"unknown {kind}", expected=f"one of {', '.join(items)}", got=name)
    return items[name]


@dataclass(frozen=True)
class LoopNest:
    """Loops around one statement, `output += input * input ...`, in float32.

    Args:
        loops: From the outermost to the innermost.
        output: What the statement accumulates into; it starts with zeros.
        inputs: The factors, each array once.
        domain: The loops as first written: name and extent.
        origin: The value of each of these as an expression of the current loops.
        guards: The conditions of all partial tiles.
    """

    loops: tuple[NestLoop, ...]
    output: Access
    inputs: tuple[Access, ...]
    domain: tuple[tuple[str, int], ...]
    origin: tuple[Affine, ...]
    guards: tuple[Guard, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The loops' names, from the outermost to the innermost."""
        return tuple(loop.name for loop in self.loops)

    @property
    def extents(self) -> dict[str, int]:
        """The largest trip count of each loop."""
        return {loop.name: loop.extent for loop in self.loops}

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The inputs and the output, in this order."""
        return (*self.inputs, self.output)

    def loop(self, name: str) -> NestLoop:
        """Return a loop.

        Raises:
            NestError: If there is none of that name.
        """
        return find("loop", {loop.name: loop for loop in self.loops}, name)


AnyNest = TypeVar("AnyNest", bound=LoopNest)  # a step returns the type of nest that it was given
