"""List the files of a folder or of a zip archive that may be hostile.

No link is followed, no member is extracted under its own name, and nothing is read beyond a limit, whatever a header
declares.
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
ZIP64_LOCATOR = b"PK\x06\x07"
IGNORED = {"__MACOSX", "__pycache__", "node_modules"}
READ_ERRORS = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError),
    *(OSError, EOFError, ValueError, NotImplementedError, RuntimeError),
)


@dataclass(frozen=True)
class InputFile:
    """A file: its path relative to the folder or archive, how to open it, and why it must not be used, if so."""

    path: PurePosixPath
    open: Callable[[], AbstractContextManager[IO[bytes]]]
    problem: str = ""


@contextlib.contextmanager
def input_files(source: Path) -> Iterator[list[InputFile]]:
    """Yield the files of a folder or zip archive, sorted by path; they can be opened inside the `with` block.

    Hidden files and folders (`.git`, `.ipynb_checkpoints`, `__MACOSX`) are left out.

    Raises:
        GradingError: The source does not exist, is neither folder nor archive, or holds too many files.
    """
    if source.is_dir():
        yield sorted(_in_folder(source), key=lambda file: file.path)
        return
    if not source.is_file() or not zipfile.is_zipfile(source):
        raise GradingError(
            "there are no submissions here",
            where=source,
            expected="a folder, or a zip archive downloaded from Moodle or Canvas",
            got="a file that is not a zip archive" if source.exists() else "no file or folder of that name",
            todo="name the folder or archive: mlhood grade SUBMISSIONS --out DIR",
        )
    with _open_archive(source) as archive:
        yield sorted(_in_archive(source, archive), key=lambda file: file.path)


def _in_folder(folder: Path) -> Iterator[InputFile]:
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


def _file(folder: Path, path: Path) -> InputFile:
    try:
        regular = stat.S_ISREG(path.lstat().st_mode)
        problem = "" if regular else "it is a link or a special file, which is not followed"
    except OSError as error:
        problem = f"it cannot be read: {error.strerror}"
    return InputFile(PurePosixPath(path.relative_to(folder).as_posix()), lambda: _open_regular(path), problem)


def _open_regular(path: Path) -> IO[bytes]:
    """Open a regular file; refuse what has become a link meanwhile, or a pipe, which would block."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "not a regular file")
    return os.fdopen(handle, "rb")


def _open_archive(path: Path) -> zipfile.ZipFile:
    _check_directory_size(path)
    try:
        return zipfile.ZipFile(path)
    except READ_ERRORS as error:
        raise GradingError(
            "the archive is damaged",
            where=path,
            got=str(error),
            todo="download it again, or unpack it and name the folder",
        ) from None


def _in_archive(path: Path, archive: zipfile.ZipFile) -> Iterator[InputFile]:
    members = archive.infolist()
    if len(members) > MAX_FILES:
        raise _too_many(path)
    seen: set[str] = set()
    for member in members:
        if member.is_dir() or any(_hidden(part) for part in _member_path(member).parts):
            continue
        name, problem = _sanitized(member)
        if not problem and str(name) in seen:
            problem = "the archive has another file of the same name, and that one counts"
        seen.add(str(name))
        yield InputFile(name, lambda member=member: archive.open(member), problem)


def _sanitized(member: zipfile.ZipInfo) -> tuple[PurePosixPath, str]:
    """Return a harmless path for a member, and why it must not be used, if so. Nothing is written to that path."""
    path = _member_path(member)
    parts = [part for part in path.parts if part not in {"/", ".", ".."}] or ["nameless"]
    harmless = PurePosixPath(*parts)
    if path.is_absolute() or ".." in path.parts or ":" in parts[0]:
        return harmless, "its path leads out of the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return harmless, "it is a link, which is not followed"
    if member.flag_bits & 1:
        return harmless, "it is encrypted"
    if len(str(harmless)) > MAX_NAME * 2 or len(parts) > MAX_DEPTH:
        return PurePosixPath(harmless.name[:MAX_NAME]), "its path is too long"
    return harmless, ""


def _member_path(member: zipfile.ZipInfo) -> PurePosixPath:
    return PurePosixPath(member.filename.replace("\\", "/"))  # as Windows would interpret it


def _check_directory_size(path: Path) -> None:
    """Refuse an archive whose central directory is too large: `zipfile` reads all of it into memory."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(size - END_BYTES - (1 << 16), 0))
        tail = file.read()
    end = tail.rfind(END_OF_DIRECTORY)
    if end < 0 or len(tail) < end + END_BYTES:
        return  # `zipfile` raises its own error
    entries, directory_bytes = struct.unpack_from("<HI", tail, end + 10)
    zip64 = tail.rfind(ZIP64_LOCATOR, 0, end) >= 0 and (entries == 0xFFFF or directory_bytes == 0xFFFFFFFF)
    if zip64 or directory_bytes > MAX_DIRECTORY_BYTES:
        raise _too_many(path)


def _too_many(source: Path) -> GradingError:
    return GradingError(
        "there are too many files",
        where=source,
        expected=f"at most {MAX_FILES:,}",
        todo="name the folder of one assignment's submissions, not one far above it",
    )


def _hidden(name: str) -> bool:
    return (name.startswith(".") and name not in {".", ".."}) or name in IGNORED
