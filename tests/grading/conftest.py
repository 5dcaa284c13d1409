from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from mlhood.grading.notebooks.notebook import write
from mlhood.grading.projects import PROJECTS
from mlhood.grading.sandbox import other_user
from tests.grading import synthetic_course
from tests.grading.batch import fake_grader
from tests.grading.fake_class import ROOT, FakeClass


@pytest.fixture
def course(monkeypatch):
    """The course with the synthetic project T9 in it, also in its kernels outside of a sandbox."""
    monkeypatch.setitem(PROJECTS, "T9", synthetic_course.SYNTHETIC)
    monkeypatch.setattr("mlhood.grading.execution.kernel.RUNNER", synthetic_course.RUNNER)
    return synthetic_course


@pytest.fixture
def solved(course, tmp_path) -> Path:
    path = tmp_path / "T9.ipynb"
    write(course.notebook(), path)
    return path


@pytest.fixture
def empty(course, tmp_path) -> Path:
    path = tmp_path / "T9.ipynb"
    write(course.notebook(course.EMPTY, "YOUR ANSWER HERE"), path)
    return path


@pytest.fixture(scope="session")
def open_python():
    """A Python that every user of this machine may run: ours, or the system's with our libraries."""
    with tempfile.TemporaryDirectory() as folder:
        yield sys.executable if not other_user.problem() else _system_python(Path(folder))


def _system_python(folder: Path) -> str:
    base = Path("/usr/bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    if base.exists():
        folder.chmod(0o755)
        subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
        libraries = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}), "ours.pth")
        libraries.write_text(sysconfig.get_path("purelib"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(folder / "bin" / "python"))
        if reason := other_user.problem():
            pytest.skip(f"no other user on this machine: {reason}")
        return sys.executable


@pytest.fixture
def fake_class(tmp_path, monkeypatch):
    """An empty class; its workers can import the fake grader, and log what they do."""
    empty_class = FakeClass(tmp_path)
    path = os.environ.get("PYTHONPATH")  # not set is not the same as empty, which means the working folder
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path), *([path] if path else [])]))
    monkeypatch.setenv(fake_grader.LOG, str(empty_class.log))
    return empty_class
