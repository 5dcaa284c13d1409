"""The steps of a schedule: split, tile, reorder. Each returns a new nest.

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

from mlhood.dataflow.nest.loop_nest import AnyNest, Guard, NestLoop, variable
from mlhood.errors import NestError

Tail = Literal["perfect", "guard"]

_RESERVED = {"min", "range"}  # called by a nest as it prints


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
    _check_factor(old, factor, tail)
    outer, inner = f"{loop}_o", f"{loop}_i"
    arrays = {access.array for access in nest.accesses}
    if clashes := {*nest.names, *arrays} & {outer, inner}:
        raise NestError("this name is already in use", where=loop, got=", ".join(sorted(clashes)))
    value = variable(outer) * factor + variable(inner)
    values = {loop: value}
    position = nest.names.index(loop)
    pair = (NestLoop(outer, -(-old.extent // factor)), NestLoop(inner, factor))
    guards = tuple(Guard(guard.expression.substitute(values), guard.bound) for guard in nest.guards)
    return replace(
        nest,
        loops=(*nest.loops[:position], *pair, *nest.loops[position + 1 :]),
        output=nest.output.substitute(values),
        inputs=tuple(access.substitute(values) for access in nest.inputs),
        origin=tuple(expression.substitute(values) for expression in nest.origin),
        guards=guards if old.extent % factor == 0 else (*guards, Guard(value, old.extent)),
    )


def _check_factor(loop: NestLoop, factor: int, tail: Tail) -> None:
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
        NestError: If it is not an identifier, or reserved.
    """
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
        raise NestError("invalid name", expected="letters, digits and _, a letter first", got=repr(name))
    if name in _RESERVED:
        raise NestError("this name is reserved", got=name, todo="choose another one")


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
        NestError: If there is no such loop, or one is listed twice.
    """
    loops = iter([nest.loop(name) for name in names])
    if len(set(names)) != len(names):
        raise NestError("a loop is listed twice", got=", ".join(names))
    return replace(nest, loops=tuple(next(loops) if loop.name in names else loop for loop in nest.loops))
