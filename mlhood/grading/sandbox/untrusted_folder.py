"""Access to a folder that hostile code can write, by its descriptor, so that only files inside it are opened.

Paths are not safe: between a test and the use of a path, the other process can replace it by a link, and an absolute
link that is created in a sandbox refers to the grader's own files when the grader follows it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mlhood.grading.rpc.transport import InvalidFile

CHUNK = 1 << 20
MAX_DEPTH = 20
READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
PATH_ONLY = os.O_CLOEXEC | getattr(os, "O_PATH", 0) | getattr(os, "O_NOFOLLOW", 0)
READ_FOLDER = READ | getattr(os, "O_DIRECTORY", 0)


class UntrustedFolder:
    """The folder of a descriptor. Names are relative, with `/` between folders."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def copy_out(self, name: str, target: Path, limit: int) -> None:
        """Copy a regular file to a path outside.

        Raises:
            FileNotFoundError: There is none.
            InvalidFile: It is a link, a pipe or a folder, or has more than `limit` bytes.
        """
        with self._open(name) as source:
            _check_regular(source, limit)
            with target.open("wb") as file:
                remaining = limit + 1  # the file may still grow
                while remaining and (data := os.read(source, min(CHUNK, remaining))):
                    remaining -= file.write(data)
        if not remaining:
            target.unlink()
            raise InvalidFile(f"is larger than {limit >> 20} MiB")

    def copy_in(self, source: Path, name: str) -> None:
        """Write a file in place of whatever has that name.

        Raises:
            OSError: The disk is full, or what has that name cannot be removed.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)
        with os.fdopen(os.open(name, WRITE, 0o600, dir_fd=self.descriptor), "wb") as file, source.open("rb") as data:
            shutil.copyfileobj(data, file, CHUNK)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)

    def socket(self, name: str) -> int | None:
        """Return a descriptor that refers to the socket of that name, or None if there is none yet."""
        try:
            descriptor = os.open(name, PATH_ONLY, dir_fd=self.descriptor)
        except OSError:
            return None
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None

    def clear(self, keep: str) -> None:
        """Remove everything except names that begin with `keep`."""
        with os.scandir(self.descriptor) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(keep)]
        for name in names:
            self.remove(name)
            with contextlib.suppress(OSError, RecursionError):
                shutil.rmtree(name, dir_fd=self.descriptor)

    def files(self) -> list[str]:
        """Return the names of all regular files, recursively to a limited depth."""
        files, folders = [], [PurePosixPath()]
        while folders:
            folder = folders.pop()
            if len(folder.parts) > MAX_DEPTH:
                continue
            for entry, mode in self._entries(folder):
                if stat.S_ISDIR(mode):
                    folders.append(folder / entry)
                elif stat.S_ISREG(mode):
                    files.append(str(folder / entry))
        return sorted(files)

    def _entries(self, folder: PurePosixPath) -> list[tuple[str, int]]:
        try:
            with self._open(str(folder), READ_FOLDER) as opened, os.scandir(opened) as entries:
                return [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
        except (OSError, InvalidFile):
            return []

    @contextlib.contextmanager
    def _open(self, name: str, flags: int = READ) -> Iterator[int]:
        *folders, last = PurePosixPath(name).parts or (".",)
        if ".." in (*folders, last) or last == "/":
            raise InvalidFile("is outside the folder")
        descriptor = os.dup(self.descriptor)
        try:
            for part, part_flags in [*((folder, READ_FOLDER) for folder in folders), (last, flags)]:
                descriptor = _descend(descriptor, part, part_flags)
            yield descriptor
        finally:
            os.close(descriptor)


def _descend(descriptor: int, part: str, flags: int) -> int:
    try:
        opened = os.open(part, flags, dir_fd=descriptor)
    except FileNotFoundError:
        raise
    except OSError:  # a link, a socket, or a file where a folder should be
        raise InvalidFile("is not a regular file") from None
    os.close(descriptor)
    return opened


def _check_regular(descriptor: int, limit: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidFile("is not a regular file")
    if status.st_size > limit:
        raise InvalidFile(f"is larger than {limit >> 20} MiB")
