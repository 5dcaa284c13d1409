"""Requests and replies as files of one folder, for two processes that trust each other with nothing else."""

from __future__ import annotations

from pathlib import Path

from mlhood.grading.wire import MAX_ARRAY_BYTES, MAX_TEXT_BYTES, Message, WireError

MAX_FILE_BYTES = MAX_ARRAY_BYTES + MAX_TEXT_BYTES


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

    def _read(self, kind: str, number: int, suffix: str) -> bytes:
        path = self._path(kind, number, suffix)
        if path.is_symlink() or not path.is_file():
            raise WireError(f"no {kind} came back")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise WireError(f"a {kind} of more than {MAX_FILE_BYTES >> 20} MiB may not cross")
        return path.read_bytes()

    def _path(self, kind: str, number: int, suffix: str) -> Path:
        return self.folder / f"{kind}-{number}.{suffix}"
