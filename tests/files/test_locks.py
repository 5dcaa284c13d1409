"""The lock for time measurements: its file, its release, and files that others may have put in its place."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import pytest

from mlhood.errors import OutputError
from mlhood.files import locks
from tests.waiting import PATIENCE

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX")


@pytest.fixture
def shared(monkeypatch, tmp_path):
    """A folder in place of /tmp, which all users share."""
    monkeypatch.setattr(locks, "SHARED", tmp_path)
    return tmp_path


@POSIX
def test_the_file_is_private_and_independent_of_tmpdir(shared, monkeypatch):
    path = locks.machine_lock_file()
    monkeypatch.setenv("TMPDIR", str(shared / "elsewhere"))
    assert locks.machine_lock_file() == path
    with locks.exclusive_lock(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@POSIX
def test_a_link_in_place_of_the_folder_is_refused(shared):
    (shared / "mine").mkdir(mode=0o700)
    (shared / f"mlhood-{os.geteuid()}").symlink_to(shared / "mine")
    with pytest.raises(OutputError, match="a link or a file"):
        locks.machine_lock_file()
    assert list((shared / "mine").iterdir()) == []


@POSIX
def test_a_folder_that_others_may_enter_is_refused(shared):
    folder = locks.machine_lock_file().parent
    folder.chmod(0o711)
    with pytest.raises(OutputError, match="mode 711"):
        locks.machine_lock_file()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="only root can change the owner")
def test_a_folder_of_another_user_is_refused(shared):
    os.chown(locks.machine_lock_file().parent, 12345, 12345)
    with pytest.raises(OutputError, match="of user 12345"):
        locks.machine_lock_file()


@POSIX
def test_a_link_in_place_of_the_file_is_not_followed(shared):
    path = locks.machine_lock_file()
    path.symlink_to(shared / "target")
    with pytest.raises(OSError, match="symbolic link"), locks.exclusive_lock(path):
        pass
    assert not (shared / "target").exists()


HOLD = """
import sys
from pathlib import Path
from mlhood.files.locks import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path):
    """Start a process that holds the lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_the_lock_of_a_killed_process_is_released(tmp_path):
    path = tmp_path / "lock"
    with holder(path) as process:
        with locks.try_lock(path) as held:
            assert not held
        process.kill()
        process.wait()
        with locks.exclusive_lock(path):
            pass


@POSIX
def test_the_lock_on_a_file_that_was_removed_is_void(tmp_path):
    """A waiting process locks the file that has the name when the holder releases the old one."""
    path, held, free_it = tmp_path / "lock", threading.Event(), threading.Event()

    def wait():
        with locks.exclusive_lock(path):
            held.set()
            free_it.wait(PATIENCE)

    with holder(path) as process:
        waiting = threading.Thread(target=wait)
        opened = os.open(path, os.O_RDWR)
        waiting.start()
        path.unlink()
        path.touch()
        process.stdin.close()
        process.wait()
        assert held.wait(PATIENCE)
        assert not locks._is_current(path, opened)
        with locks.try_lock(path) as free:
            assert not free
        free_it.set()
        waiting.join()
        os.close(opened)
