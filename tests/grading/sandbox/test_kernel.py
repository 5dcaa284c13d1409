from __future__ import annotations

import time
from pathlib import Path

import pytest

from mlhood.errors import GradingError
from mlhood.grading.sandbox.kernel import SandboxPool
from mlhood.grading.sandbox.limits import Limits
from mlhood.grading.sandbox.sandbox import Sandbox
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("bubblewrap")


def test_the_next_one_is_started_and_every_one_is_new(tmp_path):
    with SandboxPool(imports=()) as pool:
        with pool.kernel(tmp_path) as first, pool.kernel(tmp_path) as second:
            assert first.folder != second.folder
        (unused,) = pool._next.values()
        assert unused.poll() is None
    assert not unused.folder.exists()


def test_a_prewarmed_one_that_died_is_replaced(tmp_path):
    with SandboxPool(imports=()) as pool:
        died = pool.start_next()
        died.kill()
        died._process.wait(PATIENCE)
        with pool.kernel(tmp_path) as kernel:
            assert kernel.folder != died.folder


def test_one_that_is_closed_while_it_starts_leaves_no_process():
    for pause in (0, 0, 0.002, 0.005, 0.01):
        sandbox = Sandbox(Limits())
        sandbox.start()
        time.sleep(pause)
        name = sandbox.folder.parent.name.encode()
        sandbox.close()
        assert [process for process in Path("/proc").glob("[0-9]*") if name in command_line(process)] == []


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_one_that_ends_before_its_kernel_is_ready_reports_the_error(monkeypatch):
    monkeypatch.setattr("mlhood.grading.sandbox.sandbox.LAUNCHER", ("-c", "raise SystemExit('not today')"))
    sandbox = Sandbox(Limits())
    try:
        sandbox.start()
        with pytest.raises(GradingError) as caught:
            sandbox.connect()
        assert "not today" in caught.value.parts["got"]
    finally:
        sandbox.close()
