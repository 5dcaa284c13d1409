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
from mlhood.grading.student.version_files import CPU_INDEX

EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip archive
UNIX = 3
EXECUTABLE, REGULAR = 0o100755, 0o100644

SETUP = f"""#!/usr/bin/env bash
# Called once, as root, when Gradescope builds the container.
set -euo pipefail
umask 022
root="${{MLHOOD_AUTOGRADER:-/autograder}}"
# outside $root, which students' code cannot enter: it has to read the package
venv="${{MLHOOD_VENV:-/opt/mlhood}}"

usable() {{
    command -v "$1" > /dev/null && "$1" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null
}}

find_python() {{
    for name in python3.14 python3.13 python3.12 python3.11 python3; do
        if usable "$name"; then
            echo "$name"
            return
        fi
    done
}}

apt-get update
python="$(find_python)"
for version in 3.13 3.12 3.11; do
    if [ -z "$python" ] && apt-get install -y "python$version" "python$version-venv"; then
        python="$(find_python)"
    fi
done
if [ -z "$python" ]; then
    echo "this image has no Python 3.11 or newer: choose a newer one in the autograder's settings" >&2
    exit 1
fi
# useful if the container may create user namespaces
apt-get install -y bubblewrap || echo "no bubblewrap: submissions run as another user of the container" >&2
"$python" -m venv "$venv"
# the build of torch for processors: gigabytes smaller
"$venv/bin/python" -m pip install --no-cache-dir --extra-index-url {CPU_INDEX} \\
    -r "$root/source/requirements.txt"
"$venv/bin/python" -m pip install --no-cache-dir --no-deps "$root/source"
"""

RUN = """#!/usr/bin/env bash
# Called for every submission.
root="${MLHOOD_AUTOGRADER:-/autograder}"
mkdir -p "$root/results"
# the result if the autograder itself is killed, for example for lack of memory
cat > "$root/results/results.json" << 'END'
{"score": 0, "output": "the autograder did not finish; your instructor can run it again", "tests": []}
END
# -P: files of the submission must not be imported as modules
exec "${MLHOOD_PYTHON:-${MLHOOD_VENV:-/opt/mlhood}/bin/python}" -P -m mlhood.grading.gradescope
"""

README = """# Autograder

Made by `mlhood release --gradescope`. In Gradescope: a programming assignment > Configure Autograder > upload this zip.
Name the project in the assignment's title (`P1`, ...) where students may hand in more than one notebook.
"""


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
        "setup.sh": SETUP,
        "run_autograder": RUN,
        "requirements.txt": "\n".join(sorted(tomllib.loads(project)["project"]["dependencies"])) + "\n",
        "pyproject.toml": project,
        "README.md": README,
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
