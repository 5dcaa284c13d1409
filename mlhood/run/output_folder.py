"""The output folder of `mlhood run`: tested before the work, empty for each notebook, without losing a user's file.

A file of an earlier run could make a check pass that would fail today. So each notebook starts in an empty folder:
unchanged files of an earlier run are removed, all others are moved aside.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from pathlib import Path

from mlhood.errors import OutputError

REQUIRED_BYTES = 64 << 20
MANIFEST = ".mlhood-files.json"
# how files of ours are recognized
SIGNATURES = {"report.html": '<meta name="generator" content="mlhood">', "marks.json": '"format": "mlhood marks'}


def prepare(out: Path) -> Path:
    """Create the folder, test that it can be written and has space, and return its absolute path.

    Raises:
        OutputError: It cannot be written, is nearly full, or holds files of a user under the names of our results.
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
            todo="choose another folder with --out, or free space in this one; nothing has been run yet",
        ) from None
    if free < REQUIRED_BYTES:
        raise OutputError(
            "the disk of the output folder is nearly full",
            where=out,
            expected=f"{REQUIRED_BYTES >> 20} MiB free",
            got=f"{free >> 20} MiB",
            todo="choose another folder with --out, or free space; nothing has been run yet",
        )
    for name in SIGNATURES:
        _refuse_foreign(out / name)
    return out.resolve()


def _refuse_foreign(path: Path) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if path.is_file() and SIGNATURES[path.name] in path.read_text(encoding="utf-8", errors="replace"):
        return
    raise OutputError(
        "the output folder holds a file that mlhood did not write and would replace",
        where=path,
        todo="move it away, or choose another folder with --out; nothing has been run yet",
    )


def create_empty(out: Path, name: str) -> tuple[Path, Path | None]:
    """Return the empty folder `out/name`, and the path to which files of a user in it were moved, if any.

    Raises:
        OutputError: The folder cannot be replaced.
    """
    folder = out / name
    try:
        kept = None
        if folder.is_symlink() or (folder.exists() and not _remove_old_results(folder)):
            kept = next(path for n in itertools.count(1) if not (path := out / f"{name}-kept-{n}").exists())
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


def write_manifest(folder: Path) -> None:
    """Record the files of a run with their hashes, so that the next run can tell them from those of the user."""
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in _plain_files(folder)}
    files.pop(MANIFEST, None)
    (folder / MANIFEST).write_text(json.dumps(files, indent=1), encoding="utf-8")


def files(folder: Path) -> list[Path]:
    """Return the files of a run, relative to its folder, without hidden ones such as the manifest."""
    paths = [path.relative_to(folder) for path in _plain_files(folder)]
    return sorted(path for path in paths if not any(part.startswith(".") for part in path.parts))


def _remove_old_results(folder: Path) -> bool:
    """Remove the unchanged files of the last run, and return whether the folder is empty then."""
    manifest = _read_manifest(folder)
    for path in _plain_files(folder):
        name = path.relative_to(folder).as_posix()
        if name == MANIFEST or manifest.get(name) == _digest(path):
            path.unlink()
    for parent in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        if not parent.is_symlink() and not any(parent.iterdir()):
            parent.rmdir()
    return not any(folder.iterdir())


def _read_manifest(folder: Path) -> dict[str, str]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _plain_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
