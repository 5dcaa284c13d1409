"""Names in Python code as its scopes bind them, read from the syntax tree: what is local, and what was imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MAX_LINE_CHARACTERS = 120
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Origins:
    """The dotted names that imported names and their aliases may have, such as `torch.nn.functional` of `F`.

    A name has several if it was bound where nobody knows whether that code ran.

    Attributes:
        names: Dotted names by name; none for a name that something else is assigned to.
        star_imports: Modules that are imported by `*`.
    """

    def __init__(self, names: dict[str, frozenset[str]] | None = None, star_imports: Iterable[str] = ()) -> None:
        self.names = dict(names or {})
        self.star_imports = set(star_imports)

    def without(self, names: Iterable[str]) -> Origins:
        """Return a copy in which these names, local to a function, hide the imported ones."""
        hidden = set(names)
        names = {name: dotted for name, dotted in self.names.items() if name not in hidden}
        return Origins(names, self.star_imports)

    def bind(self, name: str, dotted: Iterable[str], *, certain: bool = False) -> None:
        """Give a name these dotted names: in place of its earlier ones if the binding is certain, else beside them."""
        self.names[name] = frozenset(dotted) if certain else self.names.get(name, frozenset()).union(dotted)

    def add_import(self, node: ast.Import | ast.ImportFrom, *, certain: bool = False) -> list[str]:
        """Bind the names of an import, and return them; those of `import *` are not known."""
        names = []
        for alias in node.names:
            if alias.name == "*":
                self.star_imports.add(getattr(node, "module", None) or "")
                continue
            top = alias.name.partition(".")[0]
            if isinstance(node, ast.ImportFrom):
                name, dotted = alias.asname or alias.name, f"{node.module}.{alias.name}"
            else:
                name, dotted = alias.asname or top, alias.name if alias.asname else top
            self.bind(name, [dotted], certain=certain)
            names.append(name)
        return names

    def assign(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr, *, certain: bool = False) -> None:
        """Follow an assignment: a name becomes an alias of what has a dotted name."""
        if node.value is None:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs: list[tuple[ast.expr, ast.expr]] = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for element, value in pairs:
                for name in stored_names(element):
                    self.bind(name, self.dotted(value), certain=certain)

    def dotted(self, node: ast.AST) -> frozenset[str]:
        """Return the dotted names that an imported name, or an attribute of one, may have; none for anything else."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, frozenset())
        if isinstance(node, ast.Attribute):
            return frozenset(f"{base}.{node.attr}" for base in self.dotted(node.value))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            attribute = constant_string(node.args[1]) if len(node.args) > 1 else None
            return frozenset(f"{base}.{attribute}" for base in self.dotted(node.args[0])) if attribute else frozenset()
        return frozenset()


def bound_names(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that code binds in its own scope, other than those that it declares global."""
    names: set[str] = set()
    shared: set[str] = set()
    for node in own_nodes(body):
        if isinstance(node, DEFINITIONS):
            names.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            shared.update(node.names)
    return names - shared


def own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of code, without the bodies of the functions and classes that it defines."""
    pending = list(body)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (*SCOPES, ast.ClassDef)):
            pending.extend(_evaluated_outside(node))
        elif not isinstance(node, ast.arg):
            pending.extend(ast.iter_child_nodes(node))


def _evaluated_outside(definition: Function | ast.ClassDef) -> Iterator[ast.AST]:
    """Yield what a definition evaluates in the scope around it: decorators, bases, default values and annotations."""
    yield from getattr(definition, "decorator_list", ())
    if isinstance(definition, ast.ClassDef):
        yield from (*definition.bases, *(keyword.value for keyword in definition.keywords))
        return
    yield from (default for _, default in defaults(definition))
    yield from annotations_of(definition)


def stored_names(target: ast.AST) -> list[str]:
    """Return the names in the target of an assignment: x, (x, y)."""
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def parameters(function: Function) -> set[str]:
    """Return the names of a function's parameters."""
    return {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}


def defaults(function: Function) -> list[tuple[str, ast.expr]]:
    """Return the parameters that have a default value, with it."""
    positional = [*function.args.posonlyargs, *function.args.args]
    last = zip(reversed(positional), reversed(function.args.defaults), strict=False)
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [(argument.arg, default) for argument, default in (*last, *named) if default is not None]


def annotations_of(function: Function) -> list[ast.expr]:
    """Return the annotations of a function's parameters and of its result."""
    parts = [node.annotation for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    return [part for part in (*parts, getattr(function, "returns", None)) if part is not None]


def first_parameter(function: Function) -> str:
    """Return the name of a function's first parameter, which is the object in a method; empty if it has none."""
    positional = [*function.args.posonlyargs, *function.args.args]
    return positional[0].arg if positional else ""


def root_of(node: ast.expr) -> ast.expr:
    """Return the expression whose value `x.a[0].b` is a part of: `x`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node


def root_name(node: ast.expr) -> str:
    """Return the name whose value an expression is a part of; empty if it is no name's."""
    root = root_of(node)
    return root.id if isinstance(root, ast.Name) else ""


def line_of(node: ast.AST, lines: Sequence[str]) -> str:
    """Return the line on which a node begins."""
    number = getattr(node, "lineno", 0)
    return lines[number - 1] if 0 < number <= len(lines) else ""


def constant_string(node: ast.expr | None) -> str | None:
    """Return the value of a constant string expression."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant_string(node.left), constant_string(node.right)
        return None if left is None or right is None else left + right
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_within(dotted: str, scope: str) -> bool:
    """Whether a dotted name is `scope` or begins with it: `torch.nn.functional` is within `torch.nn`."""
    return dotted == scope or dotted.startswith(scope + ".")


@cache
def is_module(dotted: str) -> bool:
    """Whether a dotted name is that of a module, by the files of its package: nothing is imported."""
    top, *rest = dotted.split(".")
    spec = PathFinder.find_spec(top)
    if spec is None or not rest:
        return spec is not None
    folders = [Path(folder, *rest[:-1]) for folder in spec.submodule_search_locations or ()]
    return any((folder / f"{rest[-1]}.py").is_file() or (folder / rest[-1]).is_dir() for folder in folders)
