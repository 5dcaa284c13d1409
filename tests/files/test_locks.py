"""The one turn to measure of a machine: its file, its lock, and what others may have put in its place."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time

import pytest

from mlhood.errors import OutputError
from mlhood.files import locks

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX")


@pytest.fixture
def shared(monkeypatch, tmp_path):
    """What /tmp is to all users."""
    monkeypatch.setattr(locks, "SHARED", tmp_path)
    return tmp_path


@POSIX
def test_it_is_ours_alone_and_always_the_same(shared, monkeypatch):
    path = locks.machine_file()
    monkeypatch.setenv("TMPDIR", str(shared / "elsewhere"))
    assert locks.machine_file() == path
    with locks.turn(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@POSIX
def test_a_link_that_waits_at_its_place_is_refused(shared):
    (shared / "mine").mkdir(mode=0o700)
    (shared / f"mlhood-{os.geteuid()}").symlink_to(shared / "mine")
    with pytest.raises(OutputError, match="a link or a file"):
        locks.machine_file()
    assert list((shared / "mine").iterdir()) == []


@POSIX
def test_a_folder_that_others_may_enter_is_refused(shared):
    folder = locks.machine_file().parent
    folder.chmod(0o711)
    with pytest.raises(OutputError, match="mode 711"):
        locks.machine_file()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="only root can make it another's")
def test_a_folder_of_somebody_else_is_refused(shared):
    os.chown(locks.machine_file().parent, 12345, 12345)
    with pytest.raises(OutputError, match="of user 12345"):
        locks.machine_file()


@POSIX
def test_a_link_in_place_of_the_file_is_not_followed(shared):
    path = locks.machine_file()
    path.symlink_to(shared / "target")
    with pytest.raises(OSError, match="symbolic link"), locks.turn(path):
        pass
    assert not (shared / "target").exists()


HOLD = """
import sys
from pathlib import Path
from mlhood.files.locks import turn
with turn(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path):
    """A process that holds the turn until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_the_turn_of_a_process_that_is_killed_is_free(tmp_path):
    path = tmp_path / "turn"
    with holder(path) as process:
        with locks.claim(path) as mine:
            assert not mine
        process.kill()
        process.wait()
        with locks.turn(path):
            pass


@POSIX
def test_a_lock_on_a_file_that_was_removed_meanwhile_is_none(tmp_path):
    """The holder is waited for, and then the lock is that on the file that stands there now."""
    path, held = tmp_path / "turn", threading.Event()

    def wait():
        with locks.turn(path):
            held.set()
            time.sleep(0.2)

    with holder(path) as process:
        waiting = threading.Thread(target=wait)
        opened = os.open(path, os.O_RDWR)
        waiting.start()
        path.unlink()
        path.touch()
        process.stdin.close()
        process.wait()
        assert held.wait(20)
        assert not locks._stands_at(path, opened)
        with locks.claim(path) as mine:
            assert not mine
        waiting.join()
        os.close(opened)
