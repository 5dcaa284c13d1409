"""Atomic writes: a file holds the old or the new content, whatever fails."""

import errno
import os
import sys
from pathlib import Path

import pytest

from mlhood.errors import OutputError
from mlhood.files.atomic import write_atomic


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "x"
    assert write_atomic(str(path), b"one") == path
    assert write_atomic(path, b"two").read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
def test_the_file_has_the_mode_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    assert write_atomic(tmp_path / "x", b"").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("step", ["fsync", "mkstemp"])
def test_a_full_or_read_only_folder_keeps_the_old_content(tmp_path, monkeypatch, code, step):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    path = write_atomic(tmp_path / "x", b"before")
    with monkeypatch.context() as patch:
        patch.setattr(f"mlhood.files.atomic.{'os' if step == 'fsync' else 'tempfile'}.{step}", fail)
        with pytest.raises(OutputError, match="cannot be written") as caught:
            write_atomic(path, b"after")
    assert caught.value.parts["got"] == os.strerror(code)
    assert path.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_really_full_disk(tmp_path, monkeypatch):
    def full(**_):
        return os.open("/dev/full", os.O_WRONLY), str(tmp_path / "temporary")

    monkeypatch.setattr("mlhood.files.atomic.tempfile.mkstemp", full)
    with pytest.raises(OutputError, match="cannot be written") as caught:
        write_atomic(tmp_path / "x", b"data")
    assert caught.value.parts["got"] == os.strerror(errno.ENOSPC)
    assert not list(tmp_path.iterdir())


def test_a_folder_and_a_missing_folder_are_refused(tmp_path):
    with pytest.raises(OutputError, match="is a folder"):
        write_atomic(tmp_path, b"")
    with pytest.raises(OutputError, match="does not exist"):
        write_atomic(tmp_path / "nowhere" / "x", b"")
