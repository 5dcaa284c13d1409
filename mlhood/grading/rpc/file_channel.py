"""A channel of request and reply files in a folder, between two processes that do not trust each other."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mlhood.grading.rpc.codec import CodecError, Message, max_file_bytes

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


class FileChannel:
    """A folder with `request-N.*` files from one side and `reply-N.*` files from the other."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def send(self, kind: str, number: int, message: Message) -> None:
        """Write a message; its text last, so that a reader who finds the text finds all of it."""
        text, arrays = message.to_bytes()
        write_fresh(self._path(kind, number, "npz"), arrays)
        write_fresh(self._path(kind, number, "json"), text)

    def receive(self, kind: str, number: int) -> Message:
        """Read a message.

        Raises:
            CodecError: There is none, or it is malformed or too large.
        """
        return Message.from_bytes(self._read(kind, number, "json"), self._read(kind, number, "npz"))

    def file_names(self, kind: str, number: int) -> list[str]:
        """Return the names of a message's files."""
        return [self._path(kind, number, suffix).name for suffix in ("json", "npz")]

    def _read(self, kind: str, number: int, suffix: str) -> bytes:
        """Return the content of a file. Its type is checked once it is open: the path may be replaced at any time."""
        path = self._path(kind, number, suffix)
        if path.is_symlink():  # where opening would follow it
            raise CodecError(f"there is no {kind}")
        try:
            descriptor = os.open(path, READ)
        except OSError:
            raise CodecError(f"there is no {kind}") from None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise CodecError(f"there is no {kind}")
            limit = max_file_bytes()[path.suffix]
            data = file.read(min(os.fstat(descriptor).st_size, limit) + 1)  # the file may still grow
        if len(data) > limit:
            raise CodecError(f"the {kind} exceeds the limit of {limit >> 20} MiB")
        return data

    def _path(self, kind: str, number: int, suffix: str) -> Path:
        return self.folder / f"{kind}-{number}.{suffix}"
