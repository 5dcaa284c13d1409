"""What the course's modules define and import, read from their source: nothing is imported, and nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mlhood.grading.checks.scopes import Origins

PACKAGE = Path(__file__).parents[2]
MAX_NAMES = 50  # under which one thing may be known
MAX_CHARACTERS = 100  # of a part of a name: of a file, at most


def is_function(dotted: str) -> bool:
    """Whether a dotted name is that of a function which a module of the course defines."""
    module, _, name = dotted.rpartition(".")
    tree = _tree(module)
    return tree is not None and any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


@cache
def aliases(dotted: str) -> frozenset[str]:
    """Return a dotted name, and the names from which modules of the course have imported what it names.

    `mlhood.jaxlab.autodiff.backward` is `mlhood.jaxlab.autodiff.tape.backward`, which its package imports.
    """
    found, pending = {dotted}, [dotted]
    while pending and len(found) < MAX_NAMES:
        new = _imported_as(pending.pop()) - found
        found |= new
        pending += new
    return frozenset(found)


def _imported_as(dotted: str) -> set[str]:
    """Return the names that a dotted name has by the imports of the modules that it begins with."""
    parts, found = dotted.split("."), set()
    for end in range(1, len(parts)):
        origins = _origins(".".join(parts[:end]))
        sources = origins.names.get(parts[end], frozenset()) if origins else ()
        found |= {".".join([source, *parts[end + 1 :]]) for source in sources}
    return found


@cache
def _origins(module: str) -> Origins | None:
    """Return what the names in a module of the course were imported from; None for anything else.

    A name that is imported `as` itself is the module's own from then on: whoever may use the module may use it, too.
    """
    tree = _tree(module)
    if tree is None:
        return None
    origins = Origins()
    for node in _outside_of_functions(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [alias for alias in node.names if alias.asname != alias.name]
            origins.add_import(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            origins.assign(node)
    return origins


def _outside_of_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module in order, also those under an `if` or a `try`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            yield node
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _outside_of_functions(node)


@cache
def _tree(module: str) -> ast.Module | None:
    top, *rest = module.split(".")
    if top != PACKAGE.name or not all(part.isidentifier() and len(part) <= MAX_CHARACTERS for part in rest):
        return None
    path = PACKAGE.joinpath(*rest)
    files = [path.with_suffix(".py"), path / "__init__.py"] if rest else [path / "__init__.py"]
    file = next((file for file in files if file.is_file()), None)
    return None if file is None else ast.parse(file.read_text(encoding="utf-8"))
