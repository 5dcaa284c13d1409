"""The pages of the public interface: one for each module that notebooks import from, with signatures and docstrings."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterable
from importlib import import_module
from pathlib import PurePosixPath

from mlhood.errors import SiteError
from mlhood.grading.notebooks.interface import PublicName, by_module, package_imports
from mlhood.site.listings import LINE, listing_path

FOLDER = "api"
INDEX = f"{FOLDER}/index.md"
_HEAD = """# API

What the notebooks import from the package, by module: its public interface.

| module | what it is for | used in |
|---|---|---|
"""
# not in the sidebar, which would have a hundred entries more: the index and the projects lead to them
_UNLISTED = "---\norphan: true\n---\n\n"


def api_pages(interface: dict[PublicName, tuple[str, ...]]) -> dict[str, str]:
    """Return the pages in Markdown by their paths, with an index.

    Raises:
        SiteError: A notebook imports what is not there.
    """
    modules = by_module(interface)
    users = {module: sorted({user for name in names for user in interface[name]}) for module, names in modules.items()}
    pages = {f"{FOLDER}/{module}.md": _page(module, names, users[module]) for module, names in modules.items()}
    rows = [f"| {{py:mod}}`{module}` | {_purpose(module)} | {_links(users[module])} |" for module in modules]
    return {INDEX: _HEAD + "\n".join(rows) + "\n"} | pages


def _links(projects: Iterable[str]) -> str:
    return ", ".join(f"[{project}](../{project}.ipynb)" for project in projects)


def _purpose(module: str) -> str:
    first, *_ = (import_module(module).__doc__ or "").strip().split("\n\n")
    return " ".join(first.split()).replace("|", r"\|")


def _page(module: str, names: Iterable[PublicName], users: Iterable[str]) -> str:
    entries = [f".. automodule:: {module}\n   :no-members:", f".. currentmodule:: {module}", *map(_entry, names)]
    head = [f"# `{module}`", f"[API](index.md) · used in {_links(users)}", "```{eval-rst}"]
    return _UNLISTED + "\n\n".join([*head, *entries, "```"]) + "\n"


def _entry(name: PublicName) -> str:
    try:
        value = getattr(import_module(name.module), name.name)
    except (ImportError, AttributeError) as error:
        raise SiteError("a notebook imports what is not there", where=name.full, got=error) from None
    if inspect.isclass(value):
        return f".. autoclass:: {name.name}\n   :members:"
    if callable(value):
        return f".. autofunction:: {name.name}"
    return _constant(name)


def _constant(name: PublicName) -> str:
    """Return the entry of a constant: its value is not shown, as it may be long, and may name this machine."""
    kind, text = constant_documentation(name)
    lines = [f".. py:data:: {name.name}", *([f"   :type: {kind}"] if kind else []), ""]
    return "\n".join([*lines, *(f"   {line}" for line in text)])


def constant_documentation(name: PublicName) -> tuple[str, list[str]]:
    """Return the annotation of a constant and the lines of the string below it, both empty if it has none."""
    from sphinx.pycode import ModuleAnalyzer

    analyzer = ModuleAnalyzer.for_module(_defining_module(name))
    analyzer.analyze()
    return analyzer.annotations.get(("", name.name), ""), analyzer.attr_docs.get(("", name.name), [])


def source_files(interface: Iterable[PublicName]) -> set[str]:
    """Return the paths in the repository of the modules that names are written in."""
    return {_file(_defining_module(name)) for name in interface}


def source_link(domain: str, info: dict[str, str]) -> str | None:
    """Return the link from a page of the interface to the listing where a name is written, as `linkcode` asks for it.

    Args:
        domain: Of Sphinx; all is Python here.
        info: `module`, and `fullname`, the name in it, such as `Graph.nodes`.
    """
    first, *inner = info["fullname"].split(".")
    module = _defining_module(PublicName(info["module"], first))
    node: ast.AST | None = _tree(module)
    for part in (first, *inner):
        node = next((child for child in ast.iter_child_nodes(node) if part in _bound(child)), None)
        if node is None:
            return None  # inherited, or made when the module is loaded
    return f"../{listing_path(_file(module))}#{LINE}-{getattr(node, 'lineno', 1)}"


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a statement defines or assigns."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _file(module: str) -> str:
    path = PurePosixPath(*module.split("."))
    is_package = hasattr(import_module(module), "__path__")
    return str(path / "__init__.py" if is_package else path.with_suffix(".py"))


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(import_module(module)))


@functools.cache
def _defining_module(name: PublicName) -> str:
    """Return the module that a name is written in: its own, or the one that this imports it from."""
    for local, target in package_imports(_tree(name.module)):
        if local == name.name:
            module, _, inner = target.rpartition(".")
            return _defining_module(PublicName(module, inner))
    return name.module
