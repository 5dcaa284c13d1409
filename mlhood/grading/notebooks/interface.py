"""The public interface of the package: what the code of the course's notebooks imports from it, and the page of it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import NamedTuple

from nbformat import NotebookNode

from mlhood.grading.notebooks.notebook import read

PACKAGE = "mlhood"
INTERFACE_PAGE = ".github/INTERFACE.md"
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
_HEAD = """# Public interface

What the notebooks import, and so what a change of the package must not break without a word in the
[changelog](CHANGELOG.md). `mlhood sync` writes this page from the notebooks' code.

| module | names | used in |
|---|---|---|
"""


class PublicName(NamedTuple):
    """A name of the public interface, and the module that notebooks import it from."""

    module: str
    name: str


def interface_page(notebooks: Iterable[Path]) -> str:
    """Return the page in Markdown: a row for each module, with its names and the notebooks that use them."""
    names: dict[str, set[str]] = defaultdict(set)
    users: dict[str, set[str]] = defaultdict(set)
    for path in notebooks:
        for module, name in imported_names(read(path)):
            names[module].add(name)
            users[module].add(path.stem)
    rows = [
        f"| `{module}` | {', '.join(f'`{name}`' for name in sorted(names[module]))} | {', '.join(sorted(by))} |"
        for module, by in sorted(users.items())
    ]
    return _HEAD + "\n".join(rows) + "\n"


def imported_names(notebook: NotebookNode) -> set[PublicName]:
    """Return what the code cells of a notebook import from the package, also as attributes of imported modules."""
    modules: dict[str, str] = {}  # by the name that the notebook has given them
    found: set[PublicName] = set()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        tree = ast.parse(_MAGIC.sub(r"\1pass", cell.source))
        for local, target in _package_imports(tree):
            modules.pop(local, None)
            if _is_module(target):
                modules[local] = target
            else:
                module, _, name = target.rpartition(".")
                found.add(PublicName(module, name))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                first, _, rest = ast.unparse(node.value).partition(".")
                module = ".".join([modules[first], *filter(None, [rest])]) if first in modules else ""
                if module and _is_module(module) and not _is_module(f"{module}.{node.attr}"):
                    found.add(PublicName(module, node.attr))
    return found


def _package_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the local name and the dotted name of each import from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield (alias.asname, alias.name) if alias.asname else (PACKAGE, PACKAGE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _is_module(dotted: str) -> bool:
    """Whether a dotted name is a module, and not something of the same name that its package exports."""
    package, _, name = dotted.rpartition(".")
    for path in (f"{package}:{name}", dotted):
        try:
            return isinstance(resolve_name(path), ModuleType)
        except (AttributeError, ImportError, ValueError):
            continue
    return False
