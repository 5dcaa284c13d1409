"""Takes from our modules what a request needs of them, as text, so that a sandbox does not contain their files.

Of a module, the text has the statements that define a name, the names which these use, and so on, also across modules
of `mlhood.grading`; everything else of the package is there to import. Nothing is imported here: some probes need JAX,
which a grader does not load.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

GRADING = "mlhood.grading"
RPC = "mlhood.grading.rpc"  # importable in the student's process
PACKAGE = "__init__.py"
ROOT = Path(__file__).parents[3]

Name = tuple[str, str]  # a module, and a name in it


def python_path() -> str:
    """Return the `PYTHONPATH` with which another process of ours imports this package."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def is_sent(module: str) -> bool:
    """Whether a module does not exist in a sandbox, so that its source has to be sent."""
    return module.startswith(f"{GRADING}.") and not (module == RPC or module.startswith(f"{RPC}."))


@functools.cache
def sources_of(target: str) -> dict[str, str]:
    """Return the sources that a request for `module:name` needs, by module, imported ones first; none if not ours.

    Raises:
        LookupError: There is no such module or name, or a module of ours is imported as a whole.
    """
    module, _, name = target.partition(":")
    return _sources([(module, name)]) if is_sent(module) else {}


def _sources(names: Iterable[Name]) -> dict[str, str]:
    needed: dict[str, set[str]] = {}
    waiting = list(names)
    while waiting:
        module, name = waiting.pop()
        if name not in needed.setdefault(module, set()):
            needed[module].add(name)
            waiting += _uses(module, name)
    return {module: _text(module, frozenset(needed[module])) for module in _ordered(needed)}


def _uses(module: str, name: str) -> Iterator[Name]:
    """Yield the names that the definition of a name uses, in its own module and in others of ours."""
    for statement in _defining(module, name):
        if isinstance(statement, ast.ImportFrom) and is_sent(statement.module or ""):
            yield from ((str(statement.module), alias.name) for alias in statement.names if _bound(alias) == name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom) and is_sent(node.module or ""):
                yield from ((str(node.module), alias.name) for alias in node.names)
            elif isinstance(node, ast.Name) and node.id in _definitions(module):
                yield module, node.id


def _ordered(needed: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """Return the modules so that each comes after those from which it imports."""
    used = {module: {other for name in needed[module] for other, _ in _uses(module, name)} for module in needed}
    return TopologicalSorter({module: others - {module} for module, others in used.items()}).static_order()


def _text(module: str, names: frozenset[str]) -> str:
    """Return the statements of a module that define these names, in their order, without comments."""
    statements = [part for statement in _tree(module).body for part in _kept(statement, names)]
    return ast.unparse(ast.Module(statements, []))


def _kept(statement: ast.stmt, names: frozenset[str]) -> list[ast.stmt]:
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return [statement]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        aliases = [alias for alias in statement.names if _bound(alias) in names]
        if not aliases:
            return []
        if isinstance(statement, ast.Import):
            return [ast.Import(aliases)]
        return [ast.ImportFrom(statement.module, aliases, statement.level)]
    return [statement] if names & defined(statement) else []


def _defining(module: str, name: str) -> list[ast.stmt]:
    statements = _definitions(module).get(name, [])
    modules = (alias.name for statement in statements if isinstance(statement, ast.Import) for alias in statement.names)
    if not statements or any(map(is_sent, modules)):
        raise LookupError(f"{module}:{name} cannot be sent to a student's process")
    return statements


@functools.cache
def _definitions(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of a module by the names that they define."""
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in _tree(module).body:
        for name in defined(statement):
            definitions.setdefault(name, []).append(statement)
    return definitions


def defined(statement: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a module defines."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {_bound(alias) for alias in statement.names}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


@functools.cache
def _tree(module: str) -> ast.Module:
    path = module_file(module)
    if path is None or path.name == PACKAGE:
        raise LookupError(f"{module} cannot be sent to a student's process: it is no module")
    return ast.parse(path.read_text(encoding="utf-8"))


def module_file(module: str) -> Path | None:
    """Return the file of a module or package of ours, None if there is none."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path / PACKAGE, path.with_suffix(".py")) if file.is_file()), None)
