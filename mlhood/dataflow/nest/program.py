"""From a nest to lines of code: the emitter of its loops, and the pseudo-code that a nest prints as.

The pseudo-code and the compiled program are two emitters of the same loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.dataflow.nest.loop_nest import Loop, LoopNest, Pack
from mlhood.dataflow.nest.space import trip_count

Values = dict[str, int]  # of the unrolled loops


class Emitter:
    """Emits a nest's loops as Python; subclasses emit the bodies.

    Args:
        nest: The nest.
        indent: One level of indentation.
        expand: Whether to expand unrolled and vectorised loops; otherwise they are emitted as plain loops.
    """

    def __init__(self, nest: LoopNest, indent: str = "    ", *, expand: bool = True) -> None:
        self.nest, self.indent, self.expand = nest, indent, expand

    def statement(self, values: Values) -> list[str]:
        """Return the lines of the statement."""
        product = " * ".join(str(self.nest.operand(access).substitute(values)) for access in self.nest.inputs)
        return [f"{self.nest.output.substitute(values)} += {product}"]

    def vector(self, values: Values) -> list[str]:
        """Return the lines of an expanded vectorised loop."""
        return []

    def comment(self, loop: Loop) -> str:
        """Return the comment behind a loop's header."""
        return ""

    def lines(self) -> list[str]:
        """Return the whole program."""
        return self._body(0, {})

    def _body(self, depth: int, values: Values) -> list[str]:
        """Return what is inside the first `depth` loops: packing, then the next loop."""
        packing = [line for pack in self.nest.packs if pack.depth == depth for line in self._pack(pack, values)]
        return packing + self._next(depth, values)

    def _next(self, depth: int, values: Values) -> list[str]:
        if depth == len(self.nest.loops):
            return self.statement(values)
        if self.expand and depth == self.nest.depth:
            return self.vector(values)
        loop, outside = self.nest.loops[depth], self.nest.names[:depth]
        if self.expand and loop.kind == "unrolled":
            iterations = range(trip_count(self.nest, loop.name, outside).constant)
            return [line for value in iterations for line in self._body(depth + 1, {**values, loop.name: value})]
        header = self._header(loop.name, outside, values) + self.comment(loop)
        return [header, *self.indented(self._body(depth + 1, values))]

    def _pack(self, pack: Pack, values: Values) -> list[str]:
        """Return the loops that copy what is packed."""
        lines = [f"{pack.buffer} = {self.nest.input(pack.array).substitute(values)}"]
        for i in reversed(range(len(pack.loops))):
            outside = [*self.nest.names[: pack.depth], *pack.loops[:i]]
            lines = [self._header(pack.loops[i], outside, values), *self.indented(lines)]
        return lines

    def _header(self, name: str, outside: Sequence[str], values: Values) -> str:
        return f"for {name} in range({trip_count(self.nest, name, outside).code(values)}):"

    def indented(self, lines: list[str]) -> list[str]:
        """Return lines one level further in."""
        return [self.indent + line for line in lines]


class _PseudoCode(Emitter):
    def comment(self, loop: Loop) -> str:
        return "" if loop.kind == "serial" else f"  # {loop.kind}"


def pseudo_code(nest: LoopNest) -> str:
    """Return the nest as pseudo-code: a comment that declares the arrays, then loops in Python."""
    arrays = ", ".join(f"{access.array}{list(access.shape)}" for access in nest.inputs)
    buffers = "".join(f", {pack.buffer.array}{list(pack.shape)}" for pack in nest.packs)
    declaration = f"# {nest.output.array}{list(nest.output.shape)} from {arrays}{buffers}"
    return "\n".join([declaration, *_PseudoCode(nest, "  ", expand=False).lines()])
