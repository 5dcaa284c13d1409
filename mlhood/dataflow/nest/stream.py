"""Every access of a nest, in the order of the program: what a simulator of caches is fed with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mlhood.dataflow.nest.data import BYTES, Access, Bound, Pack
from mlhood.dataflow.nest.program import Program, Values
from mlhood.errors import NestError

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest

_LEAST_CHUNK = 64  # more than one statement accesses


@dataclass(frozen=True)
class Chunk:
    """Accesses one after another.

    Args:
        names: The arrays: inputs, output, packed copies.
        array: uint8 [accesses], which of them.
        element: int64 [accesses], which of its elements, counted row by row.
        write: bool [accesses].
    """

    names: tuple[str, ...]
    array: np.ndarray
    element: np.ndarray
    write: np.ndarray

    def __len__(self) -> int:
        return len(self.array)

    def bytes(self, layout: Mapping[str, int]) -> np.ndarray:
        """Return addresses, int64 [accesses], where `layout` says at which byte an array begins."""
        return np.array([layout[name] for name in self.names], np.int64)[self.array] + BYTES * self.element


def layout(nest: Nest, align: int = 64) -> dict[str, int]:
    """Return the byte at which each array begins: one behind the other, each at a multiple of `align`."""
    found, place = {}, 0
    for name, size in nest.arrays.items():
        found[name] = place
        place += -(-size * BYTES // align) * align
    return found


def addresses(nest: Nest, chunk: int) -> Iterator[Chunk]:
    """Yield a nest's accesses."""
    if chunk < _LEAST_CHUNK:
        raise NestError("the chunk is too small", expected=f"{_LEAST_CHUNK} accesses or more", got=chunk)
    names = tuple(nest.arrays)
    array, element, write = np.empty(chunk, np.uint8), np.empty(chunk, np.int64), np.empty(chunk, np.bool_)
    for count in _compiled(source(nest))(array, element, write):
        if count:
            yield Chunk(names, array[:count].copy(), element[:count].copy(), write[:count].copy())


class _Stream(Program):
    def copy(self, pack: Pack, source: Access, values: Values) -> list[str]:
        return self._access([(source, False), (pack.buffer, True)], values)

    def statement(self, values: Values) -> list[str]:
        nest = self.nest
        inputs = [(nest.read(access), False) for access in nest.inputs]
        return self._access([(nest.output, False), *inputs, (nest.output, True)], values)

    def vector(self, values: Values) -> list[str]:
        """A vector of each array that the loop indexes, one element of the others."""
        nest, name = self.nest, self.nest.names[-1]

        def lanes(access: Access, write: bool) -> list[str]:
            body = self._access([(access, write)], values)
            return self.around((name,), nest.names[:-1], values, body) if name in access.loops else body

        inputs = [line for access in nest.inputs for line in lanes(nest.read(access), False)]
        return lanes(nest.output, False) + inputs + lanes(nest.output, True)

    def microkernel(self, bound: Bound, values: Values) -> list[str]:
        """The tile comes in, each round of the sum reads a vector of b and numbers of a, and the tile goes out."""
        nest = self.nest
        a, b = (nest.read(nest.input(name)) for name in (bound.a, bound.b))
        outside = nest.names[: bound.depth]

        def tile(write: bool) -> list[str]:
            body = self._access([(nest.output, write)], values)
            return self.around((bound.rows, bound.columns), outside, values, body)

        inside = (*outside, *bound.sums)
        vectors = self.around((bound.columns,), inside, values, self._access([(b, False)], values))
        numbers = self.around((bound.rows,), inside, values, self._access([(a, False)], values))
        return tile(False) + self.around(bound.sums, outside, values, vectors + numbers) + tile(True)

    def _access(self, accesses: list[tuple[Access, bool]], values: Values) -> list[str]:
        lines = [f"if _n + {len(accesses)} > _array.size:", *self.indented(["yield _n", "_n = 0"])]
        for place, (access, write) in enumerate(accesses):
            number = list(self.nest.arrays).index(access.array)
            lines += [f"_array[_n + {place}] = {number}", f"_element[_n + {place}] = {access.offset.fixed(values)}",
                      f"_write[_n + {place}] = {write}"]  # fmt: skip
        return [*lines, f"_n += {len(accesses)}"]


def source(nest: Nest) -> str:
    """Return the generator `stream(array, element, write)`, which fills them and yields how far."""
    program = _Stream(nest)
    return "\n".join(["def stream(_array, _element, _write):",
                      *program.indented(["_n = 0", *program.lines(), "yield _n"]), ""])  # fmt: skip


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> Callable[..., Iterator[int]]:
    from numba import njit

    scope: dict[str, Any] = {}
    exec(compile(text, "<loop nest's accesses>", "exec"), scope)  # noqa: S102 - made of checked names and integers
    return cast(Callable[..., Iterator[int]], njit(scope["stream"]))
