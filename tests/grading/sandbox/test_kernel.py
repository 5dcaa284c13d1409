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


def test_the_next_one_is_started_and_every_one_is_new():
    with SandboxPool(imports=()) as pool:
        first, second = pool.acquire(), pool.acquire()
        try:
            assert first.poll() is None
            assert second.poll() is None
            assert first.folder != second.folder
            assert first.connect()["key"] != second.connect()["key"]
        finally:
            first.close()
            second.close()
        unused = pool.acquire()
        unused.close()
        assert not unused.folder.exists()


def test_a_prewarmed_one_that_died_is_replaced():
    with SandboxPool(imports=()) as pool:
        pool._next[None].kill()
        pool._next[None]._process.wait(PATIENCE)
        sandbox = pool.acquire()
        try:
            assert sandbox.connect()["transport"] == "ipc"
        finally:
            sandbox.close()


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


def test_without_prewarming_none_is_started_in_advance():
    with SandboxPool(imports=(), prewarm=False) as pool:
        pool.acquire().close()
        assert not pool._next


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


def test_one_can_be_started_again_with_the_same_paths_and_without_its_old_files():
    sandbox = Sandbox(Limits())
    try:
        sandbox.start()
        sandbox.connect()
        paths = sandbox.folder, sandbox.scratch
        (sandbox.scratch / "uploaded").write_text("x")
        sandbox.upload()
        sandbox.stop()
        sandbox.start()
        sandbox.connect()
        assert (sandbox.folder, sandbox.scratch) == paths
        sandbox.upload()
        sandbox.download(sandbox.scratch / "uploaded", 10)
        assert (sandbox.scratch / "uploaded").read_text() == "x"
    finally:
        sandbox.close()
