"""The package's own source, function by function, to find copies of it in submissions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from mlhood.grading.similarity.compare import Document

PACKAGE = Path(__file__).parents[2]
# the harness, its commands and its errors solve no task
EXCLUDED = ("grading", "doctor", "cli.py", "errors.py")


def package_functions(root: Path | None = None) -> Iterator[Document]:
    """Yield a document for each function and class of the package.

    Args:
        root: Its folder; by default where it is installed.
    """
    folder = root or PACKAGE
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if name.parts[0] in EXCLUDED:
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                place = f"{folder.name}/{name.as_posix()}: {node.name}"
                yield Document(place, {place: "".join(lines[node.lineno - 1 : node.end_lineno])})
