"""From `"C[i, j] += A[i, k] * B[k, j]"` to a loop nest."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from mlhood.dataflow.nest.affine import Affine, variable
from mlhood.dataflow.nest.data import Access, Loop, packed_name
from mlhood.dataflow.nest.nest import Nest
from mlhood.dataflow.nest.schedule import check_name
from mlhood.errors import NestError

_FORM = "C[i, j] += A[i, k] * B[k, j]"


def nest(statement: str, shapes: Mapping[str, Sequence[int]] | None = None, /, **extents: int) -> Nest:
    """Return the nest of a statement: loops in the order in which their extents are given, from the outermost on.

    Args:
        statement: An output, `+=`, and a product of inputs, each array once; indices are affine: `2*oh + kh`.
        shapes: Of arrays that are larger than what the loops reach.
        extents: How often each loop runs.

    Raises:
        NestError: If the statement is none of that form, or its arrays, loops and shapes do not fit.
    """
    output, inputs = _statement(statement)
    for name, extent in extents.items():
        check_name(name)
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
            raise NestError("an extent is a number of rounds", where=name, expected="1 or more", got=repr(extent))
    accesses = [_shaped(array, index, extents, shapes or {}) for array, index in (output, *inputs)]
    _check_names(accesses, extents, shapes or {})
    loops = tuple(Loop(name, extent) for name, extent in extents.items())
    return Nest(loops, accesses[0], tuple(accesses[1:]), tuple(extents.items()), tuple(map(variable, extents)))


_Bare = tuple[str, tuple[Affine, ...]]


def _statement(text: str) -> tuple[_Bare, list[_Bare]]:
    try:
        body = ast.parse(text, mode="exec").body
    except (SyntaxError, ValueError) as error:
        raise NestError("the statement cannot be read", expected=_FORM, got=text) from error
    if len(body) != 1 or not isinstance(body[0], ast.AugAssign) or not isinstance(body[0].op, ast.Add):
        raise NestError("a nest adds products to an output", expected=_FORM, got=text)
    return _access(body[0].target, text), [_access(factor, text) for factor in _factors(body[0].value)]


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node


def _access(node: ast.expr, text: str) -> _Bare:
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        raise NestError("this is no element of an array", where=ast.unparse(node), expected=_FORM, got=text)
    axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return node.value.id, tuple(_affine(axis) for axis in axes)


def _affine(node: ast.expr) -> Affine:
    """Return an index; sums, and products with a number."""
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
    raise NestError(
        "this index is not affine", where=ast.unparse(node), expected="loops, times numbers, added: 2*oh + kh"
    )


def _shaped(
    array: str, index: tuple[Affine, ...], extents: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> Access:
    check_name(array)
    if unknown := {name for one in index for name in one.loops} - extents.keys():
        raise NestError("an index names what is no loop", where=array, expected=", ".join(extents),
                        got=", ".join(unknown), todo="give its extent: nest(..., i=4)")  # fmt: skip
    ends = [one.limits(extents) for one in index]
    shape = tuple(shapes.get(array, [most + 1 for _, most in ends]))
    fits = len(shape) == len(ends) and all(
        least >= 0 and most < size for (least, most), size in zip(ends, shape, strict=False)
    )
    if not fits:
        reach = ", ".join(f"{least}..{most}" for least, most in ends)
        raise NestError("the loops reach beyond the array", where=array, expected=f"a shape that holds [{reach}]",
                        got=list(shape))  # fmt: skip
    return Access(array, shape, index)


def _check_names(accesses: Sequence[Access], loops: Mapping[str, int], shapes: Mapping[str, object]) -> None:
    arrays = [access.array for access in accesses]
    if len(set(arrays)) != len(arrays):
        raise NestError("an array stands twice in the statement", got=", ".join(arrays),
                        todo="an output that is also read has an order that must be kept, which a nest does not know; "
                        "give an input that is read twice two names")  # fmt: skip
    if clash := {*map(packed_name, arrays)} & {*arrays}:
        raise NestError("an array has the name of a packed copy", got=", ".join(clash), todo="choose another one")
    if clash := {*arrays, *map(packed_name, arrays)} & loops.keys():
        raise NestError("a loop and an array have one name", got=", ".join(clash))
    if unknown := shapes.keys() - set(arrays):
        raise NestError("a shape belongs to no array", expected=", ".join(arrays), got=", ".join(unknown))
    if idle := loops.keys() - frozenset().union(*(access.loops for access in accesses)):
        raise NestError("a loop indexes nothing: it would only repeat the sum", got=", ".join(idle))
