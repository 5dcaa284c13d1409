"""Memory traffic of a nest: what it reads and writes, and what a memory that holds its tiles must fetch.

A *level* is a memory inside a loop. It holds what one iteration of that loop touches of each array, the array's *tile*,
and fetches the tile when it changes: after each iteration of an outer loop that indexes the array. Inside of such
loops, while only others advance, the tile is *stationary*. The first level, outside all loops, holds everything; the
last, inside all loops, is the register file. Timeloop and MAESTRO count a mapping's
traffic in the same way (Parashar et al., ISPASS 2019; Kwon et al., MICRO 2019).

Loops that no guard and no index connects are independent, so the iteration space is the product of such groups: one is
a split dimension, or a convolution's row and its kernel's row. A count therefore enumerates the groups one by one, and
takes as many steps as they have points in sum, not in product.

A guard `16*i_o + i_i < 60` need not be tested in the body. All coefficients are positive and every variable starts at
0, so the guard bounds each of its loops by an expression of the loops around it: `i_i < min(16, 60 - 16*i_o)` here, or
with the loops interchanged `i_o < (60 - i_i + 15) // 16`. No iteration is empty, and every point is visited.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.dataflow.nest.loop_nest import ELEMENT_BYTES, Access, Affine, LoopNest, find
from mlhood.errors import NestError

if TYPE_CHECKING:
    import pandas as pd

OUTSIDE = "(all)"
MAX_VISITS = 1 << 20
MAX_POINTS = 1 << 22  # of one group


@dataclass(frozen=True)
class NestLevel:
    """What a memory inside a loop holds and transfers, in elements.

    Args:
        inside: The loop; `(all)` for the memory outside all loops.
        tile: What it holds of each array, at most.
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
        writes: By array.
        levels: From the outermost to the innermost.
    """

    points: int
    reads: dict[str, int]
    writes: dict[str, int]
    levels: tuple[NestLevel, ...]

    def level(self, inside: str) -> NestLevel:
        """Return the level inside a loop; `(all)` for the one outside all loops.

        Raises:
            NestError: If there is none.
        """
        return find("level", {level.inside: level for level in self.levels}, inside)

    def reuse(self, array: str, inside: str) -> float:
        """Return the number of reads per element that a level fetches.

        Raises:
            NestError: If there is no such array or level.
        """
        return find("array", self.reads, array) / self.level(inside).fetched[array]

    def table(self) -> pd.DataFrame:
        """Return a row for each level and array."""
        import pandas as pd

        return pd.DataFrame(self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "level inside": level.inside,
                "array": array,
                "tile": level.tile[array],
                "fetched": level.fetched[array],
                "written": level.written[array],
                "reuse": self.reuse(array, level.inside),
            }
            for level in self.levels
            for array in level.tile
        ]

    def __str__(self) -> str:
        lines = [f"{self.points:,} multiply-adds"]
        lines += [f"{array}: {self.reads[array]:,} read, {self.writes[array]:,} written" for array in self.reads]
        lines.append(f"{'level inside':14}{'array':12}{'tile':>14}{'fetched':>16}{'written':>16}{'reuse':>12}")
        for row in self._rows():
            numbers = f"{row['tile']:14,}{row['fetched']:16,}{row['written']:16,}{row['reuse']:12,.1f}"
            lines.append(f"{row['level inside']:14}{row['array']:12}{numbers}")
        return "\n".join(lines)


def count(nest: LoopNest) -> AccessCounts:
    """Count reads and writes exactly, and what a memory at each level must fetch."""
    points = count_points(nest, nest.names)
    reads = {access.array: points for access in nest.accesses}
    writes = dict.fromkeys(reads, 0) | {nest.output.array: points}
    levels = tuple(_level(nest, depth) for depth in range(len(nest.loops) + 1))
    return AccessCounts(points, reads, writes, levels)


def _level(nest: LoopNest, depth: int) -> NestLevel:
    outside = nest.names[:depth]
    tile, fetched = {}, {}
    for access in nest.accesses:
        # the first tile is always full
        tile[access.array] = count_distinct(nest, (), access.substitute(dict.fromkeys(outside, 0)).index)
        changing = outside[: _innermost_index(nest, access, depth)]
        fetched[access.array] = count_distinct(nest, changing, access.index)
    written = dict.fromkeys(fetched, 0) | {nest.output.array: fetched[nest.output.array]}
    return NestLevel(outside[-1] if depth else OUTSIDE, tile, fetched, written)


def _innermost_index(nest: LoopNest, access: Access, depth: int) -> int:
    """Return the position behind the innermost of the outer loops that indexes the array: it changes the tile."""
    outside = enumerate(nest.names[:depth], start=1)
    return max((i for i, name in outside if name in access.loops and nest.extents[name] > 1), default=0)


# -- the iteration space: trip counts, the points in schedule order, and how many points and indices


def trip_count(nest: LoopNest, name: str, outside: Collection[str]) -> str:
    """Return a loop's trip count in Python: the minimum of a constant and of expressions of the loops around it.

    Args:
        nest: The nest.
        name: The loop.
        outside: The loops around it, whose values are known.
    """
    constant, texts, around = nest.extents[name], [], frozenset(outside)
    for guard in nest.guards:
        factor, outer = guard.expression.coefficient(name), guard.expression.restrict(around)
        largest = outer.bounds(nest.extents)[1] + factor * (nest.extents[name] - 1)
        if not factor or largest < guard.bound:
            continue
        dividend = Affine(constant=guard.bound + factor - 1) + outer * -1
        if outer.terms:
            texts.append(str(dividend) if factor == 1 else f"({dividend}) // {factor}")
        else:
            constant = min(constant, dividend.constant // factor)
    return f"min({', '.join([str(constant), *texts])})" if texts else str(constant)


def visits(nest: LoopNest) -> np.ndarray:
    """Return the points of the iteration space in schedule order: int64 [points, original loops].

    Raises:
        NestError: If there are too many to list: this is for drawing and checking.
    """
    size = math.prod(nest.extents.values())
    if size > MAX_VISITS:
        expected = f"at most {MAX_VISITS:,}"
        raise NestError("too many points to list", expected=expected, got=f"{size:,}", todo="take a smaller case")
    values = _points(nest, nest.names)
    return np.stack([expression.evaluate(values) for expression in nest.origin], axis=1)


def count_points(nest: LoopNest, names: Iterable[str]) -> int:
    """Return how many combinations of values some loops take."""
    return count_distinct(nest, names, ())


def count_distinct(nest: LoopNest, names: Iterable[str], index: Sequence[Affine]) -> int:
    """Return how many distinct combinations there are of some loops' values and an index's values.

    Where the loops are those outside a tile, and the index is an array's, this is the tile's size, summed over all
    iterations of the loops outside.
    """
    keys = frozenset(names)
    total = 1
    for group in _groups(nest, keys.union(*(axis.variables for axis in index)), index):
        values = _points(nest, group)
        columns = [values[name] for name in group if name in keys]
        terms = [axis.restrict(frozenset(group)) for axis in index]
        total *= _distinct_rows(columns + [axis.evaluate(values) for axis in terms if axis.terms])
    return total


def _groups(nest: LoopNest, names: frozenset[str], index: Sequence[Affine]) -> list[list[str]]:
    """Return the connected components of some loops; a guard or an index connects its variables."""
    groups = [{name} for name in nest.names if name in names]
    guards = (guard.expression.variables & names for guard in nest.guards)
    for connected in (*guards, *(axis.variables for axis in index)):
        touched = [group for group in groups if group & connected]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    return [[name for name in nest.names if name in group] for group in groups]


def _points(nest: LoopNest, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the combinations of values that some loops take, in the order in which these loops run."""
    extents = [nest.extents[name] for name in names]
    size = math.prod(extents)
    if size > MAX_POINTS:
        what, expected = "too many points to count these loops jointly", f"at most {MAX_POINTS:,} points"
        raise NestError(what, where=", ".join(names), expected=expected, got=f"{size:,}")
    values = dict(zip(names, np.indices(extents).reshape(len(extents), -1), strict=True))
    inside = np.ones(size, bool)
    for guard in nest.guards:
        inside &= guard.expression.restrict(frozenset(names)).evaluate(values) < guard.bound
    return {name: value[inside] for name, value in values.items()}


def _distinct_rows(columns: Sequence[np.ndarray]) -> int:
    """Return the number of distinct rows; numbering them column by column is faster than np.unique over an axis."""
    code = np.zeros(columns[0].shape, np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        _, code = np.unique(code * (high - low + 1) + (column - low), return_inverse=True)
    return int(code.max()) + 1
