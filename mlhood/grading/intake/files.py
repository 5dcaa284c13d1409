"""List the files of a folder or of a zip archive that may be hostile.

No link is followed, no member is extracted under its own name, and nothing is read beyond a limit, whatever a header
declares. A student whose folder holds too many files loses the deepest of them, and nobody else loses any.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from mlhood.errors import GradingError
from mlhood.files.paths import did_you_mean
from mlhood.grading.intake.layouts import CLONES, SUBMITTED

MAX_FILES = 250_000
MAX_STUDENT_FILES = 2_000
MAX_DEPTH = 12
MAX_NAME = 240
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
        yield _admitted(source, _in_folder(source))
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
        yield _admitted(source, _in_archive(archive))


def _admitted(source: Path, files: Iterable[InputFile]) -> list[InputFile]:
    """Return the files, at most a number for each student, in whose place a file with the reason stands for the others.

    Raises:
        GradingError: All students together have too many.
    """
    counts: Counter[PurePosixPath] = Counter()
    admitted: list[InputFile] = []
    for file in files:
        folder = _student_folder(file.path)
        counts[folder] += 1
        if folder == file.path or counts[folder] <= MAX_STUDENT_FILES:
            admitted.append(file)
        if len(admitted) > MAX_FILES:
            raise GradingError(
                "there are too many files",
                where=source,
                expected=f"at most {MAX_FILES:,}",
                todo="name the folder of one assignment's submissions, not one far above it",
            )
    truncated = [folder for folder, count in counts.items() if count > MAX_STUDENT_FILES]
    admitted += [InputFile(folder, io.BytesIO, TRUNCATED) for folder in truncated]
    return sorted(admitted, key=lambda file: file.path)


def _student_folder(path: PurePosixPath) -> PurePosixPath:
    """Return the folder that belongs to one student in every layout: the first, or the second in a common folder."""
    common = path.parts[0] == SUBMITTED or path.parts[0].endswith(CLONES)
    return PurePosixPath(*path.parts[: 2 if common else 1])


def _in_folder(folder: Path) -> Iterator[InputFile]:
    """Yield the files of a folder, those of each folder in it before those of its folders; one that cannot be read has
    none."""
    for place, folders, names in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if depth + 1 < MAX_DEPTH and not _hidden(name))
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in sorted([*names, *links]):
            if not _hidden(name):
                yield _file(folder, Path(place, name))


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
    try:
        return zipfile.ZipFile(path)
    except READ_ERRORS as error:
        raise GradingError(
            "the archive is damaged",
            where=path,
            got=str(error),
            todo="download it again, or unpack it and name the folder",
        ) from None


def _in_archive(archive: zipfile.ZipFile) -> Iterator[InputFile]:
    """Yield the members that are files, those near the top first."""
    seen: set[PurePosixPath] = set()
    members = [(_member_path(member), member) for member in archive.infolist() if not member.is_dir()]
    for full_path, member in sorted(members, key=lambda pair: len(pair[0].parts)):  # keeps the order in a folder
        if any(map(_hidden, full_path.parts)):
            continue
        path, problem = _sanitized(member)
        if not problem and path in seen:
            problem = "the archive has another file of the same name, and that one counts"
        seen.add(path)
        yield InputFile(path, lambda member=member: archive.open(member), problem)


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


def _hidden(name: str) -> bool:
    return (name.startswith(".") and name not in {".", ".."}) or name in IGNORED
