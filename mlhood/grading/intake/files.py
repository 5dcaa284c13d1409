"""List the files of a folder or of a zip archive that may be hostile.

No link is followed, no member is extracted under its own name, and nothing is read beyond a limit, whatever a header
declares. A student whose folder holds too many files loses the deepest of them, and nobody else loses any.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import stat
import struct
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from mlhood.errors import GradingError
from mlhood.files.paths import did_you_mean
from mlhood.grading.intake.layouts import CLONES, SUBMITTED

MAX_FILES = 250_000
MAX_STUDENT_FILES = 2_000
MAX_DIRECTORY_BYTES = 24 << 20
MAX_DEPTH = 12
MAX_NAME = 240
END_OF_DIRECTORY = b"PK\x05\x06"
END_BYTES = 22
ZIP64_END = b"PK\x06\x06"
ZIP64_END_BYTES = 56
ZIP64_LOCATOR = b"PK\x06\x07"
ZIP64_LOCATOR_BYTES = 20
IGNORED = {"__MACOSX", "__pycache__", "node_modules"}
TRUNCATED = f"the folder holds more than {MAX_STUDENT_FILES:,} files, and the deepest were left out"
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Of zip archives: Moodle, Canvas and systems write no others, which take as much memory as their headers demand."""
READ_ERRORS = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error),
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
            todo=did_you_mean(source) or "name the folder or archive: mlhood grade SUBMISSIONS --out DIR",
        )
    with _open_archive(source) as archive:
        yield sorted(_in_archive(source, archive), key=lambda file: file.path)


def _in_folder(folder: Path) -> Iterator[InputFile]:
    """Yield the files level by level: where there are too many, those near the top, as a notebook is, come first."""
    counts = _FileCounts(folder)
    waiting = deque([folder])
    while waiting:
        current = waiting.popleft()
        for entry in sorted(_entries(current), key=lambda entry: entry.name):
            path = PurePosixPath(Path(entry.path).relative_to(folder).as_posix())
            if not counts.admit(path):
                continue
            if entry.is_dir(follow_symlinks=False):
                if len(path.parts) < MAX_DEPTH:
                    waiting.append(Path(entry.path))
            else:
                yield _file(folder, Path(entry.path))
    yield from counts.truncated_folders()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder that are not hidden; none of a folder that cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in itertools.islice(entries, MAX_FILES + 1) if not _hidden(entry.name)]
    except OSError:
        return []


class _FileCounts:
    """Counts the files and folders of each student's folder, and of all."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.total = 0
        self.counts: Counter[PurePosixPath] = Counter()

    def admit(self, path: PurePosixPath) -> bool:
        """Count a path; return whether its student's folder may hold it.

        Raises:
            GradingError: All students together have too many.
        """
        folder = _student_folder(path)
        if folder is not None:
            self.counts[folder] += 1
            if self.counts[folder] > MAX_STUDENT_FILES:
                return False
        self.total += 1
        if self.total > MAX_FILES:
            raise _too_many(self.source)
        return True

    def truncated_folders(self) -> Iterator[InputFile]:
        """Yield a file that must not be used for every folder of which some are left out."""
        for folder, count in self.counts.items():
            if count > MAX_STUDENT_FILES:
                yield InputFile(folder, lambda: io.BytesIO(), TRUNCATED)


def _student_folder(path: PurePosixPath) -> PurePosixPath | None:
    """Return the folder that belongs to one student in every layout: the first, or the second in a common folder."""
    common = path.parts[0] == SUBMITTED or path.parts[0].endswith(CLONES)
    parts = path.parts[: 2 if common else 1]
    return PurePosixPath(*parts) if len(path.parts) > len(parts) else None


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
    counts = _FileCounts(path)
    seen: set[str] = set()
    members = [(_member_path(member), member) for member in archive.infolist() if not member.is_dir()]
    for full_path, member in sorted(members, key=lambda pair: len(pair[0].parts)):  # keeps the order in a folder
        if any(map(_hidden, full_path.parts)):
            continue
        name, problem = _sanitized(member)
        if not counts.admit(name):
            continue
        if not problem and str(name) in seen:
            problem = "the archive has another file of the same name, and that one counts"
        seen.add(str(name))
        yield InputFile(name, lambda member=member: archive.open(member), problem)
    yield from counts.truncated_folders()


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
    if member.compress_type not in METHODS:
        return harmless, "it is compressed by a method other than deflate"
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
    (directory_bytes,) = struct.unpack_from("<I", tail, end + 12)
    locator = end - ZIP64_LOCATOR_BYTES
    if tail[max(locator, 0) :].startswith(ZIP64_LOCATOR):  # more than 65,535 files; `zipfile` looks there, too
        record = tail[max(locator - ZIP64_END_BYTES, 0) : locator]
        if len(record) < ZIP64_END_BYTES or not record.startswith(ZIP64_END):
            raise _too_many(path)
        (directory_bytes,) = struct.unpack_from("<Q", record, 40)
    if directory_bytes > MAX_DIRECTORY_BYTES:
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
