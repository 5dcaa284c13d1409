"""From a nest to lines of code: the pseudo-code that a nest prints as, and Python that Numba compiles and `run` calls.

Both are emitters of the same loops. The compiler may reassociate sums (`reassoc`), fuse multiply-adds (`contract`) and
ignore the sign of zero (`nsz`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlhood.dataflow.nest.loop_nest import Access, Loop, LoopNest, Pack
from mlhood.dataflow.nest.space import trip_count
from mlhood.errors import NestError

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


# -- compiled execution

_FASTMATH = {"reassoc", "contract", "nsz"}


class _Compiled(Emitter):
    def vector(self, values: Values) -> list[str]:
        """Call with the first lane's elements."""
        first, nest = values | {self.nest.names[-1]: 0}, self.nest
        accesses = [nest.output, *(nest.operand(access) for access in nest.inputs)]
        operands = [f"{access.array}.ctypes.data, {access.offset.substitute(first)}" for access in accesses]
        lanes, (statement,) = nest.loops[-1].extent, self.statement(first)
        return [f"# {lanes} lanes from {statement}", f"_multiply_add(({', '.join(operands)}))"]


def source(nest: LoopNest) -> str:
    """Return the Python that `run` compiles: a function of inputs, output and buffers."""
    emitter = _Compiled(nest)
    names = [access.array for access in nest.accesses] + [pack.buffer.array for pack in nest.packs]
    return "\n".join([f"def run({', '.join(names)}):", *emitter.indented(emitter.lines()), ""])


def run(nest: LoopNest, /, **arrays: np.ndarray) -> np.ndarray:
    """Run the nest as compiled code, on one thread.

    Args:
        nest: The nest.
        arrays: The inputs by name, float32, of their accesses' shapes.

    Returns:
        The output, float32.

    Raises:
        NestError: If an input is missing, unknown, or of another shape or dtype.
    """
    inputs = _checked(nest, arrays)
    output = np.zeros(nest.output.shape, np.float32)
    buffers = [np.empty(pack.shape, np.float32) for pack in nest.packs]
    compiled(nest)(*inputs, output, *buffers)
    return output


@functools.lru_cache(maxsize=256)
def compiled(nest: LoopNest) -> Any:
    """Return Numba's dispatcher for the function of `source`."""
    from numba import njit

    scope: dict[str, Any] = {}
    if nest.loops[-1].kind == "vectorised":
        from mlhood.dataflow.nest.native import multiply_add

        scope["_multiply_add"] = multiply_add(nest.loops[-1].extent, nest.strides)
    exec(compile(source(nest), "<loop nest>", "exec"), scope)  # noqa: S102 - made of checked names and integers
    return njit(nogil=True, fastmath=_FASTMATH)(scope["run"])


def _checked(nest: LoopNest, arrays: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the inputs in order, contiguous."""
    names = [access.array for access in nest.inputs]
    if set(names) != arrays.keys():
        raise NestError("missing or unknown inputs", expected=", ".join(names), got=", ".join(arrays) or "none")
    return [np.ascontiguousarray(_checked_input(access, arrays[access.array])) for access in nest.inputs]


def _checked_input(access: Access, array: Any) -> np.ndarray:
    if isinstance(array, np.ndarray) and array.dtype == np.float32 and array.shape == access.shape:
        return array
    raise NestError(
        "invalid shape or dtype of an input",
        where=access.array,
        expected=f"float32 {list(access.shape)}",
        got=f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__,
        todo="pad a convolution's input first: mlhood.kernels.conv.pad",
    )
