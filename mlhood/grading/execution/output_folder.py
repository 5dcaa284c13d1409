"""The folder that `mlhood run` writes: tested before the work, fresh for each notebook, nobody's file lost.

A file that an earlier run left could make a check pass that would fail today. So each notebook starts in an
empty folder: what a run wrote and nobody changed since is removed, anything else is moved aside.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from mlhood.errors import OutputError

NEEDED_BYTES = 64 << 20
MANIFEST = ".mlhood-files.json"
OWN_MARKS = {
    "report.html": '<meta name="generator" content="mlhood">',
    "marks.json": '"format": "mlhood marks',
}


def prepare(out: Path) -> Path:
    """Make the folder, see that it can be written and has room, and return its full path.

    Raises:
        OutputError: It cannot be written, is nearly full, or holds foreign files of the names we need.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".mlhood-probe-{os.getpid()}"
        probe.write_bytes(bytes(1 << 20))
        probe.unlink()
        free = shutil.disk_usage(out).free
    except OSError as error:
        raise OutputError(
            "the output folder cannot be written",
            where=out,
            expected="a folder that can be written",
            got=error.strerror or str(error),
            todo="choose another folder with --out, or make room in this one; nothing has been run yet",
        ) from None
    if free < NEEDED_BYTES:
        raise OutputError(
            "the disk of the output folder is nearly full",
            where=out,
            expected=f"{NEEDED_BYTES >> 20} MiB free",
            got=f"{free >> 20} MiB",
            todo="choose another folder with --out, or make room; nothing has been run yet",
        )
    for name in OWN_MARKS:
        _refuse_foreign(out / name)
    return out.resolve()


def _refuse_foreign(path: Path) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if path.is_file() and OWN_MARKS[path.name] in path.read_text(encoding="utf-8", errors="replace"):
        return
    raise OutputError(
        "the output folder holds a file that mlhood has not written and would replace",
        where=path,
        todo="move it away, or choose another folder with --out; nothing has been run yet",
    )


def fresh(out: Path, name: str) -> tuple[Path, Path | None]:
    """An empty folder `out/name`, and where files that were in the way have been moved to.

    Raises:
        OutputError: The folder cannot be changed.
    """
    folder = out / name
    try:
        kept = None
        if folder.is_symlink() or (folder.exists() and not _emptied(folder)):
            kept = _free_name(out, f"{name}-kept")
            folder.rename(kept)
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(
            "the folder of an earlier run cannot be replaced",
            where=folder,
            got=error.strerror or str(error),
            todo="choose another folder with --out",
        ) from None
    return folder, kept


def remember(folder: Path) -> None:
    """Note which files a run has left, so that the next one can tell them from those of the user."""
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in _plain_files(folder)}
    files.pop(MANIFEST, None)
    (folder / MANIFEST).write_text(json.dumps(files, indent=1), encoding="utf-8")


def files(folder: Path) -> list[Path]:
    """The files that a run has left, relative to its folder, without our own note of them."""
    found = [path.relative_to(folder) for path in _plain_files(folder)]
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def _emptied(folder: Path) -> bool:
    """Remove what the last run wrote and nobody changed since; whether nothing is left."""
    known = _known(folder)
    for path in _plain_files(folder):
        name = path.relative_to(folder).as_posix()
        if name == MANIFEST or known.get(name) == _digest(path):
            path.unlink()
    for parent in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        if not parent.is_symlink() and not any(parent.iterdir()):
            parent.rmdir()
    return not any(folder.iterdir())


def _known(folder: Path) -> dict[str, str]:
    try:
        known = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _plain_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _free_name(out: Path, base: str) -> Path:
    number = 1
    while (out / f"{base}-{number}").exists():
        number += 1
    return out / f"{base}-{number}"
