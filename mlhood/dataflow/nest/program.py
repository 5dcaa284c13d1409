"""From a nest to lines of code: the loops are written here, what stands in them by those who need it.

Pseudo code, the Python that runs and the Python that tells its accesses are three programs over the same loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlhood.dataflow.nest.data import Access, Bound, Loop, Pack
from mlhood.dataflow.nest.trips import trips

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest

Values = dict[str, int]  # of the loops that are unrolled


class Program:
    """Writes a nest's loops; a subclass says what stands in them.

    Args:
        nest: The nest.
        indent: Before each level.
        expand: Whether to write out what is unrolled, vectorised and bound; else these are loops like others.
    """

    def __init__(self, nest: Nest, indent: str = "    ", *, expand: bool = True) -> None:
        self.nest, self.indent, self.expand = nest, indent, expand

    def copy(self, pack: Pack, source: Access, values: Values) -> list[str]:
        """Return the lines that copy one element into a buffer."""
        return [f"{pack.buffer} = {source.fixed(values)}"]

    def statement(self, values: Values) -> list[str]:
        """Return the lines of the statement."""
        product = " * ".join(str(self.nest.read(access).fixed(values)) for access in self.nest.inputs)
        return [f"{self.nest.output.fixed(values)} += {product}"]

    def vector(self, values: Values) -> list[str]:
        """Return the lines that stand for a vectorised loop, where loops are written out."""
        return []

    def microkernel(self, bound: Bound, values: Values) -> list[str]:
        """Return the lines that stand for bound loops, where loops are written out."""
        return []

    def note(self, loop: Loop) -> str:
        """Return what is said behind a loop."""
        return ""

    def lines(self) -> list[str]:
        """Return the whole program."""
        return self._inside(0, {})

    def _inside(self, depth: int, values: Values) -> list[str]:
        """Return what runs where `depth` loops are open: first packing, then the next loop."""
        packing = [line for pack in self.nest.packs if pack.depth == depth for line in self._pack(pack, values)]
        return packing + self._next(depth, values)

    def _next(self, depth: int, values: Values) -> list[str]:
        if depth == len(self.nest.loops):
            return self.statement(values)
        if self.expand and depth == self.nest.depth:
            return self.microkernel(self.nest.bound, values) if self.nest.bound else self.vector(values)
        loop, outside = self.nest.loops[depth], self.nest.names[:depth]
        if self.expand and loop.kind == "unrolled":
            rounds = range(trips(self.nest, loop.name, outside).most)
            return [line for value in rounds for line in self._inside(depth + 1, {**values, loop.name: value})]
        head = self.head(loop.name, outside, values) + self.note(loop)
        return [head, *self.indented(self._inside(depth + 1, values))]

    def _pack(self, pack: Pack, values: Values) -> list[str]:
        source = self.nest.input(pack.array)
        return self.around(pack.loops, self.nest.names[: pack.depth], values, self.copy(pack, source, values))

    def around(self, loops: Sequence[str], outside: Sequence[str], values: Values, body: list[str]) -> list[str]:
        """Return lines with loops of the nest around them, whatever the nest's own order."""
        if not loops:
            return body
        inner = self.around(loops[1:], [*outside, loops[0]], values, body)
        return [self.head(loops[0], outside, values), *self.indented(inner)]

    def head(self, name: str, outside: Sequence[str], values: Values) -> str:
        """Return a loop's first line."""
        return f"for {name} in range({trips(self.nest, name, outside).text(values)}):"

    def indented(self, lines: list[str]) -> list[str]:
        """Return lines one level further in."""
        return [self.indent + line for line in lines]


class _PseudoCode(Program):
    def note(self, loop: Loop) -> str:
        bound = self.nest.bound
        if loop.kind != "bound" or not bound:
            return "" if loop.kind == "serial" else f"  # {loop.kind}"
        part = {bound.rows: "rows", bound.columns: "columns"}.get(loop.name, "sum")
        return f"  # microkernel: {part}"


def pseudo_code(nest: Nest) -> str:
    """Return the nest as indented pseudo code, which is also Python but for the arrays' names in the first line."""
    arrays = ", ".join(f"{access.array}{list(access.shape)}" for access in nest.inputs)
    buffers = "".join(f", {pack.buffer.array}{list(pack.shape)}" for pack in nest.packs)
    head = f"# {nest.output.array}{list(nest.output.shape)} from {arrays}{buffers}"
    return "\n".join([head, *_PseudoCode(nest, "  ", expand=False).lines()])
