"""A sandbox for hostile work, and the synthetic course that it attacks. Skipped where there can be no sandbox."""

from __future__ import annotations

import pytest

from mlhood.grading.projects import PROJECTS
from mlhood.grading.sandbox.bubblewrap import problem
from mlhood.grading.sandbox.kernel import SandboxedKernel
from mlhood.grading.sandbox.pool import Sandboxes
from tests.attacks.attacked import SECRET, SMALL, Attacked
from tests.grading import synthetic_course


@pytest.fixture(scope="session", autouse=True)
def bubblewrap():
    if reason := problem():
        pytest.skip(f"no sandbox on this machine: {reason}")


@pytest.fixture(scope="session")
def sandboxes(bubblewrap):
    """One source for all tests: while one attacks, the next sandbox starts."""
    with Sandboxes(SMALL, imports=("mlhood.grading.rpc.server",)) as sandboxes:
        yield sandboxes


@pytest.fixture
def attacked(sandboxes, tmp_path):
    with SandboxedKernel(tmp_path, sandboxes) as kernel:
        attacked = Attacked(kernel)
        attacked.run("def f(): return 1")
        yield attacked


@pytest.fixture(scope="module")
def lasting(bubblewrap, tmp_path_factory):
    """A sandbox for attacks that do not end it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADEBOOK_TOKEN", SECRET)
        with (
            Sandboxes(SMALL, imports=(), warm=False) as sandboxes,
            SandboxedKernel(tmp_path_factory.mktemp("kept"), sandboxes) as kernel,
        ):
            attacked = Attacked(kernel)
            attacked.run("import os, socket, subprocess, sys, ctypes\nfrom pathlib import Path\ndef f(): return 1")
            yield attacked


@pytest.fixture
def course(monkeypatch):
    """The course with the synthetic project T9 in it."""
    monkeypatch.setitem(PROJECTS, "T9", synthetic_course.SYNTHETIC)
    return synthetic_course
