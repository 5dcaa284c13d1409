"""The steps that change loops: split, tile, reorder, unroll, vectorise. `mlhood.dataflow.nest.Nest` describes them."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from mlhood.dataflow.nest.affine import variable
from mlhood.dataflow.nest.data import Guard, Kind, Loop, packed_name
from mlhood.dataflow.nest.trips import trips
from mlhood.errors import NestError

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest

Tail = Literal["perfect", "guard"]

MOST_LANES = 64  # four of the widest vectors there are
MOST_COPIES = 256  # statements in unrolled code: more no longer fit the caches for instructions
_TAKEN = {"min", "range"}  # generated code calls them


def split(nest: Nest, name: str, factor: int, tail: Tail = "perfect", names: Sequence[str] = ()) -> Nest:
    """Return the nest with `name` as two loops: `factor * outer + inner`."""
    loop = find(nest, name)
    _still_open(nest, f"split {name}")
    _check_factor(loop, factor, tail)
    if loop.kind != "serial":
        raise NestError(f"the loop is {loop.kind}", where=name, todo="split it first, then unroll or vectorise")
    outer, inner = _two_names(nest, name, names)
    value = variable(outer) * factor + variable(inner)
    pair = (Loop(outer, -(-loop.extent // factor)), Loop(inner, factor))
    at = nest.names.index(name)
    guards = tuple(Guard(guard.sum.put(name, value), guard.bound) for guard in nest.guards)
    return replace(
        nest,
        loops=(*nest.loops[:at], *pair, *nest.loops[at + 1 :]),
        output=nest.output.put(name, value),
        inputs=tuple(access.put(name, value) for access in nest.inputs),
        origin=tuple(one.put(name, value) for one in nest.origin),
        guards=guards if loop.extent % factor == 0 else (*guards, Guard(value, loop.extent)),
    )


def _check_factor(loop: Loop, factor: int, tail: Tail) -> None:
    if tail not in ("perfect", "guard"):
        raise NestError("there is no such tail", expected="'perfect' or 'guard'", got=repr(tail))
    if not isinstance(factor, int) or isinstance(factor, bool) or not 1 <= factor <= loop.extent:
        raise NestError(
            "this factor has no meaning",
            where=f"loop {loop.name}",
            expected=f"an integer from 1 to its extent, {loop.extent}",
            got=repr(factor),
        )
    if loop.extent % factor and tail == "perfect":
        small = [n for n in range(1, math.isqrt(loop.extent) + 1) if loop.extent % n == 0]
        divisors = sorted({*small, *(loop.extent // n for n in small)})
        raise NestError(
            f"{factor} does not divide {loop.extent}: the last tile would reach beyond the loop's end",
            where=f"loop {loop.name}",
            expected=f"a divisor: {', '.join(map(str, divisors))}",
            got=factor,
            todo="take a divisor, or tail='guard', which ends the last tile early: its loop then changes in length",
        )


def _two_names(nest: Nest, name: str, names: Sequence[str]) -> tuple[str, str]:
    pair = tuple(names) or (f"{name}_o", f"{name}_i")
    if len(pair) != 2 or len(set(pair)) != 2:
        raise NestError("a split makes two loops", where=name, expected="two different names", got=pair)
    for one in pair:
        check_name(one)
    taken = set(nest.names) - {name} | _reserved(nest)
    if clash := taken & set(pair):
        raise NestError("this name is taken", where=name, got=", ".join(sorted(clash)),
                        todo=f"name the loops: split({name!r}, ..., names=('outer', 'inner'))")  # fmt: skip
    return pair[0], pair[1]


def _reserved(nest: Nest) -> set[str]:
    """Return the names that no new loop may have: those of arrays and of their packed copies."""
    arrays = {access.array for access in nest.accesses}
    return arrays | {packed_name(array) for array in arrays}


def check_name(name: object) -> None:
    """Check that a loop or an array may be called so.

    Raises:
        NestError: If it is not a name, or one that generated code needs.
    """
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
        raise NestError("this is not a name", expected="letters, digits and _, a letter first", got=repr(name))
    if name in _TAKEN:
        raise NestError("this name is needed by the generated code", got=name, todo="choose another one")


def tile(nest: Nest, factors: Mapping[str, int], tail: Tail = "perfect") -> Nest:
    """Return the nest with loops split, and their inner halves together after the last of the outer ones."""
    if not factors:
        raise NestError("a tile has an extent along some loops", expected="tile(i=16, j=16)", got="tile()")
    chosen = [name for name in nest.names if name in factors]
    for name, factor in factors.items():
        find(nest, name)
        nest = split(nest, name, factor, tail)
    inner = [f"{name}_i" for name in chosen]
    rest = [name for name in nest.names if name not in inner]
    last = rest.index(f"{chosen[-1]}_o") + 1
    return reorder(nest, [*rest[:last], *inner, *rest[last:]])


def reorder(nest: Nest, names: Sequence[str]) -> Nest:
    """Return the nest with the named loops in this order, at the places that they hold among themselves."""
    loops = [find(nest, name) for name in names]
    if len(set(names)) != len(names):
        raise NestError("a loop is named twice", got=", ".join(names))
    _still_open(nest, "reorder its loops")
    waiting = iter(loops)
    ordered = tuple(next(waiting) if loop.name in names else loop for loop in nest.loops)
    if any(loop.kind == "vectorised" for loop in ordered[:-1]):
        raise NestError("a vectorised loop stays the innermost", got=", ".join(loop.name for loop in ordered),
                        todo="reorder first, then vectorise")  # fmt: skip
    _check_copies(ordered)
    return replace(nest, loops=ordered)


def unroll(nest: Nest, name: str) -> Nest:
    """Return the nest with a loop written out."""
    return _with_kind(nest, name, "unrolled")


def vectorise(nest: Nest, name: str) -> Nest:
    """Return the nest with its innermost loop as vectors."""
    loop = find(nest, name)
    if nest.loops[-1] != loop:
        raise NestError("only the innermost loop becomes vectors", where=name, expected=nest.names[-1],
                        todo=f"reorder first, {name} last")  # fmt: skip
    if loop.extent > MOST_LANES:
        raise NestError("these are too many lanes", where=name, expected=f"at most {MOST_LANES}", got=loop.extent,
                        todo="split the loop, and vectorise the inner half")  # fmt: skip
    for access, step in zip((nest.output, *nest.inputs), nest.steps, strict=True):
        if step not in (0, 1):
            raise NestError(
                f"neighbouring lanes are not neighbours in {access.array}",
                where=f"loop {name}, {nest.read(access)}",
                expected="0 or 1 elements from one round to the next",
                got=step,
                todo=f"vectorise another loop, or pack {access.array} with {name} innermost",
            )
    return _with_kind(nest, name, "vectorised")


def _with_kind(nest: Nest, name: str, kind: Kind) -> Nest:
    loop = find(nest, name)
    if loop.kind != "serial":
        raise NestError(f"the loop is {loop.kind} already", where=name)
    at = nest.names.index(name)
    found = trips(nest, name, nest.names[:at])
    if found.rests or found.most < loop.extent:
        raise NestError(
            f"a loop whose number of rounds changes cannot be {kind}",
            where=name,
            got=f"range({found.text({})})",
            todo="split by a factor that divides, tail='perfect'",
        )
    loops = (*nest.loops[:at], replace(loop, kind=kind), *nest.loops[at + 1 :])
    _check_copies(loops)
    return replace(nest, loops=loops)


def _check_copies(loops: Sequence[Loop]) -> None:
    copies = math.prod(loop.extent for loop in loops if loop.kind == "unrolled")
    if copies > MOST_COPIES:
        raise NestError("that would be too much code", where="unrolled loops", expected=f"at most {MOST_COPIES} copies",
                        got=copies, todo="split the loop, and unroll the inner half")  # fmt: skip


def find(nest: Nest, name: str) -> Loop:
    """Return a loop.

    Raises:
        NestError: If there is none of that name.
    """
    for loop in nest.loops:
        if loop.name == name:
            return loop
    raise NestError("there is no such loop", expected=f"one of {', '.join(nest.names)}", got=name)


def _still_open(nest: Nest, step: str) -> None:
    if nest.bound:
        raise NestError(f"cannot {step}: a microkernel is bound", todo="split and reorder first, bind last")
    if nest.packs:
        arrays = ", ".join(pack.array for pack in nest.packs)
        raise NestError(f"cannot {step}: {arrays} is packed for the loops as they are",
                        todo="split and reorder first, then pack")  # fmt: skip
