"""Other ways to write the same Python: variants of a right solution, all of which a task's checks have to accept."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """A way to write a solution.

    Args:
        name: In words.
        sources: Of the solution's cells, by the cell's name.
    """

    name: str
    sources: dict[str, str]


def styles(sources: Mapping[str, str]) -> Iterator[Style]:
    """Yield the variants of a solution, each with one other style throughout; none that changes nothing.

    Args:
        sources: Of its cells, by the cell's name.
    """
    for name, rewrite in STYLES.items():
        rewritten = {cell: rewrite(ast.parse(source)) for cell, source in sources.items()}
        changed = {cell: ast.unparse(ast.fix_missing_locations(tree)) for cell, tree in rewritten.items()}
        if changed != {cell: ast.unparse(ast.parse(source)) for cell, source in sources.items()}:
            yield Style(name, changed)


def other_names(tree: ast.Module) -> ast.Module:
    """Rename the local variables of each function."""
    for function in _functions(tree):
        fixed = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg | ast.keyword) and node.arg}
        fixed |= {
            name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names
        }
        stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and _is_stored(node)}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in stored - fixed:
                node.id = f"my_{node.id}"
    return tree


def helper_functions(tree: ast.Module) -> ast.Module:
    """Move the body of each function to one of another name, which it calls."""
    body: list[ast.stmt] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.args.vararg or node.args.kwarg or node.args.kwonlyargs:
            body.append(node)
            continue
        inner = copy.deepcopy(node)
        inner.name = f"compute_{node.name}"
        names: list[ast.expr] = [ast.Name(arg.arg, ast.Load()) for arg in (*node.args.posonlyargs, *node.args.args)]
        call = ast.Call(ast.Name(inner.name, ast.Load()), names, [])
        body += [inner, ast.FunctionDef(node.name, node.args, [ast.Return(call)], node.decorator_list)]
    return ast.Module(body, [])


def inverted_conditions(tree: ast.Module) -> ast.Module:
    """Swap the branches of every condition, and negate it."""
    return _Inverted().visit(tree)


class _Inverted(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse or [ast.Pass()], node.body)

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        self.generic_visit(node)
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)


def spelled_out(tree: ast.Module) -> ast.Module:
    """Write `a[i] = a[i] + b` for `a[i] += b`, and a name for what is returned."""
    return _SpelledOut().visit(tree)


class _SpelledOut(ast.NodeTransformer):
    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Subscript):
            return node
        value = copy.deepcopy(node.target)
        value.ctx = ast.Load()
        return ast.Assign([node.target], ast.BinOp(value, node.op, node.value), lineno=node.lineno)

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        if node.value is None or isinstance(node.value, ast.Name | ast.Constant):
            return node
        assigned = ast.Assign([ast.Name("answer", ast.Store())], node.value, lineno=node.lineno)
        return [assigned, ast.Return(ast.Name("answer", ast.Load()))]


def numpy_scalars(tree: ast.Module) -> ast.Module:
    """Return every number of a dictionary, a list, a tuple or alone as NumPy's scalar."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    if not functions:
        return tree
    for function in functions:
        function.decorator_list = [ast.Name("with_numpy_scalars", ast.Load())]
    return ast.Module([*ast.parse(NUMPY_SCALARS).body, *tree.body], [])


NUMPY_SCALARS = """
import functools
import numpy as np

def as_numpy_scalar(value):
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**62:
        return np.int64(value)
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, dict):
        return {key: as_numpy_scalar(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(as_numpy_scalar(item) for item in value)
    return value

def with_numpy_scalars(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return as_numpy_scalar(function(*args, **kwargs))
    return call
"""


def other_order(tree: ast.Module) -> ast.Module:
    """Define the functions of a cell in the opposite order, without docstrings."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    places = iter(reversed(functions))
    tree.body = [next(places) if isinstance(node, ast.FunctionDef) else node for node in tree.body]
    for function in functions:
        if ast.get_docstring(function) is not None and len(function.body) > 1:
            del function.body[0]
    return tree


STYLES: dict[str, Callable[[ast.Module], ast.Module]] = {
    "other names": other_names,
    "helper functions": helper_functions,
    "inverted conditions": inverted_conditions,
    "assignments spelled out": spelled_out,
    "NumPy scalars": numpy_scalars,
    "definitions in another order": other_order,
}


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
