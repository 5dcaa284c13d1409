"""Memory traffic of a nest: what it reads and writes, and what a memory that holds its tiles must fetch.

A *level* is a memory inside a loop. It holds what one iteration of that loop touches of each array, the array's *tile*,
and fetches the tile when it changes: after each iteration of an outer loop that indexes the array. Inside of such
loops, while only others advance, the tile is *stationary*. The first level, outside all loops, holds everything; the
last, inside all loops, is the register file. Timeloop and MAESTRO count a mapping's
traffic in the same way (Parashar et al., ISPASS 2019; Kwon et al., MICRO 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlhood.dataflow.nest.loop_nest import ELEMENT_BYTES, Access, LoopNest, find
from mlhood.dataflow.nest.space import count_distinct, count_points

if TYPE_CHECKING:
    import pandas as pd

OUTSIDE = "(all)"


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
