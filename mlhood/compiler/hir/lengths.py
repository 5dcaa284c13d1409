"""Lengths of axes as expressions: their value when the names in them are known.

An expression is what the type rules write (`add_dims`, `product`, `divide_dim`, `scale_dim`): names of axes and numbers
with + - * // and ceil, floor, max. It is read as Python would read it, but nothing is executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from mlhood.compiler.hir.types import Dim, add_dims, divide_dim, product, quotient
from mlhood.errors import CompilerError

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/"}
Fold = Callable[[str, Any, Any], Any]


def subtract_dims(first: Dim, second: Dim) -> Dim | None:
    """Return the difference of two lengths; None if it cannot be expressed."""
    if first == second:
        return 0
    if isinstance(second, int):
        return add_dims(first, -second)
    if isinstance(first, str) and first.startswith(f"{second}+") and first[len(second) + 1 :].isdecimal():
        return int(first[len(second) + 1 :])
    return None


def floor_divide(axis: Dim, divisor: Dim) -> Dim | None:
    """Return a length divided by another, rounded down; None if it cannot be expressed."""
    exact = quotient([axis], [divisor])
    if exact is not None:
        return exact
    return divide_dim(axis, divisor) if isinstance(divisor, int) and divisor > 0 else None


def names_in(expression: Dim, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return which of the names an expression consists of; None if it is not an expression of them alone."""
    if isinstance(expression, int):
        return ()
    if expression in names:
        return (expression,)
    tree, found = _parse(expression, tuple(sorted(names, key=len, reverse=True)))
    return None if tree is None else found


def fold(expression: Dim, leaves: Mapping[str, Any], number: Callable[[int], Any], combine: Fold) -> Any:
    """Return what an expression gives when its names are replaced by leaves and its operations by `combine`.

    Args:
        expression: A number, a name or an expression of names.
        leaves: What stands for each name.
        number: Makes a leaf of a number.
        combine: Takes an operation ("+", "-", "*", "//" or "max") and what its two operands give.

    Raises:
        CompilerError: The expression has other names or operations.
    """
    if isinstance(expression, int):
        return number(expression)
    if expression in leaves:
        return leaves[expression]
    names = tuple(sorted(leaves, key=len, reverse=True))
    tree, found = _parse(expression, names)
    if tree is None:
        raise CompilerError("the length of an axis cannot be computed", expected=", ".join(names), got=expression)
    return _fold(tree, [leaves[name] for name in found], number, combine)


def evaluate(expression: Dim, lengths: Mapping[str, Dim]) -> Dim:
    """Return an expression with its names replaced by lengths: a number if all of these are numbers.

    Raises:
        CompilerError: The expression has other names.
    """
    if all(name == length for name, length in lengths.items()):
        return expression
    return fold(expression, lengths, lambda number: number, _combine)


def _combine(operation: str, first: Dim, second: Dim) -> Dim:
    if operation == "*":
        return product((first, second))
    if operation == "+":
        return add_dims(first, second)
    if operation == "max":
        if isinstance(first, int) and isinstance(second, int):
            return max(first, second)
        return f"max({first}, {second})"
    result = subtract_dims(first, second) if operation == "-" else floor_divide(first, second)
    return f"({first}){operation}({second})" if result is None else result


@lru_cache(4096)
def _parse(expression: str, names: tuple[str, ...]) -> tuple[ast.expr | None, tuple[str, ...]]:
    """Return the tree of an expression, in which _i stands for the i-th name found; None if there are others."""
    found: list[str] = []

    def variable(match: re.Match[str]) -> str:
        if match[0] not in found:
            found.append(match[0])
        return f"_{found.index(match[0])}"

    text = expression
    if names:
        text = re.sub(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?![\w.])", variable, expression)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, ()
    return (tree, tuple(found)) if _is_supported(tree) else (None, ())


def _is_supported(tree: ast.expr) -> bool:
    if isinstance(tree, ast.Constant):
        return _is_integer(tree)
    if isinstance(tree, ast.Name):
        return re.fullmatch(r"_\d+", tree.id) is not None
    if isinstance(tree, ast.UnaryOp):
        return isinstance(tree.op, ast.USub) and _is_supported(tree.operand)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Div):
        return False  # only within ceil(a/b), below
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in _OPERATORS and _is_supported(tree.left) and _is_supported(tree.right)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.keywords:
        return False
    name, arguments = tree.func.id, tree.args
    if name == "ceil" and len(arguments) == 1 and isinstance(arguments[0], ast.BinOp):
        part = arguments[0]
        return isinstance(part.op, ast.Div) and _is_supported(part.left) and _is_integer(part.right)
    return name == "max" and len(arguments) == 2 and all(map(_is_supported, arguments))


def _is_integer(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and isinstance(tree.value, int)


def _fold(tree: ast.expr, leaves: Sequence[Any], number: Callable[[int], Any], combine: Fold) -> Any:
    def walk(part: ast.expr) -> Any:
        return _fold(part, leaves, number, combine)

    if isinstance(tree, ast.Name):
        return leaves[int(tree.id[1:])]
    if isinstance(tree, ast.Constant):
        return number(int(str(tree.value)))
    if isinstance(tree, ast.UnaryOp):
        return combine("-", number(0), walk(tree.operand))
    if isinstance(tree, ast.BinOp):
        return combine(_OPERATORS[type(tree.op)], walk(tree.left), walk(tree.right))
    if isinstance(tree, ast.Call) and len(tree.args) == 2:
        return combine("max", walk(tree.args[0]), walk(tree.args[1]))
    match tree:
        case ast.Call(args=[ast.BinOp(left=left, right=ast.Constant(value=int(divisor)))]):  # ceil(left/divisor)
            return combine("//", combine("+", walk(left), number(divisor - 1)), number(divisor))
    raise CompilerError("the length of an axis cannot be computed", got=ast.unparse(tree))
