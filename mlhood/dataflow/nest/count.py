"""What a nest reads and writes, and what a memory that holds its tiles must fetch.

A *level* lies inside a loop: a memory that holds what one round of that loop touches of each array, the array's
*tile*, and fetches it when it changes. That is after each round of a loop that indexes the array: further in, where
loops do not index it, the tile stays (it is *stationary*). The first level, outside all loops, is a memory for
everything; the last, inside all but a vector's and a microkernel's, is made of registers. Timeloop and MAESTRO count a
mapping's traffic in the same way (Parashar et al., ISPASS 2019; Kwon et al., MICRO 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlhood.dataflow.nest.data import BYTES, Access, Pack
from mlhood.dataflow.nest.space import distinct, points
from mlhood.errors import NestError

if TYPE_CHECKING:
    import pandas as pd

    from mlhood.dataflow.nest.nest import Nest

OUTSIDE = "(all)"


@dataclass(frozen=True)
class Level:
    """What a memory inside a loop holds and moves, in elements.

    Args:
        inside: The loop; `(all)` for the memory outside all loops.
        tile: What it holds of each array, at most.
        fetched: What is brought in, in all.
        written: What is taken back, in all: output tiles.
    """

    inside: str
    tile: dict[str, int]
    fetched: dict[str, int]
    written: dict[str, int]

    @property
    def bytes(self) -> int:
        """What it must hold for all arrays; a cache needs up to twice that, as old tiles are still there."""
        return BYTES * sum(self.tile.values())

    @property
    def traffic(self) -> int:
        """Bytes that come and go, in all."""
        return BYTES * (sum(self.fetched.values()) + sum(self.written.values()))


@dataclass(frozen=True)
class Counts:
    """A nest's accesses, in elements, as it is written: zeros that the output starts with are read like all else.

    Args:
        points: Points of the iteration space: multiply-adds.
        reads: Of each array, packed copies included.
        writes: Likewise.
        levels: From the outermost to the innermost.
    """

    points: int
    reads: dict[str, int]
    writes: dict[str, int]
    levels: tuple[Level, ...]

    def level(self, inside: str) -> Level:
        """Return the level inside a loop; `(all)` for the one outside all loops.

        Raises:
            NestError: If there is none.
        """
        for level in self.levels:
            if level.inside == inside:
                return level
        names = ", ".join(level.inside for level in self.levels)
        raise NestError("there is no such level", expected=f"one of {names}", got=inside)

    def reuse(self, array: str, inside: str) -> float:
        """Return how often an element is read for each time that it is fetched; infinite if it never is.

        Raises:
            NestError: If there is no such array or level.
        """
        if array not in self.reads:
            raise NestError("there is no such array", expected=f"one of {', '.join(self.reads)}", got=array)
        fetched = self.level(inside).fetched[array]
        return self.reads[array] / fetched if fetched else float("inf")

    def table(self) -> pd.DataFrame:
        """Return a row for each level and array."""
        import pandas as pd

        return pd.DataFrame(self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {"level inside": level.inside, "array": array, "tile": level.tile[array], "fetched": level.fetched[array],
             "written": level.written[array], "reuse": self.reuse(array, level.inside)}
            for level in self.levels for array in level.tile
        ]  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.points:,} multiply-adds"]
        lines += [f"{array}: {self.reads[array]:,} read, {self.writes[array]:,} written" for array in self.reads]
        lines.append(f"{'level inside':14}{'array':12}{'tile':>14}{'fetched':>16}{'written':>16}{'reuse':>12}")
        for row in self._rows():
            numbers = f"{row['tile']:14,}{row['fetched']:16,}{row['written']:16,}{row['reuse']:12,.1f}"
            lines.append(f"{row['level inside']:14}{row['array']:12}{numbers}")
        return "\n".join(lines)


def count(nest: Nest) -> Counts:
    """Return a nest's counts."""
    reads, writes = {}, {}
    for access in nest.accesses:
        reads[access.array], writes[access.array] = _uses(nest, access), 0
    writes[nest.output.array] = reads[nest.output.array]
    for pack in nest.packs:
        buffer, copies = pack.buffer.array, _copies(nest, pack)
        reads[buffer], writes[buffer] = reads[pack.array], copies
        reads[pack.array] = copies
    levels = tuple(_level(nest, depth) for depth in range(nest.depth + 1))
    return Counts(points(nest, nest.names), reads, writes, levels)


def _uses(nest: Nest, access: Access) -> int:
    """Return how often the statement reads an array; a vector and a microkernel read each of their elements once."""
    held = frozenset(nest.names[nest.depth :]) - access.loops
    return points(nest, frozenset(nest.names) - held)


def _copies(nest: Nest, pack: Pack) -> int:
    return points(nest, (*nest.names[: pack.depth], *pack.loops))


def _level(nest: Nest, depth: int) -> Level:
    tile, fetched, written = {}, {}, {}
    for access in nest.accesses:
        tile[access.array], fetched[access.array] = _held(nest, access, depth)
        written[access.array] = fetched[access.array] if access is nest.output else 0
    for pack in nest.packs:
        buffer = pack.buffer.array
        tile[buffer], fetched[buffer] = _held_packed(nest, pack, depth)
        written[buffer] = 0
    return Level(nest.names[depth - 1] if depth else OUTSIDE, tile, fetched, written)


def _held(nest: Nest, access: Access, depth: int) -> tuple[int, int]:
    """Return an array's tile at a depth, and what is fetched of it."""
    pack = nest.packed(access.array)
    if pack and depth > pack.depth:
        return 0, _copies(nest, pack)  # it passes by on its way into the buffer, which lies further out
    outside = nest.names[:depth]
    return _tile(nest, access, outside), distinct(nest, outside[: _changes(nest, access, depth)], access.index)


def _held_packed(nest: Nest, pack: Pack, depth: int) -> tuple[int, int]:
    """Return the same of a packed copy: it is made inside memories further out, and nothing is fetched there."""
    outside = nest.names[:depth]
    if depth <= pack.depth:
        return _tile(nest, pack.buffer, outside), 0
    source = nest.input(pack.array)
    anew = max(_changes(nest, source, depth), pack.depth)
    return _tile(nest, pack.buffer, outside), distinct(nest, outside[:anew], pack.buffer.index)


def _tile(nest: Nest, access: Access, outside: tuple[str, ...]) -> int:
    """Return the size of the first tile, which no edge cuts off."""
    first = dict.fromkeys(outside, 0)
    return distinct(nest, (), access.fixed(first).index)


def _changes(nest: Nest, access: Access, depth: int) -> int:
    """Return how many of the loops outside must be gone through for a new tile: to the last that indexes the array."""
    moving = [at + 1 for at, name in enumerate(nest.names[:depth]) if name in access.loops and nest.extents[name] > 1]
    return max(moving, default=0)
