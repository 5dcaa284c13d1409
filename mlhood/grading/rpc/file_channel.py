"""Files by which two processes that do not trust each other exchange messages in a folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mlhood.grading.rpc.codec import MAX_MESSAGE_BYTES, CodecError

# links are not followed and pipes do not block; Windows has neither flag, but needs the binary one
READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def write_fresh(path: Path, data: bytes) -> Path:
    """Write a new file in place of whatever has that path, and return the path.

    Student code may have put a pipe there, on which opening would block, or a link to another file.
    """
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        if hasattr(os, "fchmod"):  # student code may have set a umask that forbids all; the path may be its link by now
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) | stat.S_IRUSR)
        file.write(data)
    return path


def read_message(path: Path) -> bytes:
    """Return the content of a file. Its type is checked once it is open: the path may be replaced at any time.

    Raises:
        CodecError: There is none, it is not a regular file, or it is too large.
    """
    try:
        if path.is_symlink():  # where opening would follow it
            raise FileNotFoundError
        descriptor = os.open(path, READ)
    except OSError:
        raise CodecError("there is no message") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CodecError("there is no message")
        # the file may still grow
        data = file.read(min(os.fstat(descriptor).st_size, MAX_MESSAGE_BYTES) + 1)
    if len(data) > MAX_MESSAGE_BYTES:
        raise CodecError(f"the message exceeds the limit of {MAX_MESSAGE_BYTES >> 20} MiB")
    return data
