"""The keys of results: a result counts as long as the submission, the checks and the environment are the same."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import inspect
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from mlhood.grading.checks.task import Project

PACKAGES = ("ipykernel", "jax", "llvmlite", "nbclient", "numba", "numpy", "onnx", "onnxruntime", "scipy", "torch")
ROOM = "mlhood.grading"


def result_key(sha256: str, checks: str, environment: str) -> str:
    """The key of one grading: hash of the submission's, the checks' and the environment's."""
    return digest_of([sha256, checks, environment])


def digest_of(texts: Iterable[str]) -> str:
    """Hash of texts, each told apart from the next."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}:".encode() + text.encode())
    return digest.hexdigest()


def environment_digest(seed: str) -> str:
    """Hash of what a result rests on besides submission and checks: Python, libraries, processor type, and the seed.

    Args:
        seed: What the inputs of the checks are drawn from; it cannot be read from the hash.
    """
    versions = [f"{name} {_version(name)}" for name in PACKAGES]
    return digest_of([platform.python_version(), sys.platform, platform.machine(), *versions, seed])


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def checks_digest(project: Project) -> str:
    """Hash of the master's own cells, of the source files of the checks, and of what they import in the grading room.

    Other parts of the package are left out: the marks of a class shall not be made anew for every change of a kernel.
    """
    from mlhood.grading.notebooks.master import cells_of  # loads the course, which a batch leaves to its workers

    functions = [check.function for task in project.tasks for check in task.checks]
    modules = {function.__module__ for function in functions} | {"mlhood.grading.checks.marks"}
    facts = [f"{task.id} {task.points} {task.seconds} {task.stand_in}" for task in project.tasks]
    facts += [text for cell in cells_of(project) for text in (cell.name, cell.role, cell.source)]
    return digest_of([*facts, *(_text(module) for module in sorted(_closure(modules)))])


def _closure(modules: set[str]) -> set[str]:
    """These modules and all of the grading room that they import, whatever imports it."""
    known: set[str] = set()
    waiting = set(modules)
    while waiting:
        module = waiting.pop()
        known.add(module)
        waiting |= {found for found in _imported(module) if found.startswith(f"{ROOM}.")} - known
    return known


def _imported(module: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(_text(module))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in inner if name in sys.modules} | {node.module}
    return {name for name in found if name in sys.modules}


def _text(module: str) -> str:
    file = inspect.getsourcefile(sys.modules[module]) if module in sys.modules else None
    return Path(file).read_text(encoding="utf-8") if file else ""
