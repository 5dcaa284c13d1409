"""The package's own source, function by function, to find copies of it in what students hand in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from mlhood.grading.similarity.compare import Work

PACKAGE = Path(__file__).parents[2]
# the harness, its commands and its errors solve no task
LEFT_OUT = ("grading", "doctor", "cli.py", "errors.py")


def own_source(root: Path | None = None) -> Iterator[Work]:
    """A work for each function and class of the package.

    Args:
        root: Its folder; by default where it is installed.
    """
    folder = root or PACKAGE
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if name.parts[0] not in LEFT_OUT:
            text = path.read_text(encoding="utf-8")
            yield from _definitions(f"{folder.name}/{name.as_posix()}", text)


def _definitions(file: str, text: str) -> Iterator[Work]:
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            place = f"{file}: {node.name}"
            yield Work(place, {place: "".join(lines[node.lineno - 1 : node.end_lineno])})
