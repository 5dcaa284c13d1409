from __future__ import annotations

import time
from pathlib import Path

import pytest

from mlhood.errors import GradingError
from mlhood.grading.sandbox.limits import Limits
from mlhood.grading.sandbox.pool import Sandboxes
from mlhood.grading.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("bubblewrap")


def test_the_next_one_is_there_and_every_one_is_new():
    with Sandboxes(imports=()) as sandboxes:
        first, second = sandboxes.take(), sandboxes.take()
        try:
            assert first.poll() is None
            assert second.poll() is None
            assert first.folder != second.folder
            assert first.enter()["key"] != second.enter()["key"]
        finally:
            first.close()
            second.close()
        waiting = sandboxes.take()
        waiting.close()
        assert not waiting.folder.exists()


def test_one_that_died_while_it_waited_is_not_given_out():
    with Sandboxes(imports=()) as sandboxes:
        sandboxes._next.end()
        sandboxes._next._process.wait(10)
        taken = sandboxes.take()
        try:
            assert taken.enter()["transport"] == "ipc"
        finally:
            taken.close()


def test_one_that_is_closed_while_it_starts_leaves_nothing():
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


def test_without_warmth_none_waits():
    with Sandboxes(imports=(), warm=False) as sandboxes:
        sandboxes.take().close()
        assert sandboxes._next is None


def test_one_that_ends_before_its_kernel_is_there_says_so(monkeypatch):
    monkeypatch.setattr("mlhood.grading.sandbox.sandbox.PROGRAM", ("sh", "-c", "echo not today >&2; exit 3"))
    sandbox = Sandbox(Limits())
    try:
        sandbox.start()
        with pytest.raises(GradingError) as caught:
            sandbox.enter()
        assert "not today" in caught.value.parts["got"]
    finally:
        sandbox.close()


def test_one_can_be_started_again_with_the_same_paths_and_none_of_the_old_files():
    sandbox = Sandbox(Limits())
    try:
        sandbox.start()
        sandbox.enter()
        paths = sandbox.folder, sandbox.scratch
        (sandbox.scratch / "given").write_text("x")
        sandbox.give()
        sandbox.stop()
        sandbox.start()
        sandbox.enter()
        assert (sandbox.folder, sandbox.scratch) == paths
        sandbox.give()
        sandbox.bring(sandbox.scratch / "given", 10)
        assert (sandbox.scratch / "given").read_text() == "x"
    finally:
        sandbox.close()
