"""The address trace: every access of a nest in program order, the input of a cache simulator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from mlhood.dataflow.nest.loop_nest import ELEMENT_BYTES, Access, Binding, LoopNest, Pack
from mlhood.dataflow.nest.program import Emitter, Values
from mlhood.errors import NestError

_MIN_CHUNK = 64  # more than one statement accesses


@dataclass(frozen=True)
class Chunk:
    """Consecutive accesses.

    Args:
        names: The arrays: inputs, output, packed copies.
        array: uint8 [accesses], indices into `names`.
        element: int64 [accesses], row-major offsets in the arrays.
        write: bool [accesses].
    """

    names: tuple[str, ...]
    array: np.ndarray
    element: np.ndarray
    write: np.ndarray

    def __len__(self) -> int:
        return len(self.array)

    def bytes(self, layout: Mapping[str, int]) -> np.ndarray:
        """Return byte addresses, int64 [accesses]; `layout` has the address of each array."""
        return np.array([layout[name] for name in self.names], np.int64)[self.array] + ELEMENT_BYTES * self.element


def layout(nest: LoopNest, align: int = 64) -> dict[str, int]:
    """Return addresses of the arrays for `Chunk.bytes`: one after another, each at a multiple of `align` bytes."""
    addresses, end = {}, 0
    for name, size in nest.arrays.items():
        addresses[name] = end
        end += -(-size * ELEMENT_BYTES // align) * align
    return addresses


def addresses(nest: LoopNest, chunk: int = 1 << 16) -> Iterator[Chunk]:
    """Yield every access in program order, for a cache simulator.

    Args:
        nest: The nest.
        chunk: Accesses per chunk, at most.

    Raises:
        NestError: If the chunk is too small for a statement.
    """
    if chunk < _MIN_CHUNK:
        raise NestError("the chunk is too small", expected=f"{_MIN_CHUNK} accesses or more", got=chunk)
    names = tuple(nest.arrays)
    array, element, write = np.empty(chunk, np.uint8), np.empty(chunk, np.int64), np.empty(chunk, np.bool_)
    for count in _compiled(source(nest))(array, element, write):
        if count:
            yield Chunk(names, array[:count].copy(), element[:count].copy(), write[:count].copy())


class _Trace(Emitter):
    def copy(self, pack: Pack, source: Access, values: Values) -> list[str]:
        return self._record([(source, False), (pack.buffer, True)], values)

    def statement(self, values: Values) -> list[str]:
        nest = self.nest
        inputs = [(nest.operand(access), False) for access in nest.inputs]
        return self._record([(nest.output, False), *inputs, (nest.output, True)], values)

    def vector(self, values: Values) -> list[str]:
        """A vector of each array that the loop indexes, one element of the others."""
        nest, name = self.nest, self.nest.names[-1]

        def lanes(access: Access, write: bool) -> list[str]:
            body = self._record([(access, write)], values)
            return self.wrap((name,), nest.names[:-1], values, body) if name in access.loops else body

        inputs = [line for access in nest.inputs for line in lanes(nest.operand(access), False)]
        return lanes(nest.output, False) + inputs + lanes(nest.output, True)

    def microkernel(self, binding: Binding, values: Values) -> list[str]:
        """Load the tile; in each step of the reduction load a vector of b and elements of a; store the tile."""
        nest, outside = self.nest, self.nest.names[: binding.depth]
        a, b = (nest.operand(nest.input(name)) for name in (binding.a, binding.b))

        def tile(write: bool) -> list[str]:
            body = self._record([(nest.output, write)], values)
            return self.wrap((binding.rows, binding.columns), outside, values, body)

        inside = (*outside, *binding.reductions)
        b_loads = self.wrap((binding.columns,), inside, values, self._record([(b, False)], values))
        a_loads = self.wrap((binding.rows,), inside, values, self._record([(a, False)], values))
        return tile(False) + self.wrap(binding.reductions, outside, values, b_loads + a_loads) + tile(True)

    def _record(self, accesses: list[tuple[Access, bool]], values: Values) -> list[str]:
        lines = [f"if _n + {len(accesses)} > _array.size:", *self.indented(["yield _n", "_n = 0"])]
        arrays = list(self.nest.arrays)
        for i, (access, write) in enumerate(accesses):
            lines.append(f"_array[_n + {i}] = {arrays.index(access.array)}")
            lines.append(f"_element[_n + {i}] = {access.offset.substitute(values)}")
            lines.append(f"_write[_n + {i}] = {write}")
        return [*lines, f"_n += {len(accesses)}"]


def source(nest: LoopNest) -> str:
    """Return the generator `stream(array, element, write)`, which fills its arguments and yields how many accesses."""
    emitter = _Trace(nest)
    body = emitter.indented(["_n = 0", *emitter.lines(), "yield _n"])
    return "\n".join(["def stream(_array, _element, _write):", *body, ""])


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> Callable[..., Iterator[int]]:
    from numba import njit

    scope: dict[str, Any] = {}
    exec(compile(text, "<loop nest's accesses>", "exec"), scope)  # noqa: S102 - made of checked names and integers
    return cast(Callable[..., Iterator[int]], njit(scope["stream"]))
