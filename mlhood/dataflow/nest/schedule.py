"""The steps of a schedule: split, tile, reorder, unroll, vectorise, pack. Each returns a new nest.

(Ragan-Kelley et al., Halide, PLDI 2013; Chen et al., TVM, OSDI 2018; Ikarashi et al., Exo, PLDI 2022.)

Every step preserves the result up to float32 rounding: each point adds its product to an element that no input shares,
so the points may be visited in any order, each exactly once.
"""

from __future__ import annotations

import keyword
import math
import re
from dataclasses import replace
from typing import Literal

from mlhood.dataflow.nest.loop_nest import Access, AnyNest, Guard, Kind, Loop, LoopNest, Pack, packed_name, variable
from mlhood.dataflow.nest.space import TripCount, trip_count
from mlhood.errors import NestError

Tail = Literal["perfect", "guard"]

MAX_LANES = 64  # four of the widest vectors there are
MAX_COPIES = 256  # statements in unrolled code: more overflow the instruction cache
MAX_BUFFER = 1 << 28  # elements of a packed copy: one gibibyte
_RESERVED = {"min", "range"}  # called by generated code


def split(nest: AnyNest, loop: str, factor: int, tail: Tail = "perfect") -> AnyNest:
    """Split a loop in two (strip-mining): `loop` becomes `factor * loop_o + loop_i`.

    Args:
        nest: The nest.
        loop: The loop.
        factor: The inner loop's extent.
        tail: What happens where the factor does not divide the extent: `perfect`: an error; `guard`: the inner loop's
            last run is shorter.

    Raises:
        NestError: If there is no such loop, or the split is invalid.
    """
    old = nest.loop(loop)
    _check_open(nest, f"split {loop}")
    _check_factor(old, factor, tail)
    if old.kind != "serial":
        raise NestError(f"the loop is {old.kind}", where=loop, todo="split it first, then unroll or vectorise")
    outer, inner = f"{loop}_o", f"{loop}_i"
    arrays = {access.array for access in nest.accesses}
    if clashes := {*nest.names, *arrays, *map(packed_name, arrays)} & {outer, inner}:
        raise NestError("this name is already in use", where=loop, got=", ".join(sorted(clashes)))
    value = variable(outer) * factor + variable(inner)
    values = {loop: value}
    position = nest.names.index(loop)
    pair = (Loop(outer, -(-old.extent // factor)), Loop(inner, factor))
    guards = tuple(Guard(guard.expression.substitute(values), guard.bound) for guard in nest.guards)
    return replace(
        nest,
        loops=(*nest.loops[:position], *pair, *nest.loops[position + 1 :]),
        output=nest.output.substitute(values),
        inputs=tuple(access.substitute(values) for access in nest.inputs),
        origin=tuple(expression.substitute(values) for expression in nest.origin),
        guards=guards if old.extent % factor == 0 else (*guards, Guard(value, old.extent)),
    )


def _check_factor(loop: Loop, factor: int, tail: Tail) -> None:
    if tail not in ("perfect", "guard"):
        raise NestError("unknown tail", expected="'perfect' or 'guard'", got=repr(tail))
    if not isinstance(factor, int) or isinstance(factor, bool) or not 1 <= factor <= loop.extent:
        expected = f"an integer from 1 to its extent, {loop.extent}"
        raise NestError("invalid split factor", where=f"loop {loop.name}", expected=expected, got=repr(factor))
    if loop.extent % factor and tail == "perfect":
        small = [n for n in range(1, math.isqrt(loop.extent) + 1) if loop.extent % n == 0]
        divisors = sorted({*small, *(loop.extent // n for n in small)})
        raise NestError(
            f"{factor} does not divide {loop.extent}: the last tile would overrun the loop",
            where=f"loop {loop.name}",
            expected=f"a divisor: {', '.join(map(str, divisors))}",
            got=factor,
            todo="choose a divisor, or tail='guard', which cuts off the last tile: the inner trip count then varies",
        )


def check_name(name: object) -> None:
    """Check the name of a loop or an array.

    Raises:
        NestError: If it is not an identifier, or reserved for generated code.
    """
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
        raise NestError("invalid name", expected="letters, digits and _, a letter first", got=repr(name))
    if name in _RESERVED:
        raise NestError("this name is reserved for generated code", got=name, todo="choose another one")


def tile(nest: AnyNest, /, tail: Tail = "perfect", **factors: int) -> AnyNest:
    """Split loops and move the inner ones together: `tile(i=16, j=16)` visits tiles of 16 x 16.

    The outer loops stay at the positions of the original ones; the inner ones follow the last of them, in nest order.

    Args:
        nest: The nest.
        tail: As for `split`.
        factors: Loops, and the tile's extent along each.

    Raises:
        NestError: If there is no such loop, or the tile is invalid.
    """
    if not factors:
        raise NestError("a tile needs an extent along at least one loop", expected="tile(i=16, j=16)", got="tile()")
    tiled = [name for name in nest.names if name in factors]
    for name, factor in factors.items():
        nest = split(nest, name, factor, tail)
    inner = [f"{name}_i" for name in tiled]
    others = [name for name in nest.names if name not in inner]
    last = others.index(f"{tiled[-1]}_o") + 1
    return reorder(nest, *others[:last], *inner, *others[last:])


def reorder(nest: AnyNest, *names: str) -> AnyNest:
    """Permute loops, listed from the outermost to the innermost; loops that are not listed keep their positions.

    Raises:
        NestError: If there is no such loop, or the order is fixed by packing or a vector.
    """
    loops = iter([nest.loop(name) for name in names])
    if len(set(names)) != len(names):
        raise NestError("a loop is listed twice", got=", ".join(names))
    _check_open(nest, "reorder its loops")
    ordered = tuple(next(loops) if loop.name in names else loop for loop in nest.loops)
    if any(loop.kind == "vectorised" for loop in ordered[:-1]):
        order = ", ".join(loop.name for loop in ordered)
        raise NestError("a vectorised loop must stay innermost", got=order, todo="reorder first, then vectorise")
    return replace(nest, loops=ordered)


def unroll(nest: AnyNest, loop: str) -> AnyNest:
    """Unroll a loop completely.

    Raises:
        NestError: If there is no such loop, its trip count varies, or the code would be too long.
    """
    return _with_kind(nest, loop, "unrolled")


def vectorise(nest: AnyNest, loop: str) -> AnyNest:
    """Vectorise the innermost loop; the lanes of a reduction are added horizontally.

    Where loops that index the output are unrolled inside the reduction loop, the output tile stays in registers.

    Raises:
        NestError: If the loop is not the innermost, its trip count is too large or varies, or its accesses are
            strided.
    """
    inner = nest.loop(loop)
    if nest.loops[-1] != inner:
        todo = f"reorder first, {loop} last"
        raise NestError("only the innermost loop can be vectorised", where=loop, expected=nest.names[-1], todo=todo)
    if inner.extent > MAX_LANES:
        todo = "split the loop, and vectorise the inner half"
        raise NestError("too many lanes", where=loop, expected=f"at most {MAX_LANES}", got=inner.extent, todo=todo)
    for access, stride in zip((nest.output, *nest.inputs), nest.strides, strict=True):
        if stride not in (0, 1):
            raise NestError(
                f"adjacent lanes are not contiguous in {access.array}",
                where=f"loop {loop}, {nest.operand(access)}",
                expected="a stride of 0 or 1 elements",
                got=stride,
                todo=f"vectorise another loop, or pack {access.array} with {loop} innermost",
            )
    return _with_kind(nest, loop, "vectorised")


def _with_kind(nest: AnyNest, name: str, kind: Kind) -> AnyNest:
    loop = nest.loop(name)
    if loop.kind != "serial":
        raise NestError(f"the loop is already {loop.kind}", where=name)
    position = nest.names.index(name)
    trips = trip_count(nest, name, nest.names[:position])
    if trips != TripCount(loop.extent):
        todo = "split by a factor that divides, tail='perfect'"
        what = f"a loop with a varying trip count cannot be {kind}"
        raise NestError(what, where=name, got=f"range({trips.code({})})", todo=todo)
    loops = (*nest.loops[:position], replace(loop, kind=kind), *nest.loops[position + 1 :])
    copies = math.prod(loop.extent for loop in loops if loop.kind == "unrolled")
    if copies > MAX_COPIES:
        todo = "split the loop, and unroll the inner half"
        expected = f"at most {MAX_COPIES} copies of the statement"
        raise NestError("unrolled code would be too long", where=name, expected=expected, got=copies, todo=todo)
    return replace(nest, loops=loops)


def pack(nest: AnyNest, array: str, at: str | None = None) -> AnyNest:
    """Copy what the loops inside `at` read from an array into a buffer, contiguous in the order of reading.

    For a convolution's input, which overlapping windows share, this is im2col, one tile at a time.

    Args:
        nest: The nest.
        array: An input.
        at: The loop in each iteration of which it is copied; None: once, before all loops.

    Raises:
        NestError: If it is not an input, or no loop inside indexes it.
    """
    access = _packable(nest, array)
    depth = 0 if at is None else nest.names.index(nest.loop(at).name) + 1
    loops = tuple(name for name in nest.names[depth:] if name in access.loops)
    if not loops:
        where = f"{access}, at {at}"
        raise NestError(f"no inner loop indexes {array}: nothing to pack", where=where, todo="pack further out")
    packed = Pack(array, depth, loops, tuple(nest.extents[name] for name in loops))
    if packed.size > MAX_BUFFER:
        expected = f"at most {MAX_BUFFER:,} elements"
        what = "the buffer would be too large"
        raise NestError(what, where=array, expected=expected, got=f"{packed.size:,}", todo="pack further in")
    return replace(nest, packs=(*nest.packs, packed))


def _packable(nest: LoopNest, array: str) -> Access:
    """Return the access to an input that can still be packed."""
    if array == nest.output.array:
        what = "the output cannot be packed: sums added to a copy would be lost"
        raise NestError(what, where=array, expected="an input")
    if nest.packed(array):
        raise NestError("the array is already packed", where=array)
    access = nest.input(array)
    if nest.loops[-1].kind == "vectorised":
        what = "the innermost loop is already vectorised over the array as it is"
        raise NestError(what, where=array, todo="pack first, then vectorise")
    return access


def _check_open(nest: LoopNest, step: str) -> None:
    """Check that no packed copy depends on the loops."""
    if nest.packs:
        arrays = ", ".join(pack.array for pack in nest.packs)
        what = f"cannot {step}: {arrays} is packed for the current loops"
        raise NestError(what, todo="split and reorder first, then pack")
