"""The loop nest: an immutable value that prints, runs and counts, and whose methods return the next step's nest.

Vocabulary: the *iteration space* is the set of all values of the loop variables; the *statement* adds one product to
one element of the output at each of its points; a *schedule* is the order in which points are visited, made of steps
(Ragan-Kelley et al., Halide, PLDI 2013; Chen et al., TVM, OSDI 2018; Ikarashi et al., Exo, PLDI 2022).

Every step keeps what is computed. Each point adds its product to an element that no input shares, so that any order
gives the same sums, but for float32's rounding: points may be visited in any order, each exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlhood.dataflow.nest import binding, packing, polyhedral, program, schedule
from mlhood.dataflow.nest.affine import Affine
from mlhood.dataflow.nest.data import Access, Bound, Guard, Loop, Pack
from mlhood.errors import NestError

if TYPE_CHECKING:
    from mlhood.dataflow.nest.count import Counts
    from mlhood.dataflow.nest.stream import Chunk


@dataclass(frozen=True)
class Nest:
    """Loops around one statement, `output += input * input ...`, in float32.

    Args:
        loops: From the outermost to the innermost.
        output: What is added to; it starts with zeros.
        inputs: What is multiplied, each array once.
        domain: The loops as first written: name and extent.
        origin: The value of each of them, by the loops of today.
        guards: What ends loops early.
        packs: The packed copies.
        bound: The microkernel's part; None if there is none.
    """

    loops: tuple[Loop, ...]
    output: Access
    inputs: tuple[Access, ...]
    domain: tuple[tuple[str, int], ...]
    origin: tuple[Affine, ...]
    guards: tuple[Guard, ...] = ()
    packs: tuple[Pack, ...] = ()
    bound: Bound | None = None

    # -- what it is

    @property
    def names(self) -> tuple[str, ...]:
        """The loops' names, from the outermost to the innermost."""
        return tuple(loop.name for loop in self.loops)

    @property
    def extents(self) -> dict[str, int]:
        """How often each loop runs at most."""
        return {loop.name: loop.extent for loop in self.loops}

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The inputs and the output, in this order."""
        return (*self.inputs, self.output)

    @property
    def depth(self) -> int:
        """How many loops are outside the innermost thing: a statement, a vector or a microkernel."""
        vectorised = self.loops[-1].kind == "vectorised"
        return self.bound.depth if self.bound else len(self.loops) - vectorised

    @property
    def steps(self) -> tuple[int, ...]:
        """How far apart neighbours of the innermost loop are, in elements, in the output and in what is read."""
        read = (self.output, *(self.read(access) for access in self.inputs))
        return tuple(access.offset.of(self.names[-1]) for access in read)

    @property
    def arrays(self) -> dict[str, int]:
        """The arrays and their sizes in elements: inputs, output, packed copies."""
        plain = {access.array: math.prod(access.shape) for access in self.accesses}
        return plain | {pack.buffer.array: pack.size for pack in self.packs}

    def input(self, array: str) -> Access:
        """Return the access to an input.

        Raises:
            NestError: If there is no such input.
        """
        for access in self.inputs:
            if access.array == array:
                return access
        names = ", ".join(access.array for access in self.inputs)
        raise NestError("there is no such input", expected=f"one of {names}", got=array)

    def read(self, access: Access) -> Access:
        """Return what the statement reads in the place of an input: its packed copy if there is one."""
        pack = self.packed(access.array)
        return pack.buffer if pack else access

    def packed(self, array: str) -> Pack | None:
        """Return the packed copy of an array; None if it is read where it is."""
        return next((pack for pack in self.packs if pack.array == array), None)

    def __str__(self) -> str:
        return program.pseudo_code(self)

    def domain_set(self) -> str:
        """Return the iteration space in isl's notation: `{ S[i, j] : 0 <= i < 60 and 0 <= j < 8 }`."""
        return polyhedral.domain(self)

    def schedule_map(self) -> str:
        """Return when each point is visited, in isl's notation: `{ S[i] -> [i_o, i_i] : i = 16*i_o + i_i and ... }`."""
        return polyhedral.schedule(self)

    # -- its schedule

    def split(self, loop: str, factor: int, tail: schedule.Tail = "perfect", names: Sequence[str] = ()) -> Nest:
        """Make two loops of one: `loop` becomes `factor * loop_o + loop_i` (also known as strip-mining).

        Args:
            loop: The loop.
            factor: The inner loop's extent.
            tail: What to do where the factor does not divide: `perfect`: that is an error; `guard`: the last round of
                the inner loop is shorter.
            names: The two loops' names; `loop_o` and `loop_i` if not said.

        Raises:
            NestError: If there is no such loop, or no such split.
        """
        return schedule.split(self, loop, factor, tail, names)

    def tile(self, tail: schedule.Tail = "perfect", **factors: int) -> Nest:
        """Split loops, and take their inner halves together: `tile(i=16, j=16)` visits squares of 16 x 16.

        The outer halves stay where the loops were; the inner ones follow the last of them, in the order of the nest.

        Args:
            tail: As for `split`.
            factors: Loops, and the tile's extent along each.

        Raises:
            NestError: If there is no such loop, or no such tile.
        """
        return schedule.tile(self, factors, tail)

    def reorder(self, *names: str) -> Nest:
        """Put loops into another order, from the outermost to the innermost; loops not named keep their places.

        Raises:
            NestError: If there is no such loop, or the order is fixed: by packing, a vector or a microkernel.
        """
        return schedule.reorder(self, names)

    def unroll(self, loop: str) -> Nest:
        """Write a loop's rounds out one after another.

        Raises:
            NestError: If there is no such loop, its number of rounds changes, or that is too much code.
        """
        return schedule.unroll(self, loop)

    def vectorise(self, loop: str) -> Nest:
        """Run the innermost loop as one vector, or as many as the processor makes of it; a sum is added up at once.

        Where loops that index the output are unrolled inside the loop of the sum, its tile stays in registers.

        Raises:
            NestError: If the loop is not the innermost, has too many rounds or a changing number of them, or if its
                elements are no neighbours.
        """
        return schedule.vectorise(self, loop)

    def pack(self, array: str, at: str | None = None, order: Sequence[str] = ()) -> Nest:
        """Copy what the loops inside `at` read from an array into a buffer, where it lies in the order of reading.

        Of a convolution's input this copies each element as often as windows hold it: im2col, one tile at a time.

        Args:
            array: An input.
            at: The loop in whose every round it is copied; None: once, before all loops.
            order: The buffer's axes: the loops inside `at` that index the array; in the order of the nest if not said.

        Raises:
            NestError: If it is not an input, or the loops inside do not index it.
        """
        return packing.pack(self, array, at, order)

    def bind(self, rows: str, columns: str, *sums: str) -> Nest:
        """Run the innermost loops by the generated microkernel of `mlhood.kernels`, whose tile stays in registers.

        It computes tile[m, n] += a[k, m] * b[k, n]. The tile may not be cut off at an edge; columns are neighbours in
        the output, and b is packed with the columns innermost. Its loops may come in any order.

        Args:
            rows: The loop over the tile's rows.
            columns: The loop over its columns: a multiple of the machine's lanes.
            sums: The other innermost loops, which are summed over.

        Raises:
            NestError: If the loops or arrays do not fit; the message says what is missing.
        """
        return binding.bind(self, rows, columns, sums)

    # -- what it does

    def source(self) -> str:
        """Return the Python that `run` compiles with Numba."""
        from mlhood.dataflow.nest.running import source

        return source(self)

    def run(self, **arrays: np.ndarray) -> np.ndarray:
        """Run the nest as compiled code, on one thread.

        Args:
            arrays: The inputs by name, float32 of the shapes that `inputs` say.

        Returns:
            The output, float32.

        Raises:
            NestError: If an input is missing or does not fit.
        """
        from mlhood.dataflow.nest.running import run

        return run(self, arrays)

    def visits(self) -> np.ndarray:
        """Return the points of the iteration space in the order of the visits: int64 [points, first loops].

        Raises:
            NestError: If these are too many to be held: it is for drawing and checking.
        """
        from mlhood.dataflow.nest.space import visits

        return visits(self)

    def count(self) -> Counts:
        """Return what is read and written, exactly, and what a memory at each level must fetch."""
        from mlhood.dataflow.nest.count import count

        return count(self)

    def addresses(self, chunk: int = 1 << 16) -> Iterator[Chunk]:
        """Return every access in program order, for a simulator of caches.

        Args:
            chunk: How many accesses come together, at most.

        Raises:
            NestError: If the chunk is too small for a statement.
        """
        from mlhood.dataflow.nest.stream import addresses

        return addresses(self, chunk)

    def layout(self, align: int = 64) -> dict[str, int]:
        """Return the byte at which each array begins if they lie one behind the other; for `Chunk.bytes`."""
        from mlhood.dataflow.nest.stream import layout

        return layout(self, align)
