"""Loop nests with their steps as methods, `gemm(64, 64, 64).tile(i=16, j=16).count()`, and how to build them.

Any nest is built from a statement such as `"C[i, j] += A[i, k] * B[k, j]"`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from mlhood.dataflow.nest import count, schedule, space
from mlhood.dataflow.nest.loop_nest import Access, Affine, LoopNest, NestLoop, variable
from mlhood.dataflow.nest.schedule import check_name
from mlhood.errors import NestError

_FORM = "C[i, j] += A[i, k] * B[k, j]"


class Nest(LoopNest):
    """An immutable loop nest that prints and counts; a step of its schedule returns a new one.

    Each method is documented by the function behind it.
    """

    split = schedule.split
    tile = schedule.tile
    reorder = schedule.reorder

    visits = space.visits

    count = count.count

    def __str__(self) -> str:
        """Return the nest as Python: a comment that declares the arrays, then the loops and the statement."""
        arrays = ", ".join(f"{access.array}{list(access.shape)}" for access in self.inputs)
        lines = [f"# {self.output.array}{list(self.output.shape)} from {arrays}"]
        for depth, name in enumerate(self.names):
            lines.append("  " * depth + f"for {name} in range({space.trip_count(self, name, self.names[:depth])}):")
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
