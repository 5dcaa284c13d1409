"""`.ci/run` with stand-ins for the programs it calls: all steps run, and one that fails fails the whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BASICS = ["bash", "dirname", "env", "cat", "mkdir", "chmod"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a POSIX script")

# notes its name and arguments, and fails where it is told to
STAND_IN = """#!/usr/bin/env bash
echo "${0##*/} $*" >>"$CALLS"
[ "${0##*/}" != "$FAILS" ]
"""

# `python3 -m venv .venv`: an environment of stand-ins
PYTHON = """#!/usr/bin/env bash
if [ "$2" != venv ]; then exit 0; fi
mkdir -p .venv/bin
for name in pip python pytest ruff pyright; do
    cat "$STAND_IN" >".venv/bin/$name"
    chmod +x ".venv/bin/$name"
done
"""


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(0o755)


def run_ci(tmp_path: Path, fails: str = "", part: str = "", **programs: str) -> tuple[int, str, list[str]]:
    """Run the script in an empty repository with nothing on the path but stand-ins and a few basics."""
    program(tmp_path / "repository/.ci", "run", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    path = tmp_path / "path"
    program(path, "stand-in", STAND_IN)
    for name, text in {"python3": PYTHON, **programs}.items():
        program(path, name, text)
    for name in BASICS:
        (path / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    calls = tmp_path / "calls"
    calls.touch()
    surroundings = {
        "PATH": str(path),
        "CALLS": str(calls),
        "FAILS": fails,
        "STAND_IN": str(path / "stand-in"),
    }
    done = subprocess.run(
        [str(path / "bash"), str(tmp_path / "repository/.ci/run"), *filter(None, [part])],
        env={**surroundings, "HOME": os.environ.get("HOME", str(tmp_path))},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, calls.read_text(encoding="utf-8").splitlines()


INSTALL, TESTS = "pip install -q -e .[test]", "pytest --durations=25"
COMPILE = ["python -m compileall -q -j 0 -x /tests/ .venv/lib", "python -m compileall -q mlhood"]
STEP_OF = {
    "pip": "install",
    "python": "compile",
    "pytest": "tests and notebooks",
    "ruff": "ruff check",
    "pyright": "pyright",
}
LINT = ["ruff check", "ruff format --check", "pyright --pythonpath .venv/bin/python"]


def test_all_steps_pass(tmp_path):
    code, said, calls = run_ci(tmp_path)
    assert code == 0, said
    assert "all steps passed" in said
    assert calls == [INSTALL, *COMPILE, TESTS, *LINT]


@pytest.mark.parametrize(
    ("part", "commands"),
    [
        ("tests", [INSTALL, *COMPILE, TESTS]),
        ("lint", [INSTALL, *LINT]),
        ("exhaustive", [INSTALL, *COMPILE, f"{TESTS} --exhaustive"]),
    ],
)
def test_a_part_runs_its_own_steps_only(tmp_path, part, commands):
    code, said, calls = run_ci(tmp_path, part=part)
    assert (code, calls) == (0, commands), said


def test_an_unknown_part_is_refused(tmp_path):
    code, _, calls = run_ci(tmp_path, part="everything")
    assert (code, calls) == (2, [])


@pytest.mark.parametrize("fails", ["pip", "python", "pytest", "ruff", "pyright"])
def test_a_failing_step_fails_the_whole_and_stops_no_other(tmp_path, fails):
    code, said, calls = run_ci(tmp_path, fails)
    assert code == 1
    assert "failed: " in said
    assert calls[-1].startswith("pyright")
    assert sum(call.startswith("ruff") for call in calls) == 2
    assert re.search(rf"^ +\d+ s  .*{STEP_OF[fails]}: FAILED$", said, re.MULTILINE)


def test_packages_that_cannot_be_had_stop_nothing(tmp_path):
    root = "#!/usr/bin/env bash\necho 0\n"
    code, said, calls = run_ci(tmp_path, "apt-get", **{"apt-get": STAND_IN, "id": root})
    assert code == 0, said
    assert "could not be installed: chromium bubblewrap" in said
    assert calls[-1].startswith("pyright")
