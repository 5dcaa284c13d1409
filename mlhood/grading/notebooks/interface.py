"""The public interface of the package: what the code of the course's notebooks imports from it, and the page of it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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
    found: set[PublicName] = set()
    names: dict[str, object] = {}  # that the notebook has imported
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        nodes = list(ast.walk(ast.parse(_MAGIC.sub(r"\1pass", cell.source))))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom) and re.search(rf"\b{PACKAGE}\b", ast.unparse(node)):
                exec(ast.unparse(node), names)  # noqa: S102 - the course's own notebooks
                if isinstance(node, ast.ImportFrom) and node.module:
                    imported = {alias.name: names[alias.asname or alias.name] for alias in node.names}
                    found |= {
                        PublicName(node.module, name) for name, value in imported.items() if not _is_module(value)
                    }
        for node in nodes:
            if isinstance(node, ast.Attribute) and ast.unparse(node).partition(".")[0] in names:
                module = _value(node.value, names)
                if _is_module(module) and not _is_module(getattr(module, node.attr, None)):
                    found.add(PublicName(module.__name__, node.attr))
    return found


def _value(node: ast.expr, names: dict[str, object]) -> Any:
    """Return the value of a dotted name; None if the node is none."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    return getattr(_value(node.value, names), node.attr, None) if isinstance(node, ast.Attribute) else None


def _is_module(value: object) -> bool:
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] == PACKAGE
