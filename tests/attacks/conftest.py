"""A sandbox for attacks, and the synthetic course. Skipped if sandboxes are not available."""

from __future__ import annotations

import pytest

from mlhood.grading.projects import PROJECTS
from mlhood.grading.sandbox.bubblewrap import problem
from mlhood.grading.sandbox.kernel import SandboxPool
from tests.attacks.attacked import SECRET, SMALL, Attacked
from tests.grading import synthetic_course


@pytest.fixture(scope="session", autouse=True)
def bubblewrap():
    if reason := problem():
        pytest.skip(f"no sandbox on this machine: {reason}")


@pytest.fixture(scope="session")
def pool(bubblewrap):
    """One pool for all tests: while one attacks, the next sandbox starts."""
    with SandboxPool(SMALL, imports=("mlhood.grading.rpc.cell_runner",)) as pool:
        yield pool


@pytest.fixture(scope="module")
def replaced(pool, tmp_path_factory):
    """A kernel that attacks kill, so that the next one finds a new sandbox in its place."""
    with pool.kernel(tmp_path_factory.mktemp("killed")) as kernel:
        Attacked(kernel).run("def f(): return 1")
        yield kernel


@pytest.fixture
def attacked(replaced):
    """A sandbox that nothing has attacked before."""
    started = replaced.pid
    yield Attacked(replaced)
    del replaced._history[1:]
    if replaced.pid == started:
        replaced._restart()


@pytest.fixture(scope="module")
def shared(bubblewrap, tmp_path_factory):
    """A sandbox for attacks that do not kill it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADEBOOK_TOKEN", SECRET)
        with (
            SandboxPool(SMALL, imports=(), prewarm=False) as pool,
            pool.kernel(tmp_path_factory.mktemp("kept")) as kernel,
        ):
            attacked = Attacked(kernel)
            attacked.run("import os, socket, subprocess, sys, ctypes\nfrom pathlib import Path\ndef f(): return 1")
            yield attacked


@pytest.fixture
def course(monkeypatch):
    """The course with the synthetic project T9 in it, also in its kernels outside of a sandbox."""
    monkeypatch.setitem(PROJECTS, "T9", synthetic_course.SYNTHETIC)
    monkeypatch.setattr("mlhood.grading.execution.kernel.RUNNER", synthetic_course.RUNNER)
    return synthetic_course
