"""A student version of the course in a folder, and commands that run there as on a student's machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlhood.grading.notebooks.notebook import write_text
from mlhood.grading.projects import PROJECTS
from mlhood.grading.student.release import release
from mlhood.grading.student.version_files import package_files
from tests.grading import synthetic_course

ROOT = Path(__file__).parents[3]
INSTALL = "from tests.grading import synthetic_course\nsynthetic_course.install()\n"


def write_student_version(folder: Path) -> Path:
    """Write what students get of the package, with the synthetic project as P1, into a folder below this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROJECTS, "T9", synthetic_course.SYNTHETIC)
        patch.setattr(synthetic_course, "PACKAGE", package_files(ROOT))
        synthetic_course.write_course(folder / "course", synthetic_course.notebook())
        version = release(folder / "course", folder / "student").folder
    write_text(folder / "startup" / "sitecustomize.py", INSTALL)
    return version


def run(version: Path, *command: object, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    """Run Python with the package of a student version, and of the course the synthetic project alone.

    Args:
        version: Its folder.
        command: The arguments of Python.
        folder: Where it runs; by default in the student version's own.
        environment: Variables besides those of this process.
    """
    paths = os.pathsep.join(map(str, [version, version.parent / "startup", ROOT]))
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        cwd=folder or version,
        capture_output=True,
        text=True,
        check=False,
    )
