"""The autograder zip for Gradescope: the package, its requirements, and the two scripts that Gradescope calls.

Gradescope unpacks it into /autograder/source, runs `setup.sh` once as root on Ubuntu, and `run_autograder` for every
submission ("Autograder Specifications"). The same course gives the same bytes.
"""

from __future__ import annotations

import io
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from mlhood.errors import OutputError
from mlhood.files.atomic import write_atomic
from mlhood.grading.student.version_files import render

EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip archive
UNIX = 3
EXECUTABLE, REGULAR = 0o100755, 0o100644


def write_autograder(root: Path, package: Mapping[str, str], path: Path, *, force: bool = False) -> Path:
    """Write the autograder of the course in `root` as a zip archive; `force` replaces a different file of that name.

    Args:
        root: The folder of the course.
        package: The text of every file of its package, by its path.
        path: Of the archive.
        force: Replace a different file.

    Raises:
        OutputError: There is a different file, or it cannot be written.
    """
    data = archive(autograder_files(root, package))
    if path.exists() and not force and (not path.is_file() or path.read_bytes() != data):
        raise OutputError(
            "there is another autograder",
            where=path,
            todo="move it away, choose another folder with --out, or replace it with --force",
        )
    return write_atomic(path, data)


def autograder_files(root: Path, package: Mapping[str, str]) -> dict[str, str]:
    """Return the text of every file of the autograder, by its path."""
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    return {
        **package,
        "setup.sh": render("setup.sh"),
        "run_autograder": render("run_autograder"),
        "requirements.txt": "\n".join(sorted(tomllib.loads(project)["project"]["dependencies"])) + "\n",
        "pyproject.toml": project,
        "README.md": render("gradescope_README.md"),
        "LICENSE": (root / "LICENSE").read_text(encoding="utf-8"),
    }


def archive(files: dict[str, str]) -> bytes:
    """Return a reproducible zip archive of these texts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, EARLIEST)
            info.create_system = UNIX
            info.external_attr = (EXECUTABLE if files[name].startswith("#!") else REGULAR) << 16
            target.writestr(info, files[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
