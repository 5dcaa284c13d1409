"""The static analysis that finds forbidden names which a solution uses, in the source of its cells.

Cells are analysed in the order in which they run; nothing of them is executed. For every name that a notebook defines,
the analysis records which dotted names its definition refers to (`torch.nn.functional.unfold`, through imports,
aliases, `getattr` and `import_module` with constant strings) and which other names of the notebook, so that the
references of a helper count for its callers. A check that calls a function then asks which names are reachable from
it. Code that no definition reaches, such as a comparison with torch in a cell of its own, does not count.

Names that are computed at run time are not found here; `rpc.call_recorder` finds some of them.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mlhood.grading.rpc.call_recorder import is_within

ALWAYS_FORBIDDEN = ("mlhood.grading",)  # the checks and their reference implementations
MAX_LINE_CHARACTERS = 120
CELL_MAGICS = ("time", "timeit", "capture", "prun")  # that run the rest of their cell
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class ForbiddenUse:
    """A forbidden name that is used, and the line that uses it."""

    name: str
    line: str


@dataclass
class Definition:
    """The references of a name's definition: dotted names and names of the notebook, each with its line."""

    dotted: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def add(self, other: Definition) -> None:
        """Add the references of another definition."""
        self.dotted.update(other.dotted)
        self.names.update(other.names)


class ReferenceAnalysis:
    """The definitions of the cells analysed so far.

    Attributes:
        origins: The dotted name of every imported name or alias.
        definitions: The references of every other name.
        star_imports: Modules of `from module import *`.
    """

    def __init__(self) -> None:
        self.origins: dict[str, str] = {}
        self.definitions: dict[str, Definition] = {}
        self.star_imports: list[str] = []

    def add_cell(self, source: str, *, trusted: bool = False) -> None:
        """Analyse a cell.

        Args:
            source: Its source, magics included. A cell that is not valid Python defines nothing.
            trusted: Whether the course wrote it: its definitions may refer to anything.
        """
        try:
            code = _as_python(source)
            for statement in ast.parse(code).body:
                self._add_statement(statement, code.splitlines(), trusted)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return

    def find_forbidden(self, names: Iterable[str], forbidden: Iterable[str]) -> ForbiddenUse | None:
        """Return the first forbidden name that is reachable from any of these names of the notebook."""
        scopes, pending, visited = tuple(forbidden), sorted(names), set()
        while pending:
            name = pending.pop()
            if name in visited:
                continue
            visited.add(name)
            definition = self.definitions.get(name, Definition())
            dotted_names = {**definition.dotted, **self._star_references(definition)}
            for dotted, line in dotted_names.items():
                scope = next((scope for scope in scopes if is_within(dotted, scope)), None)
                if scope:
                    return ForbiddenUse(scope, line)
            pending.extend(definition.names)
        return None

    def _star_references(self, definition: Definition) -> dict[str, str]:
        """Return the dotted names that undefined names may have through star imports."""
        undefined = {
            name: line
            for name, line in definition.names.items()
            if name not in self.definitions and name not in self.origins
        }
        return {f"{module}.{name}": line for module in self.star_imports for name, line in undefined.items()}

    def _add_statement(self, statement: ast.stmt, lines: list[str], trusted: bool) -> None:
        for source in _executed_sources(statement):
            self.add_cell(source, trusted=trusted)
        visitor = _ReferenceVisitor(dict(self.origins), lines)
        visitor.visit(statement)
        self.star_imports += visitor.star_imports
        references = Definition() if trusted else visitor.references
        bound = _bound_names(statement)
        for name in bound:
            if isinstance(statement, (*DEFINITIONS, ast.Assign)):
                self.definitions[name] = Definition()
            self.definitions.setdefault(name, Definition()).add(references)
        for name, line in visitor.imported.items():
            self.definitions[name] = Definition({visitor.origins.get(name, name): line})
        for name in {*bound, *visitor.imported}:
            self.origins.pop(name, None)
            if trusted and any(is_within(visitor.origins.get(name, ""), scope) for scope in ALWAYS_FORBIDDEN):
                self.definitions[name] = Definition()  # a stand-in: calling it is calling the solution of its task
            elif name in visitor.origins:
                self.origins[name] = visitor.origins[name]


class _ReferenceVisitor(ast.NodeVisitor):
    """Collects the references of a statement.

    Args:
        origins: The dotted names of imported names and aliases before the statement; updated by it.
        lines: The lines of the cell.
    """

    def __init__(self, origins: dict[str, str], lines: list[str]) -> None:
        self.origins = origins
        self.lines = lines
        self.references = Definition()
        self.imported: dict[str, str] = {}
        self.star_imports: list[str] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._import(name, alias.name if alias.asname else name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self.star_imports.append(node.module or "")
            else:
                self._import(alias.asname or alias.name, f"{node.module}.{alias.name}", node)

    def _import(self, name: str, dotted: str, node: ast.stmt) -> None:
        self.origins[name] = dotted
        self.imported[name] = self._line(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outer in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if outer is not None:
                self.visit(outer)
        self._visit_scope(node, node.body)
        self.origins.pop(node.name, None)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._visit_scope(node, [node.body])

    def _visit_scope(self, scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, body: list) -> None:
        """Visit the body of a function, whose parameters and local names hide those of the notebook."""
        inner = _ReferenceVisitor(dict(self.origins), self.lines)
        parameters = {argument.arg for argument in ast.walk(scope.args) if isinstance(argument, ast.arg)}
        for name in parameters:
            inner.origins.pop(name, None)
        for part in body:
            inner.visit(part)
        local = parameters.union(*(_bound_names(part) for part in body if isinstance(part, ast.stmt)))
        self.references.dotted.update(inner.references.dotted)
        self.references.names.update({name: line for name, line in inner.references.names.items() if name not in local})
        self.star_imports += inner.star_imports

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for element, value in pairs:
                self._assign(element, value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        dotted = self.dotted(value)
        for name in _target_names(target):
            self.origins.pop(name, None)
            if dotted:
                self.origins[name] = dotted
        if not isinstance(target, ast.Name):
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._refer(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._refer(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._refer(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._refer(node)
            self.references.names.setdefault(node.id, self._line(node))

    def _refer(self, node: ast.expr) -> None:
        dotted = self.dotted(node)
        if dotted:
            self.references.dotted.setdefault(dotted, self._line(node))
        if not isinstance(node, ast.Name):
            self.generic_visit(node)

    def _line(self, node: ast.expr | ast.stmt) -> str:
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        return line.strip()[:MAX_LINE_CHARACTERS]

    def dotted(self, node: ast.expr) -> str | None:
        """Return the dotted name that an expression denotes, if it is constant."""
        if isinstance(node, ast.Name):
            return self.origins.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return base and (base if node.attr == "__dict__" else f"{base}.{node.attr}")
        if isinstance(node, ast.Subscript):
            base, key = self.dotted(node.value), _constant_string(node.slice)
            return (key if base == "sys.modules" else f"{base}.{key}") if base and key else None
        return self._dotted_call(node) if isinstance(node, ast.Call) else None

    def _dotted_call(self, node: ast.Call) -> str | None:
        """Return the dotted name that a call of `vars`, `getattr`, `__import__` or `import_module` returns."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        first = node.args[0] if node.args else None
        if first is None:
            return None
        if name == "vars":
            return self.dotted(first)
        if name == "getattr" and len(node.args) > 1:
            base, attribute = self.dotted(first), _constant_string(node.args[1])
            return f"{base}.{attribute}" if base and attribute else None
        if name == "__import__":
            return (_constant_string(first) or "").partition(".")[0] or None
        return _constant_string(first) if self.dotted(node.func) == "importlib.import_module" else None


def _constant_string(node: ast.expr) -> str | None:
    """Return the value of a constant string expression."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _constant_string(node.left), _constant_string(node.right)
        return None if left is None or right is None else left + right
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _bound_names(statement: ast.AST) -> set[str]:
    """Return the names that a statement binds, other than by importing and in function bodies."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    if isinstance(statement, SCOPES):
        return set()
    names = set(_target_names(statement)) if isinstance(statement, (ast.Name, ast.Subscript)) else set()
    return names.union(*(_bound_names(child) for child in ast.iter_child_nodes(statement)))


def _target_names(target: ast.AST) -> Iterator[str]:
    """Yield the names of an assignment's target: x, (x, y), and `globals()["x"]`."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Call):
            function, name = node.value.func, _constant_string(node.slice)
            if name and isinstance(function, ast.Name) and function.id in ("globals", "locals", "vars"):
                yield name


def _executed_sources(statement: ast.stmt) -> Iterator[str]:
    """Yield constant source that a statement runs: by `exec`, or as a cell after a magic such as `%%time`."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval"):
            yield _constant_string(node.args[0]) or ""
        elif isinstance(node.func, ast.Attribute) and _constant_string(node.args[0]) in CELL_MAGICS:
            yield _constant_string(node.args[-1]) or ""


def _as_python(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in a student's strings
        code = TransformerManager().transform_cell(source)
        ast.parse(code)
    return code
