"""A folder that hostile code can write, held by its descriptor: whatever is opened there lies there.

A path would not do. Between a look at it and its use the other side can put a link in its place, and an absolute link
made in a sandbox points, for us, into our own files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CHUNK = 1 << 20
DEEPEST = 20
READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
HOLD = os.O_CLOEXEC | getattr(os, "O_PATH", 0) | getattr(os, "O_NOFOLLOW", 0)
INTO = READ | getattr(os, "O_DIRECTORY", 0)


class NotPlain(Exception):
    """What stands at a name is no plain file of that folder, or too large; says so in words."""


class Folder:
    """The folder of a descriptor. Names are relative, with `/` between folders."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def copy_out(self, name: str, target: Path, most: int) -> None:
        """Copy a plain file to a path of ours.

        Raises:
            FileNotFoundError: There is none.
            NotPlain: It is a link, a pipe or a folder, or has more than `most` bytes.
        """
        with self._open(name) as source:
            _plain(source, most)
            with target.open("wb") as file:
                left = most + 1  # it may be growing
                while left and (data := os.read(source, min(CHUNK, left))):
                    left -= file.write(data)
        if not left:
            target.unlink()
            raise NotPlain(f"is larger than {most >> 20} MiB")

    def copy_in(self, source: Path, name: str) -> None:
        """Write a file in place of whatever stands at a name.

        Raises:
            OSError: There is no room, or what stands there cannot be removed.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)
        file = os.open(name, WRITE, 0o600, dir_fd=self.descriptor)
        try:
            with source.open("rb") as data:
                while chunk := data.read(CHUNK):
                    _write_all(file, chunk)
        finally:
            os.close(file)

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)

    def socket(self, name: str) -> int | None:
        """A descriptor that stands for a socket of that name, or None as long as there is none."""
        try:
            descriptor = os.open(name, HOLD, dir_fd=self.descriptor)
        except OSError:
            return None
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None

    def clear(self, keep: str) -> None:
        """Remove everything but what has a name that begins with `keep`."""
        with os.scandir(self.descriptor) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(keep)]
        for name in names:
            self.remove(name)
            with contextlib.suppress(OSError, RecursionError):
                shutil.rmtree(name, dir_fd=self.descriptor)

    def files(self) -> list[str]:
        """The names of all plain files, in folders of folders too; those nested absurdly deep are left out."""
        found, folders = [], [PurePosixPath()]
        while folders:
            folder = folders.pop()
            if len(folder.parts) > DEEPEST:
                continue
            for entry, mode in self._entries(folder):
                if stat.S_ISDIR(mode):
                    folders.append(folder / entry)
                elif stat.S_ISREG(mode):
                    found.append(str(folder / entry))
        return sorted(found)

    def _entries(self, folder: PurePosixPath) -> list[tuple[str, int]]:
        try:
            with self._open(str(folder), INTO) as opened, os.scandir(opened) as entries:
                return [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
        except (OSError, NotPlain):
            return []

    @contextlib.contextmanager
    def _open(self, name: str, flags: int = READ) -> Iterator[int]:
        *folders, last = PurePosixPath(name).parts or (".",)
        if ".." in (*folders, last) or last == "/":
            raise NotPlain("is no name of that folder")
        descriptor = os.dup(self.descriptor)
        try:
            for part, how in [*((folder, INTO) for folder in folders), (last, flags)]:
                descriptor = _step(descriptor, part, how)
            yield descriptor
        finally:
            os.close(descriptor)


def _step(descriptor: int, part: str, flags: int) -> int:
    try:
        opened = os.open(part, flags, dir_fd=descriptor)
    except FileNotFoundError:
        raise
    except OSError:  # a link, a socket, or a file where a folder should be
        raise NotPlain("is not a plain file of its own") from None
    os.close(descriptor)
    return opened


def _plain(descriptor: int, most: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise NotPlain("is not a plain file of its own")
    if status.st_size > most:
        raise NotPlain(f"is larger than {most >> 20} MiB")


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
