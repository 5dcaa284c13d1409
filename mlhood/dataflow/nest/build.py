"""Loop nests with their steps as methods, `gemm(64, 64, 64).tile(i=16, j=16).count()`, and how to build them.

Any nest is built from a statement such as `"C[i, j] += A[i, k] * B[k, j]"`. The steps of its schedule, split, tile and
reorder, return a new nest (Ragan-Kelley et al., Halide, PLDI 2013; Chen et al., TVM, OSDI 2018; Ikarashi et al., Exo,
PLDI 2022). They preserve the result up to float32 rounding: each point adds its product to an element that no input
shares, so the points may be visited in any order, each exactly once.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from mlhood.dataflow.nest import count
from mlhood.dataflow.nest.loop_nest import Access, Affine, AnyNest, Guard, LoopNest, NestLoop, variable
from mlhood.errors import NestError

_FORM = "C[i, j] += A[i, k] * B[k, j]"
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


# -- nests


class Nest(LoopNest):
    """An immutable loop nest that prints and counts; a step of its schedule returns a new one.

    Each method is documented by the function behind it.
    """

    split = split
    tile = tile
    reorder = reorder

    visits = count.visits

    count = count.count

    def __str__(self) -> str:
        """Return the nest as Python: a comment that declares the arrays, then the loops and the statement."""
        arrays = ", ".join(f"{access.array}{list(access.shape)}" for access in self.inputs)
        lines = [f"# {self.output.array}{list(self.output.shape)} from {arrays}"]
        for depth, name in enumerate(self.names):
            lines.append("  " * depth + f"for {name} in range({count.trip_count(self, name, self.names[:depth])}):")
        return "\n".join([*lines, "  " * len(self.names) + f"{self.output} += {' * '.join(map(str, self.inputs))}"])


def gemm(m: int, n: int, k: int) -> Nest:
    """Return the matrix product C[M, N] += A[M, K] * B[K, N], as the loops i, j, k.

    Raises:
        NestError: If an extent is not a positive integer.
    """
    return nest("C[i, j] += A[i, k] * B[k, j]", i=m, j=n, k=k)


def nest(statement: str, shapes: Mapping[str, Sequence[int]] | None = None, /, **extents: int) -> Nest:
    """Return the nest of a statement, with loops in the order of their extents, the outermost first.

    Args:
        statement: An output, `+=`, and a product of inputs, each array once; indices are affine: `2*oh + kh`.
        shapes: Shapes of arrays that are larger than the loops' index range.
        extents: The extent of each loop.

    Raises:
        NestError: If the statement has another form, or its arrays, loops and shapes do not match.
    """
    output, inputs = _parse(statement)
    for name, extent in extents.items():
        check_name(name)
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
            raise NestError("invalid extent", where=name, expected="a positive integer", got=repr(extent))
    accesses = [_access(array, index, extents, shapes or {}) for array, index in (output, *inputs)]
    _check_names(accesses, extents, shapes or {})
    loops = tuple(NestLoop(name, extent) for name, extent in extents.items())
    return Nest(loops, accesses[0], tuple(accesses[1:]), tuple(extents.items()), tuple(map(variable, extents)))


_Element = tuple[str, tuple[Affine, ...]]  # an array and an index


def _parse(text: str) -> tuple[_Element, list[_Element]]:
    try:
        body = ast.parse(text, mode="exec").body
    except (SyntaxError, ValueError) as error:
        raise NestError("syntax error in the statement", expected=_FORM, got=text) from error
    if len(body) != 1 or not isinstance(body[0], ast.AugAssign) or not isinstance(body[0].op, ast.Add):
        raise NestError("the statement must add a product to an output", expected=_FORM, got=text)
    return _element(body[0].target, text), [_element(factor, text) for factor in _factors(body[0].value)]


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node


def _element(node: ast.expr, text: str) -> _Element:
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        raise NestError("not an array element", where=ast.unparse(node), expected=_FORM, got=text)
    axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return node.value.id, tuple(_affine(axis) for axis in axes)


def _affine(node: ast.expr) -> Affine:
    """Return an index: sums, and products with a constant."""
    if isinstance(node, ast.Name):
        return variable(node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Affine(constant=node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _affine(node.operand) * -1
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
        left, right = _affine(node.left), _affine(node.right)
        if not isinstance(node.op, ast.Mult):
            return left + right * (1 if isinstance(node.op, ast.Add) else -1)
        if not left.terms or not right.terms:
            return right * left.constant if not left.terms else left * right.constant
    expected = "a sum of loop variables times constants: 2*oh + kh"
    raise NestError("this index is not affine", where=ast.unparse(node), expected=expected)


def _access(
    array: str, index: tuple[Affine, ...], extents: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> Access:
    check_name(array)
    if unknown := {name for axis in index for name in axis.variables} - extents.keys():
        got, todo = ", ".join(unknown), "give its extent: nest(..., i=4)"
        raise NestError("unknown loop in an index", where=array, expected=", ".join(extents), got=got, todo=todo)
    bounds = [axis.bounds(extents) for axis in index]
    shape = tuple(shapes.get(array, [high + 1 for _, high in bounds]))
    inside = all(low >= 0 and high < size for (low, high), size in zip(bounds, shape, strict=False))
    if len(shape) != len(bounds) or not inside:
        ranges = ", ".join(f"{low}..{high}" for low, high in bounds)
        expected = f"a shape that contains [{ranges}]"
        raise NestError("index out of bounds", where=array, expected=expected, got=list(shape))
    return Access(array, shape, index)


def _check_names(accesses: Sequence[Access], loops: Mapping[str, int], shapes: Mapping[str, object]) -> None:
    arrays = [access.array for access in accesses]
    if len(set(arrays)) != len(arrays):
        todo = "a nest cannot order reads of its output; give an input that is read twice two names"
        raise NestError("an array occurs twice in the statement", got=", ".join(arrays), todo=todo)
    if clash := {*arrays} & loops.keys():
        raise NestError("a loop and an array have the same name", got=", ".join(clash))
    if unknown := shapes.keys() - set(arrays):
        raise NestError("shape of an unknown array", expected=", ".join(arrays), got=", ".join(unknown))
    if unused := loops.keys() - frozenset().union(*(access.loops for access in accesses)):
        raise NestError("this loop indexes no array: it would only repeat the sum", got=", ".join(unused))
