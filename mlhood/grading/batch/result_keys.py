"""The keys of results: a result is valid as long as the submission, the checks and the environment are the same.

A submission is a file of a student. Each one is graded on its own inputs, so that what a student learns about one
submission is of no use for the next, nor for another student.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.metadata
import json
import platform
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from mlhood.grading.checks.task import Project

PACKAGES = ("ipython", "jax", "llvmlite", "numba", "numpy", "onnx", "onnxruntime", "scipy", "torch")
GRADING = Path(__file__).parents[1]
SHARED = ("bare", "checks", "projects", "rpc")
PROJECT = re.compile(r"mlhood\.grading\.projects\.(\w+)\b")


def result_key(sha256: str, checks: str, environment: str, student: str, version: str = "") -> str:
    """Return the key of a grading: a hash of the hashes of file, checks and environment, of student and version."""
    return digest_of([sha256, checks, environment, student, *([version] if version else [])])


def submission_seed(secret: int, student: str, sha256: str) -> int:
    """Return the seed from which the inputs for a submission are drawn.

    Args:
        secret: The seed of the course. It does not follow from seeds of submissions (HMAC, RFC 2104).
        student: The student's id.
        sha256: Hash of the file.

    Returns:
        63 bits.
    """
    message = digest_of([student, sha256]).encode()
    return int.from_bytes(hmac.digest(str(secret).encode(), message, "sha256")[:8]) >> 1


def digest_of(texts: Iterable[str]) -> str:
    """Return a hash of texts; each is prefixed with its length, so that their boundaries count."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}:".encode() + text.encode())
    return digest.hexdigest()


def environment_digest(seed: str) -> str:
    """Return a hash of what else a result depends on: Python, libraries, processor type, and the seed.

    Args:
        seed: Inputs of the checks are drawn from it; the hash does not reveal it.
    """
    versions = [f"{name} {_version(name)}" for name in PACKAGES]
    return digest_of([platform.python_version(), sys.platform, platform.machine(), *versions, seed])


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def checks_digest(project: Project) -> str:
    """Return a hash of the source notebook's cells, the checks' sources, and those of the projects that they name.

    Other parts of the package do not count: a change of a kernel does not invalidate the marks of a class.
    """
    from mlhood.grading.notebooks.source_notebook import project_cells  # loads the course, which only workers do
    from mlhood.grading.projects.package_files import cell_templates, varied_solutions

    facts = [f"{task.id} {task.points} {task.seconds} {task.libraries} {task.fallback}" for task in project.tasks]
    facts += [text for cell in project_cells(project) for text in (cell.name, cell.role, cell.source)]
    solutions = varied_solutions(project.id, project.parameters)
    facts.append(json.dumps([cell_templates(project.id), solutions, dict(project.parameters)]))
    return digest_of([*facts, *map(_source, _files(project.id.lower()))])


def _files(project: str) -> list[Path]:
    """Return the files of the checks of a project: what all share, its folder, and those of projects named there."""
    found = [file for folder in SHARED for file in sorted(Path(GRADING, folder).glob("*.py"))]
    seen, waiting = set(), [project]
    while waiting:
        if (name := waiting.pop()) not in seen:
            seen.add(name)
            files = sorted(Path(GRADING, "projects", name).glob("*.py"))
            found += files
            waiting += [other for file in files for other in PROJECT.findall(_source(file))]
    return sorted(found)


def _source(file: Path) -> str:
    return file.read_text(encoding="utf-8")
