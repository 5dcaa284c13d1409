"""Loop nests as values: loops around one statement that adds a product to an element of an output.

The steps of a schedule, split, tile and reorder, return a new nest (Ragan-Kelley et al., Halide, PLDI 2013; Chen et
al., TVM, OSDI 2018; Ikarashi et al., Exo, PLDI 2022). They preserve the result up to float32 rounding: each point adds
its product to an element that no input shares, so the points may be visited in any order, each exactly once.

A *level* is a memory inside a loop. It holds what one iteration of that loop touches of each array, the array's *tile*,
and fetches the tile when it changes: after each iteration of an outer loop that indexes the array. Inside of such
loops, while only others advance, the tile is *stationary*. The first level, outside all loops, holds everything; the
last, inside all loops, is the register file. Timeloop and MAESTRO count a mapping's traffic in the same way (Parashar
et al., ISPASS 2019; Kwon et al., MICRO 2019).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from mlhood.errors import NestError

ELEMENT_BYTES = 4
OUTSIDE = "(all)"
MAX_VISITS = 1 << 20
_ELEMENT = re.compile(r"(\w+)\[(\w+(?:, *\w+)*)\]")
_FORM = "C[i, j] += A[i, k] * B[k, j]"


@dataclass(frozen=True)
class NestLoop:
    """A loop from 0 to below `extent`.

    Args:
        name: Its variable.
        extent: The trip count.
        origin: The loop of the statement that it is a part of.
        stride: What an iteration adds to the value of that loop.
    """

    name: str
    extent: int
    origin: str
    stride: int = 1


@dataclass(frozen=True)
class Access:
    """An element of an array, such as `A[i, k]`: the array's name, and a loop of the statement for each axis."""

    array: str
    index: tuple[str, ...]


@dataclass(frozen=True)
class NestLevel:
    """What a memory inside a loop holds and transfers, in elements.

    Args:
        inside: The loop; `(all)` for the memory outside all loops.
        tile: What it holds of each array.
        fetched: Total fetched, by array.
        written: Total written back, by array: output tiles.
    """

    inside: str
    tile: dict[str, int]
    fetched: dict[str, int]
    written: dict[str, int]

    @property
    def bytes(self) -> int:
        """Bytes of all tiles; an LRU cache needs up to twice that, as it still holds the previous ones."""
        return ELEMENT_BYTES * sum(self.tile.values())

    @property
    def traffic(self) -> int:
        """Total bytes fetched and written back."""
        return ELEMENT_BYTES * (sum(self.fetched.values()) + sum(self.written.values()))


@dataclass(frozen=True)
class AccessCounts:
    """A nest's accesses in elements; the output's initial zeros are read like any other element.

    Args:
        points: Points of the iteration space: multiply-adds.
        reads: By array.
        levels: From the outermost to the innermost.
    """

    points: int
    reads: dict[str, int]
    levels: tuple[NestLevel, ...]

    def level(self, inside: str) -> NestLevel:
        """Return the level inside a loop; `(all)` for the one outside all loops."""
        return next(level for level in self.levels if level.inside == inside)

    def reuse(self, array: str, inside: str) -> float:
        """Return the number of reads per element that a level fetches."""
        return self.reads[array] / self.level(inside).fetched[array]


@dataclass(frozen=True)
class Nest:
    """An immutable loop nest that prints and counts; a step of its schedule returns a new one.

    Args:
        loops: From the outermost to the innermost.
        output: What the statement accumulates into; it starts with zeros.
        inputs: The factors, each array once.
        domain: The loops of the statement, and their extents.
    """

    loops: tuple[NestLoop, ...]
    output: Access
    inputs: tuple[Access, ...]
    domain: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The loops' names, from the outermost to the innermost."""
        return tuple(loop.name for loop in self.loops)

    @property
    def extents(self) -> dict[str, int]:
        """The trip count of each loop."""
        return {loop.name: loop.extent for loop in self.loops}

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The inputs and the output, in this order."""
        return (*self.inputs, self.output)

    def __str__(self) -> str:
        """Return the nest as Python: a comment that declares the arrays, then the loops and the statement."""
        arrays = ", ".join(f"{access.array}{self.shape(access)}" for access in self.inputs)
        lines = [f"# {self.output.array}{self.shape(self.output)} from {arrays}"]
        lines += [f"{'  ' * depth}for {loop.name} in range({loop.extent}):" for depth, loop in enumerate(self.loops)]
        statement = f"{self._text(self.output)} += {' * '.join(map(self._text, self.inputs))}"
        return "\n".join([*lines, "  " * len(self.loops) + statement])

    def shape(self, access: Access) -> list[int]:
        """Return the shape of an array, row-major."""
        return [dict(self.domain)[name] for name in access.index]

    def _text(self, access: Access) -> str:
        axes = []
        for name in access.index:
            parts = sorted((loop for loop in self.loops if loop.origin == name), key=lambda loop: -loop.stride)
            axes.append(" + ".join(loop.name if loop.stride == 1 else f"{loop.stride}*{loop.name}" for loop in parts))
        return f"{access.array}[{', '.join(axes)}]"

    def split(self, loop: str, factor: int) -> Nest:
        """Split a loop in two (strip-mining): `loop` becomes `factor * loop_o + loop_i`.

        Raises:
            NestError: There is no such loop, or the factor does not divide its extent.
        """
        self._check(loop)
        position = self.names.index(loop)
        old = self.loops[position]
        if not isinstance(factor, int) or factor < 1 or old.extent % factor:
            divisors = ", ".join(str(n) for n in range(1, old.extent + 1) if old.extent % n == 0)
            expected = f"a divisor of its extent: {divisors}"
            raise NestError("invalid split factor", where=f"loop {loop}", expected=expected, got=repr(factor))
        outer = replace(old, name=f"{loop}_o", extent=old.extent // factor, stride=old.stride * factor)
        inner = replace(old, name=f"{loop}_i", extent=factor)
        return replace(self, loops=(*self.loops[:position], outer, inner, *self.loops[position + 1 :]))

    def tile(self, **factors: int) -> Nest:
        """Split loops and move the inner ones together: `tile(i=16, j=16)` visits tiles of 16 x 16.

        The outer loops stay at the positions of the original ones; the inner ones follow the last of them, in nest
        order.

        Args:
            factors: Loops, and the tile's extent along each.

        Raises:
            NestError: There is no such loop, or the factor does not divide its extent.
        """
        nest, tiled = self, [name for name in self.names if name in factors]
        for name, factor in factors.items():
            nest = nest.split(name, factor)
        if not tiled:
            return nest
        inner = [f"{name}_i" for name in tiled]
        others = [name for name in nest.names if name not in inner]
        last = others.index(f"{tiled[-1]}_o") + 1
        return nest.reorder(*others[:last], *inner, *others[last:])

    def reorder(self, *names: str) -> Nest:
        """Permute loops, listed from the outermost to the innermost; loops that are not listed keep their positions.

        Raises:
            NestError: There is no such loop, or one is listed twice.
        """
        self._check(*names)
        if len(set(names)) != len(names):
            raise NestError("a loop is listed twice", got=", ".join(names))
        moved = iter(names)
        order = [next(moved) if name in names else name for name in self.names]
        return replace(self, loops=tuple(self.loops[self.names.index(name)] for name in order))

    def _check(self, *names: str) -> None:
        for name in names:
            if name not in self.names:
                raise NestError("unknown loop", expected=f"one of {', '.join(self.names)}", got=name)

    def visits(self) -> np.ndarray:
        """Return the points of the iteration space in schedule order: int64 [points, loops of the statement].

        Raises:
            NestError: There are too many to list: this is for drawing and checking.
        """
        extents = [loop.extent for loop in self.loops]
        if math.prod(extents) > MAX_VISITS:
            expected, got = f"at most {MAX_VISITS:,}", f"{math.prod(extents):,}"
            raise NestError("too many points to list", expected=expected, got=got, todo="take a smaller case")
        values = np.indices(extents).reshape(len(extents), -1)
        strides = [[loop.stride * (loop.origin == name) for loop in self.loops] for name, _ in self.domain]
        return (np.array(strides) @ values).T

    def count(self) -> AccessCounts:
        """Count reads exactly, and what a memory at each level must fetch."""
        points = _points(self.loops)
        reads = {access.array: points for access in self.accesses}
        return AccessCounts(points, reads, tuple(self._level(depth) for depth in range(len(self.loops) + 1)))

    def _level(self, depth: int) -> NestLevel:
        outside, inside = self.loops[:depth], self.loops[depth:]
        tile, fetched = {}, {}
        for access in self.accesses:
            tile[access.array] = _points(loop for loop in inside if loop.origin in access.index)
            # the tile changes with the innermost of the outer loops that index the array, and so with those around it
            changing = [i for i, loop in enumerate(outside, 1) if loop.origin in access.index and loop.extent > 1]
            fetched[access.array] = tile[access.array] * _points(outside[: max(changing, default=0)])
        written = dict.fromkeys(fetched, 0) | {self.output.array: fetched[self.output.array]}
        return NestLevel(outside[-1].name if depth else OUTSIDE, tile, fetched, written)


def _points(loops: Iterable[NestLoop]) -> int:
    """Return how many combinations of values loops take."""
    return math.prod(loop.extent for loop in loops)


def gemm(m: int, n: int, k: int) -> Nest:
    """Return the matrix product C[M, N] += A[M, K] * B[K, N], as the loops i, j, k.

    Raises:
        NestError: An extent is not a positive integer.
    """
    return nest(_FORM, i=m, j=n, k=k)


def nest(statement: str, **extents: int) -> Nest:
    """Return the nest of a statement, with loops in the order of their extents, the outermost first.

    Args:
        statement: An output, `+=`, and a product of inputs, each array once, and indexed by loops.
        extents: The extent of each loop.

    Raises:
        NestError: The statement has another form, its indices are not the loops, or an extent is no positive integer.
    """
    output, _, factors = statement.partition("+=")
    matches = [_ELEMENT.fullmatch(text.strip()) for text in (output, *factors.split("*"))]
    accesses = [Access(match[1], tuple(re.split(", *", match[2]))) for match in matches if match]
    if len(accesses) < max(len(matches), 2) or len({access.array for access in accesses}) < len(accesses):
        raise NestError(
            "the statement must add a product of different arrays to another", expected=_FORM, got=statement
        )
    if (used := {name for access in accesses for name in access.index}) != extents.keys():
        raise NestError("the indices are not the loops", expected=", ".join(extents), got=", ".join(sorted(used)))
    for name, extent in extents.items():
        if not isinstance(extent, int) or extent < 1:
            raise NestError("invalid extent", where=name, expected="a positive integer", got=repr(extent))
    loops = tuple(NestLoop(name, extent, name) for name, extent in extents.items())
    return Nest(loops, accesses[0], tuple(accesses[1:]), tuple(extents.items()))
