"""The public interface of the package: what the code of the course's notebooks imports from it, and the page of it.

In: notebooks, and the package's sources, which say what is a module; nothing is imported. Out: names by module, with
the projects that use them, and `.github/INTERFACE.md`, which `mlhood sync` writes.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import NotebookError
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


@dataclass(frozen=True, order=True)
class PublicName:
    """A name of the public interface, and the module that notebooks import it from."""

    module: str
    name: str

    @property
    def full(self) -> str:
        """The dotted name, such as `mlhood.exchange.export`."""
        return f"{self.module}.{self.name}"


def public_interface(notebooks: Iterable[Path], root: Path) -> dict[PublicName, tuple[str, ...]]:
    """Return the names that notebooks import, each with the projects that use it, sorted.

    Args:
        notebooks: Their paths; a project is the name of a file without its suffix.
        root: The folder of the course, with the package in it.

    Raises:
        NotebookError: One cannot be read, or has code that is not Python.
    """
    users: dict[PublicName, list[str]] = defaultdict(list)
    for path in notebooks:
        for name in imported_names(read(path), root):
            users[name].append(path.stem)
    return {name: tuple(users[name]) for name in sorted(users)}


def imported_names(notebook: NotebookNode, root: Path) -> set[PublicName]:
    """Return what the code cells of a notebook import from the package, also as attributes of imported modules.

    Raises:
        NotebookError: A code cell is not Python.
    """
    modules: dict[str, str] = {}  # by the name that the notebook has given them
    found: set[PublicName] = set()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        tree = _parsed(cell.source, cell.id)
        for local, target in package_imports(tree):
            if _is_module(target, root):
                modules[local] = target
            else:
                modules.pop(local, None)
                module, _, name = target.rpartition(".")
                found.add(PublicName(module, name))
        found |= {name for node in ast.walk(tree) if (name := _attribute(node, modules, root))}
    return found


def _parsed(source: str, cell_id: str) -> ast.Module:
    try:
        return ast.parse(_MAGIC.sub(r"\1pass", source))
    except SyntaxError as error:
        raise NotebookError("a code cell is not Python", where=f"cell {cell_id}", got=error) from None


def interface_page(interface: dict[PublicName, tuple[str, ...]]) -> str:
    """Return the page of the public interface in Markdown: a row for each module."""
    rows = []
    for module, names in by_module(interface).items():
        users = sorted({project for name in names for project in interface[name]})
        rows.append(f"| `{module}` | {', '.join(f'`{name.name}`' for name in names)} | {', '.join(users)} |")
    return _HEAD + "\n".join(rows) + "\n"


def by_module(names: Iterable[PublicName]) -> dict[str, list[PublicName]]:
    """Return names by their module, in the order in which they come."""
    modules: dict[str, list[PublicName]] = {}
    for name in names:
        modules.setdefault(name.module, []).append(name)
    return modules


def package_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the local name and the dotted name of each import from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield (alias.asname, alias.name) if alias.asname else (PACKAGE, PACKAGE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _attribute(node: ast.AST, modules: dict[str, str], root: Path) -> PublicName | None:
    """Return the name that an expression such as `kernels.peers.torch_gemm` takes from a module, if it takes one."""
    if not isinstance(node, ast.Attribute):
        return None
    module = _module(node.value, modules, root)
    if module is None or _is_module(f"{module}.{node.attr}", root):
        return None
    return PublicName(module, node.attr)


def _module(node: ast.expr, modules: dict[str, str], root: Path) -> str | None:
    """Return the dotted name of the module that an expression means, or None if it means something else."""
    if isinstance(node, ast.Name):
        return modules.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    parent = _module(node.value, modules, root)
    inner = f"{parent}.{node.attr}"
    return inner if parent is not None and _is_module(inner, root) else None


def _is_module(dotted: str, root: Path) -> bool:
    """Whether a dotted name is a module, and not something of the same name that its package exports."""
    package, _, name = dotted.rpartition(".")
    return _has_file(dotted, root) and not (package and name in _exports(package, root))


def _has_file(dotted: str, root: Path) -> bool:
    path = root.joinpath(*dotted.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@functools.cache
def _exports(package: str, root: Path) -> frozenset[str]:
    """Return what the `__init__` of a package imports from its modules, and is not a module itself."""
    source = root.joinpath(*package.split("."), "__init__.py").read_text(encoding="utf-8")
    imports = [*package_imports(ast.parse(source))]
    return frozenset(local for local, target in imports if not _has_file(target, root))
