"""Packing: a copy of what inner loops read, in the order in which they read it. `Nest.pack` describes the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mlhood.dataflow.nest.data import Access, Pack
from mlhood.dataflow.nest.schedule import find
from mlhood.errors import NestError

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest

MOST_ELEMENTS = 1 << 28  # a buffer of one gibibyte


def pack(nest: Nest, array: str, at: str | None = None, order: Sequence[str] = ()) -> Nest:
    """Return the nest with a buffer for what the loops inside `at` read from an input."""
    access = _input(nest, array)
    if nest.bound:
        raise NestError("a microkernel is bound already", where=array, todo="pack first, bind last")
    if nest.loops[-1].kind == "vectorised":
        raise NestError("the innermost loop is vectorised for the array as it lies", where=array,
                        todo="pack first, then vectorise")  # fmt: skip
    depth = 0 if at is None else nest.names.index(find(nest, at).name) + 1
    loops = tuple(name for name in nest.names[depth:] if name in access.loops)
    if not loops:
        raise NestError(f"no loop inside indexes {array}: there is nothing to copy", where=f"{access}, at {at}",
                        todo="pack further out")  # fmt: skip
    if order and sorted(order) != sorted(loops):
        raise NestError("these are not the loops inside that index the array", where=array,
                        expected=f"an order of {', '.join(loops)}", got=", ".join(order))  # fmt: skip
    made = Pack(array, depth, tuple(order) or loops, tuple(nest.extents[name] for name in tuple(order) or loops))
    if made.size > MOST_ELEMENTS:
        raise NestError("the buffer would be too large", where=array, expected=f"at most {MOST_ELEMENTS:,} elements",
                        got=f"{made.size:,}", todo="pack further in")  # fmt: skip
    return replace(nest, packs=(*nest.packs, made))


def _input(nest: Nest, array: str) -> Access:
    if array == nest.output.array:
        raise NestError("the output is not packed: what is added to a copy would be lost", where=array,
                        expected="an input", todo="keep its tile in registers: bind")  # fmt: skip
    if nest.packed(array):
        raise NestError("it is packed already", where=array)
    return nest.input(array)
