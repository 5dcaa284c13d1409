"""The files of a folder or of a zip archive, which may have been made to do harm.

Nothing is followed, nothing is unpacked by name, and nothing is read beyond a limit, whatever a header says.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from mlhood.errors import GradingError

MAX_FILES = 50_000
MAX_DIRECTORY_BYTES = 16 << 20
MAX_DEPTH = 12
MAX_NAME = 240
END_OF_DIRECTORY = b"PK\x05\x06"
END_BYTES = 22
LARGE_LOCATOR = b"PK\x06\x07"
BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError,
    NotImplementedError, RuntimeError,
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A file: its path below the folder or archive, how to open it, and what is wrong with it, if anything."""

    path: PurePosixPath
    open: Callable[[], AbstractContextManager[IO[bytes]]]
    problem: str = ""


@contextlib.contextmanager
def findings(place: Path) -> Iterator[list[Finding]]:
    """The files of a folder or zip archive, in order of their paths; they can be opened as long as this is entered.

    Hidden files and folders (`.git`, `.ipynb_checkpoints`, `__MACOSX`) are left out.

    Raises:
        GradingError: There is no such place, it is neither folder nor archive, or it holds absurdly many files.
    """
    if place.is_dir():
        yield sorted(_in_folder(place), key=lambda finding: finding.path)
        return
    if not place.is_file() or not zipfile.is_zipfile(place):
        raise GradingError(
            "there are no submissions here",
            where=place,
            expected="a folder, or a zip archive as Moodle and Canvas give it",
            got="a file that is no zip archive" if place.exists() else "nothing of that name",
            todo="name the folder or archive: mlhood grade SUBMISSIONS --out DIR",
        )
    with _archive(place) as archive:
        yield sorted(_members(place, archive), key=lambda finding: finding.path)


def _in_folder(folder: Path) -> Iterator[Finding]:
    count = 0
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _hidden(name))
        if len(Path(root).relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in sorted([*files, *links]):
            count += 1
            if count > MAX_FILES:
                raise _too_many(folder)
            if not _hidden(name):
                yield _file(folder, Path(root) / name)


def _file(folder: Path, path: Path) -> Finding:
    relative = PurePosixPath(path.relative_to(folder).as_posix())
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        return Finding(relative, lambda: _plain(path), f"it cannot be read: {error.strerror}")
    problem = "" if stat.S_ISREG(mode) else "it is a link or a special file, which is not followed"
    return Finding(relative, lambda: _plain(path), problem)


def _plain(path: Path) -> IO[bytes]:
    """Open what is a plain file at the moment of opening; a link, or a pipe that would wait for ever, is refused."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is no plain file")
    return os.fdopen(handle, "rb")


def _archive(place: Path) -> zipfile.ZipFile:
    _refuse_large_directory(place)
    try:
        return zipfile.ZipFile(place)
    except BROKEN as error:
        raise GradingError(
            "the archive is damaged",
            where=place,
            got=str(error),
            todo="download it again, or unpack it and name the folder",
        ) from None


def _members(place: Path, archive: zipfile.ZipFile) -> Iterator[Finding]:
    members = archive.infolist()
    if len(members) > MAX_FILES:
        raise _too_many(place)
    seen: set[str] = set()
    for member in members:
        if member.is_dir() or any(_hidden(part) for part in _plain_path(member).parts):
            continue
        path, problem = _safe(member)
        if not problem and str(path) in seen:
            problem = "the archive holds another file of this name, and that one counts"
        seen.add(str(path))
        yield Finding(path, lambda member=member: archive.open(member), problem)


def _safe(member: zipfile.ZipInfo) -> tuple[PurePosixPath, str]:
    """The path of a member, and what is wrong with it. The path is only read, never written to."""
    plain = _plain_path(member)
    parts = [part for part in plain.parts if part not in {"/", ".", ".."}] or ["nameless"]
    path = PurePosixPath(*parts)
    if plain.is_absolute() or ".." in plain.parts or ":" in parts[0]:
        return path, "its path leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return path, "it is a link, which is not followed"
    if member.flag_bits & 1:
        return path, "it is encrypted"
    if len(str(path)) > MAX_NAME * 2 or len(parts) > MAX_DEPTH:
        return PurePosixPath(path.name[:MAX_NAME]), "its path is too long"
    return path, ""


def _plain_path(member: zipfile.ZipInfo) -> PurePosixPath:
    return PurePosixPath(member.filename.replace("\\", "/"))  # as Windows would take it


def _refuse_large_directory(place: Path) -> None:
    """Read the archive's own table of contents only if it is of a sane size, since all of it goes into memory."""
    size = place.stat().st_size
    with place.open("rb") as file:
        file.seek(max(size - END_BYTES - (1 << 16), 0))
        tail = file.read()
    at = tail.rfind(END_OF_DIRECTORY)
    if at < 0 or len(tail) < at + END_BYTES:
        return  # zipfile says in its own words what is wrong
    entries, directory_bytes = struct.unpack_from("<HI", tail, at + 10)
    large = tail.rfind(LARGE_LOCATOR, 0, at) >= 0 and (entries == 0xFFFF or directory_bytes == 0xFFFFFFFF)
    if large or directory_bytes > MAX_DIRECTORY_BYTES:
        raise _too_many(place)


def _too_many(place: Path) -> GradingError:
    return GradingError(
        "there are absurdly many files",
        where=place,
        expected=f"at most {MAX_FILES:,}",
        todo="name the folder of one assignment's submissions, not one far above it",
    )


def _hidden(name: str) -> bool:
    return (name.startswith(".") and name not in {".", ".."}) or name in {"__MACOSX", "__pycache__", "node_modules"}
