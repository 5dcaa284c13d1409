"""The lock for time measurements: its file, and what others may have put in its place."""

from __future__ import annotations

import os
import stat

import pytest
from filelock import FileLock

from mlhood.errors import OutputError
from mlhood.grading.batch import executor

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX")


@pytest.fixture
def shared(monkeypatch, tmp_path):
    """A folder in place of /tmp, which all users share."""
    monkeypatch.setattr(executor, "SHARED", tmp_path)
    return tmp_path


@POSIX
def test_the_file_is_private_and_independent_of_tmpdir(shared, monkeypatch):
    path = executor.machine_lock_file()
    monkeypatch.setenv("TMPDIR", str(shared / "elsewhere"))
    assert executor.machine_lock_file() == path
    with FileLock(path, mode=0o600):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@POSIX
def test_a_link_in_place_of_the_folder_is_refused(shared):
    (shared / "mine").mkdir(mode=0o700)
    (shared / f"mlhood-{os.geteuid()}").symlink_to(shared / "mine")
    with pytest.raises(OutputError, match="a link or a file"):
        executor.machine_lock_file()
    assert list((shared / "mine").iterdir()) == []


@POSIX
def test_a_folder_that_others_may_enter_is_refused(shared):
    folder = executor.machine_lock_file().parent
    folder.chmod(0o711)
    with pytest.raises(OutputError, match="mode 711"):
        executor.machine_lock_file()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="only root can change the owner")
def test_a_folder_of_another_user_is_refused(shared):
    os.chown(executor.machine_lock_file().parent, 12345, 12345)
    with pytest.raises(OutputError, match="of user 12345"):
        executor.machine_lock_file()
