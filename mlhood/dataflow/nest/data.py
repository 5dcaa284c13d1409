"""What a loop nest is made of: loops, accesses, guards and packed buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from mlhood.dataflow.nest.affine import Affine, variable

BYTES = 4  # of an element
Kind = Literal["serial", "unrolled", "vectorised", "bound"]


@dataclass(frozen=True)
class Loop:
    """A loop from 0 to below `extent`; a guard may end it earlier.

    Args:
        name: Its variable.
        extent: How often it runs at most.
        kind: `serial`; `unrolled`: written out; `vectorised`: one instruction for many; `bound`: in a microkernel.
    """

    name: str
    extent: int
    kind: Kind = "serial"


@dataclass(frozen=True)
class Access:
    """An element of an array: `x[n, c, 2*oh + kh, 2*ow + kw]`.

    Args:
        array: The array's name.
        shape: The array's shape, in elements of float32; row-major.
        index: One expression for each axis.
    """

    array: str
    shape: tuple[int, ...]
    index: tuple[Affine, ...]

    @property
    def loops(self) -> frozenset[str]:
        """The variables that say which element it is: the array is indexed by these loops."""
        return frozenset().union(*(one.loops for one in self.index))

    @property
    def offset(self) -> Affine:
        """Which element of the array it is, counted row by row."""
        total = Affine()
        for one, size in zip(self.index, self.shape, strict=True):
            total = total * size + one
        return total

    def put(self, name: str, value: Affine) -> Access:
        """Return the access with a variable replaced."""
        return replace(self, index=tuple(one.put(name, value) for one in self.index))

    def fixed(self, values: dict[str, int]) -> Access:
        """Return the access with the variables that have a value replaced by it."""
        return replace(self, index=tuple(one.fixed(values) for one in self.index))

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Guard:
    """What ends the last tile early: `16*i_o + i_i < 60`. Coefficients are positive, variables start at 0."""

    sum: Affine
    bound: int

    def __str__(self) -> str:
        return f"{self.sum} < {self.bound}"


@dataclass(frozen=True)
class Pack:
    """A copy of what the loops from some depth on read from an array, in the order in which they read it.

    Args:
        array: The array.
        depth: How many loops are outside the copying.
        loops: The axes of the buffer: loops further inside that index the array.
        shape: Their extents.
    """

    array: str
    depth: int
    loops: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def buffer(self) -> Access:
        """The access to the buffer."""
        return Access(packed_name(self.array), self.shape, tuple(variable(name) for name in self.loops))

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return math.prod(self.shape)


def packed_name(array: str) -> str:
    """Return what the packed copy of an array is called."""
    return f"{array}_packed"


@dataclass(frozen=True)
class Bound:
    """The innermost loops, run by a microkernel.

    Args:
        depth: How many loops are outside it.
        sums: The loops that it sums over.
        rows: The loop over the rows of its tile.
        columns: The loop over the columns of its tile, neighbours in memory.
        a: The array that gives a number a row.
        b: The array that gives a vector.
    """

    depth: int
    sums: tuple[str, ...]
    rows: str
    columns: str
    a: str
    b: str
