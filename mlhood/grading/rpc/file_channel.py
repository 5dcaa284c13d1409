"""Requests and replies as files of one folder, for two processes that trust each other with nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mlhood.grading.rpc.codec import MAX_ARRAY_BYTES, MAX_TEXT_BYTES, Message, WireError

MAX_FILE_BYTES = MAX_ARRAY_BYTES + MAX_TEXT_BYTES
# no link is followed, and a pipe is not waited for; Windows has neither flag, and needs to be told of bytes
READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def write_fresh(path: Path, data: bytes) -> Path:
    """Write a new file in place of whatever stands there, and return its path.

    A student may have laid a pipe there, which would wait for ever, or a link to somewhere else.
    """
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(data)
    return path


class Mailbox:
    """A folder with `request-N.*` from one side and `reply-N.*` from the other."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def post(self, kind: str, number: int, message: Message) -> None:
        """Write a message; the text last, so that a reader who finds it finds all of it."""
        text, arrays = message.to_bytes()
        write_fresh(self._path(kind, number, "npz"), arrays)
        write_fresh(self._path(kind, number, "json"), text)

    def collect(self, kind: str, number: int) -> Message:
        """Read a message.

        Raises:
            WireError: There is none, or it is malformed or too large.
        """
        return Message.from_bytes(self._read(kind, number, "json"), self._read(kind, number, "npz"))

    def names(self, kind: str, number: int) -> list[str]:
        """The names of a message's files."""
        return [self._path(kind, number, suffix).name for suffix in ("json", "npz")]

    def _read(self, kind: str, number: int, suffix: str) -> bytes:
        """The bytes of a file. It is looked at once it is open: what stands at its path may change in between."""
        path = self._path(kind, number, suffix)
        if path.is_symlink():  # where opening would follow it
            raise WireError(f"no {kind} came back")
        try:
            descriptor = os.open(path, READ)
        except OSError:
            raise WireError(f"no {kind} came back") from None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise WireError(f"no {kind} came back")
            data = file.read(MAX_FILE_BYTES + 1)  # it may be growing
        if len(data) > MAX_FILE_BYTES:
            raise WireError(f"a {kind} of more than {MAX_FILE_BYTES >> 20} MiB may not cross")
        return data

    def _path(self, kind: str, number: int, suffix: str) -> Path:
        return self.folder / f"{kind}-{number}.{suffix}"
