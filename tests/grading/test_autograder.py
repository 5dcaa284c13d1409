"""The autograder for Gradescope: its bytes, its scripts, and a submission graded by what the zip holds."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from mlhood.errors import OutputError
from mlhood.grading.autograder import archive, autograder_files, write_autograder
from mlhood.grading.notebook import write

REPOSITORY = Path(__file__).parents[2]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="bash scripts for Ubuntu")


@pytest.fixture(scope="module")
def packed() -> bytes:
    return archive(autograder_files(REPOSITORY))


@pytest.fixture
def container(packed, tmp_path) -> Path:
    """What /autograder is in Gradescope's container."""
    root = tmp_path / "autograder"
    (root / "submission").mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(packed)) as found:
        found.extractall(root / "source")
    (root / "run_autograder").write_bytes((root / "source" / "run_autograder").read_bytes())
    return root


def call(root: Path, script: str, **more: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "MLHOOD_AUTOGRADER": str(root), **more}
    return subprocess.run(["bash", str(root / script)], env=environment, cwd=root, capture_output=True, text=True)


def run_autograder(root: Path) -> dict:
    """Grade in a process that has the course of the zip, and the synthetic project in it."""
    (root / "sitecustomize.py").write_text("import synthetic_course\nsynthetic_course.install()\n")
    paths = os.pathsep.join([str(root / "source"), str(root), str(Path(__file__).parent)])
    done = call(root, "run_autograder", MLHOOD_PYTHON=sys.executable, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    assert "the container" in done.stderr
    return json.loads((root / "results" / "results.json").read_text())


def test_the_same_course_gives_the_same_bytes(packed):
    assert archive(dict(reversed(autograder_files(REPOSITORY).items()))) == packed


def test_scripts_lie_at_the_top_and_are_programs(packed):
    with zipfile.ZipFile(io.BytesIO(packed)) as found:
        modes = {one.filename: one.external_attr >> 16 & 0o777 for one in found.infolist()}
        requirements = found.read("requirements.txt").decode().splitlines()
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert modes["mlhood/cli.py"] == 0o644
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert sorted(requirements) == sorted(project["dependencies"])
    assert not [name for name in modes if name.endswith(".ipynb") or name.startswith("tests")]


@POSIX
def test_a_submission_is_graded_by_what_the_zip_holds(container, course):
    solutions = course.SOLUTIONS | {"T9.3": "def quadruple(x):\n    return 5"}
    write(course.notebook(solutions), container / "submission" / "my work.ipynb")
    (container / "submission" / "numpy.py").write_text("raise SystemExit('taken over')")
    metadata = {
        "created_at": "2026-07-01T14:22:32.365935-07:00",
        "assignment": {"title": "Homework 9: T9", "total_points": "80.0"},
        "users": [{"email": "ada@example.org", "id": 1, "name": "Ada"}],
    }
    (container / "submission_metadata.json").write_text(json.dumps(metadata))
    found = run_autograder(container)
    assert found["score"] == 60
    assert {test["number"]: (test["score"], test["max_score"], test.get("status")) for test in found["tests"]} == {
        "9.1.1": (20, 20, "passed"),
        "9.1.2": (20, 20, "passed"),
        "9.2.1": (20, 20, "passed"),
        "9.2.2": (0, 0, None),
        "9.3.1": (0, 20, "failed"),
    }
    assert isinstance(found["execution_time"], int)
    assert {test["visibility"] for test in found["tests"]} == {"visible"}
    assert found["stdout_visibility"] == "hidden"


@POSIX
def test_an_autograder_that_is_killed_leaves_words(container):
    stub = container / "python"
    stub.write_text("#!/usr/bin/env bash\nkill -9 $$\n")
    stub.chmod(0o755)
    assert call(container, "run_autograder", MLHOOD_PYTHON=str(stub)).returncode != 0
    found = json.loads((container / "results" / "results.json").read_text())
    assert (found["score"], found["tests"]) == (0, [])
    assert "did not come to its end" in found["output"]


STUBS = {
    "apt-get": 'echo "apt-get $*" >> "$LOG"\n[ "$1" = install ] && cp "$HERE/python" "$HERE/$3" || true\n',
    "python": 'if [ "$1" = -m ]; then mkdir -p "$3/bin" && cp "$HERE/pip" "$3/bin/python"; fi\n',
    "pip": 'echo "python $*" >> "$LOG"\n',
}


@POSIX
@pytest.mark.parametrize("has", [True, False])
def test_setup_finds_or_gets_a_python_and_installs(container, tmp_path, has):
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    refused = {f"python3{minor}": "exit 1\n" for minor in ("", ".14", ".13", ".12", ".11")}
    for name, text in {**refused, **STUBS, **({"python3.12": STUBS["python"]} if has else {})}.items():
        (stubs / name).write_text(f"#!/bin/bash\n{text}")
        (stubs / name).chmod(0o755)
    log = tmp_path / "log"
    done = call(container, "source/setup.sh", PATH=f"{stubs}:{os.environ['PATH']}", LOG=str(log), HERE=str(stubs))
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    assert lines[0] == "apt-get update"
    assert ("apt-get install -y python3.13 python3.13-venv" in lines) is not has
    installs = [line.split() for line in lines if line.startswith("python")]
    assert installs[0][-2:] == ["-r", f"{container}/source/requirements.txt"]
    assert installs[1][-2:] == ["--no-deps", f"{container}/source"]


def test_another_file_is_kept(tmp_path):
    path = tmp_path / "student-gradescope.zip"
    path.write_bytes(b"mine")
    with pytest.raises(OutputError, match="another autograder"):
        write_autograder(REPOSITORY, path)
    assert path.read_bytes() == b"mine"
    write_autograder(REPOSITORY, path, force=True)
    write_autograder(REPOSITORY, path)
    assert zipfile.is_zipfile(path)
