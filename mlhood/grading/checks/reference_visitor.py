"""The references of a statement: what it names, calls, changes and passes on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mlhood.grading.checks.closed_world_lists import MUTATING_METHODS
from mlhood.grading.checks.scopes import (
    Function,
    Origins,
    annotations_of,
    bound_names,
    is_module,
    line_of,
    own_nodes,
    parameters,
    root_name,
)

MATRIX_PRODUCT = "numpy.matmul"  # what `a @ b` and `a.dot(b)` are
MAX_STEPS = 500_000  # of an analysis; solutions of the course need less than ten thousand


class TooMuchCodeError(Exception):
    """An analysis takes more steps than any honest notebook needs."""


@dataclass
class Steps:
    """The steps of an analysis so far: what a statement costs grows with what came before it."""

    taken: int = 0

    def take(self, count: int) -> None:
        """Take steps.

        Raises:
            TooMuchCodeError: There were too many.
        """
        self.taken += count
        if self.taken > MAX_STEPS:
            raise TooMuchCodeError


@dataclass
class StatementReferences:
    """The references of a statement.

    Attributes:
        dotted: Dotted names, with the line.
        modules: Those of modules that are used as values.
        now: Names of the notebook that are looked up when the statement runs.
        later: Names of the notebook that are looked up when its functions are called.
        mutated: Names of the notebook whose value it changes in place.
        mutates: Whether one of its functions changes a parameter in place.
        calls: Names of the notebook that it calls, or calls a method of, each with the names in the call.
        escapes: For each call outside of functions, what it may change and store (see `_passed`).
    """

    dotted: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    now: dict[str, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)
    mutated: set[str] = field(default_factory=set)
    mutates: bool = False
    calls: list[tuple[str, set[str]]] = field(default_factory=list)
    escapes: list[tuple[set[str], dict[str, str], set[str]]] = field(default_factory=list)


def read_statement(statement: ast.stmt, origins: Origins, lines: Sequence[str], steps: Steps) -> StatementReferences:
    """Return the references of a statement.

    Args:
        statement: A statement outside of functions.
        origins: The dotted names of what was imported before.
        lines: Of its cell.
        steps: Those that it takes are added.

    Raises:
        TooMuchCodeError: There were too many.
        RecursionError: It is nested too deeply.
    """
    visitor = _ReferenceVisitor(origins, lines, steps)
    visitor.visit(statement)
    return visitor.read


class _ReferenceVisitor(ast.NodeVisitor):
    def __init__(self, origins: Origins, lines: Sequence[str], steps: Steps) -> None:
        self.read = StatementReferences()
        self.origins = origins
        self.lines = lines
        self._steps = steps
        self._locals: list[set[str]] = []
        self._parameters: list[set[str]] = []
        self._bases: set[int] = set()  # what attributes are taken of

    def visit_Import(self, node: ast.Import) -> None:
        self._import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if self._locals:  # otherwise it defines names of the notebook
            for name in self.origins.add_import(node):
                self.read.dotted.update({path: line_of(node, self.lines) for path in self.origins.names[name]})

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._visit_scope(node, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_scope(node, [node.body])

    def _visit_scope(self, scope: Function, body: Iterable[ast.AST]) -> None:
        """Visit a function, whose parameters and local names hide those of the notebook. Annotations do not count."""
        for default in (*scope.args.defaults, *scope.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for node in (node for part in annotations_of(scope) for node in ast.walk(part)):
            if isinstance(node, ast.NamedExpr):  # which binds a name outside
                self.visit(node)
        names = parameters(scope) | bound_names(body)
        outside, self.origins = self.origins, self.origins.without(names)
        self._locals.append(names)
        self._parameters.append(parameters(scope))
        for part in body:
            self.visit(part)
        self._parameters.pop()
        self._locals.pop()
        self.origins = outside

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if self._locals:
            self.origins.assign(node)
        if self._parameters and root_name(node.value) in self._parameters[-1]:
            self._parameters[-1] |= bound_names([node])  # a part of what was passed

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._operate(node)
        self.generic_visit(node)

    def _operate(self, node: ast.BinOp | ast.AugAssign) -> None:
        """Refer to the function of an operator that a task may forbid."""
        if isinstance(node.op, ast.MatMult):
            self.read.dotted.setdefault(MATRIX_PRODUCT, line_of(node, self.lines))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._operate(node)
        self.generic_visit(node)
        self._add_mutated(node.target)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._bases.add(id(node.value))
        self._refer(node)
        self._mutate(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._mutate(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "dot":  # of an array
            self.read.dotted.setdefault(MATRIX_PRODUCT, line_of(node, self.lines))
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING_METHODS:
            self._add_mutated(node.func)
        name = root_name(node.func)
        if name and not self._locals:
            self.read.calls.append((name, {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}))
        if not self._locals:
            self.read.escapes.append(self._passed(node))
        self._refer(node)
        self.generic_visit(node)

    def _passed(self, call: ast.Call) -> tuple[set[str], dict[str, str], set[str]]:
        """Return what a call outside of functions may change, and what it may store there.

        Returns:
            Names of its receiver and in its arguments, unless another call gets them; dotted names in its arguments,
            with the line; and names of the notebook there.
        """
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        changed = {node.id for node in _outside_of_calls(arguments) if isinstance(node, ast.Name)}
        receiver = root_name(call.func)
        bodies = arguments + ([call.func.body] if isinstance(call.func, ast.Lambda) else [])
        nodes = [node for argument in bodies for node in ast.walk(argument)]
        self._steps.take(len(nodes))
        used = {id(node.func) for node in own_nodes(arguments) if isinstance(node, ast.Call)}
        used |= {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        values = [node for node in nodes if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in used]
        line = line_of(call, self.lines)
        dotted = {path: line for node in values for path in self.origins.dotted(node)}
        return changed | ({receiver} - {""}), dotted, {node.id for node in values if isinstance(node, ast.Name)}

    def visit_Name(self, node: ast.Name) -> None:
        if self._is_local(node.id):
            self._refer(node)
        elif not isinstance(node.ctx, ast.Load):
            self.read.mutated.update([node.id] if self._locals else ())  # it is declared global
        else:
            self._refer(node)
            (self.read.later if self._locals else self.read.now).setdefault(node.id, line_of(node, self.lines))

    def _refer(self, node: ast.expr) -> None:
        for dotted in self.origins.dotted(node):
            self.read.dotted.setdefault(dotted, line_of(node, self.lines))
            if id(node) not in self._bases and is_module(dotted):
                self.read.modules.setdefault(dotted, line_of(node, self.lines))

    def _mutate(self, node: ast.Attribute | ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._add_mutated(node)

    def _add_mutated(self, node: ast.expr) -> None:
        name = root_name(node)
        if any(name in names for names in self._parameters):
            self.read.mutates = True
        elif name and not self._is_local(name):
            self.read.mutated.add(name)

    def _is_local(self, name: str) -> bool:
        return any(name in names for names in self._locals)


def _outside_of_calls(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of expressions, without the calls and lambdas in them."""
    for node in nodes:
        if not isinstance(node, (ast.Call, ast.Lambda)):
            yield node
            yield from _outside_of_calls(ast.iter_child_nodes(node))
