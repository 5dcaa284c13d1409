"""The autograder for Gradescope: its bytes, its scripts, and the grading of a submission with its files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import psutil
import pytest

from mlhood.grading import gradescope
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.sandbox.bubblewrap import problem
from mlhood.grading.student.gradescope_zip import archive, autograder_files
from mlhood.grading.student.version_files import package_files

REPOSITORY = Path(__file__).parents[3]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="bash scripts for Ubuntu")


@pytest.fixture(scope="module")
def packed() -> bytes:
    return archive(autograder_files(REPOSITORY, package_files(REPOSITORY)))


@pytest.fixture
def container(packed, tmp_path) -> Path:
    """The folder /autograder in Gradescope's container."""
    root = tmp_path / "autograder"
    (root / "submission").mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        file.extractall(root / "source")
    (root / "run_autograder").write_bytes((root / "source" / "run_autograder").read_bytes())
    return root


def call(root: Path, script: str, **more: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "MLHOOD_AUTOGRADER": str(root), **more}
    return subprocess.run(["bash", str(root / script)], env=environment, cwd=root, capture_output=True, text=True)


def run_autograder(root: Path, package: Path | None = None, python: str = sys.executable, **more: str) -> dict:
    """Grade in a process with the zip's package, or another copy of it, and the synthetic project."""
    (root / "sitecustomize.py").write_text("from tests.grading import synthetic_course\nsynthetic_course.install()\n")
    paths = os.pathsep.join(map(str, [package or root / "source", root, REPOSITORY]))
    done = call(root, "run_autograder", MLHOOD_PYTHON=python, PYTHONPATH=paths, **more)
    assert done.returncode == 0, done.stderr
    results = json.loads((root / "results" / "results.json").read_text())
    assert results["extra_data"]["isolation"] in done.stderr
    return results


def test_the_same_course_gives_the_same_bytes(packed):
    assert archive(dict(reversed(autograder_files(REPOSITORY, package_files(REPOSITORY)).items()))) == packed


def test_scripts_are_at_the_top_and_executable(packed):
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in file.infolist()}
        requirements = file.read("requirements.txt").decode().splitlines()
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert modes["mlhood/cli.py"] == 0o644
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert sorted(requirements) == sorted(project["dependencies"])
    assert not [name for name in modes if name.endswith(".ipynb") or name.startswith("tests")]


@POSIX
def test_a_submission_is_graded_with_the_files_of_the_zip(container, course):
    solutions = course.SOLUTIONS | {"T9.3": "def quadruple(x):\n    return 5"}
    write(course.notebook(solutions), container / "submission" / "my work.ipynb")
    (container / "submission" / "numpy.py").write_text("raise SystemExit('taken over')")
    metadata = {
        "created_at": "2026-07-01T14:22:32.365935-07:00",
        "assignment": {"title": "Homework 9: T9", "total_points": "80.0"},
        "users": [{"email": "ada@example.org", "id": 1, "name": "Ada"}],
    }
    (container / "submission_metadata.json").write_text(json.dumps(metadata))
    results = run_autograder(container)
    assert results["score"] == 60
    assert {test["number"]: (test["score"], test["max_score"], test.get("status")) for test in results["tests"]} == {
        "9.1.1": (20, 20, "passed"),
        "9.1.2": (20, 20, "passed"),
        "9.2.1": (20, 20, "passed"),
        "9.2.2": (0, 0, None),
        "9.3.1": (0, 20, "failed"),
    }
    assert isinstance(results["execution_time"], int)
    assert {test["visibility"] for test in results["tests"]} == {"visible"}
    assert results["stdout_visibility"] == "hidden"
    assert results["extra_data"]["isolation"].startswith(gradescope.NOT_ISOLATED if problem() else gradescope.SANDBOX)


# attacks of a notebook; its solution is right only if one of them succeeds
HOSTILE = """
import os, subprocess, sys
from pathlib import Path

root, reached = Path({root!r}), []


def attempt(what, act):
    try:
        act()
    except OSError:
        return
    reached.append(what)


def grader():
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and b"grading.gradescope" in (entry / "cmdline").read_bytes():
            return entry
    raise OSError("not found")


attempt("metadata", lambda: (root / "submission_metadata.json").read_bytes())
attempt("results", lambda: (root / "results" / "results.json").write_text("taken over"))
attempt("list", lambda: os.listdir(root / "results"))
attempt("source", lambda: (root / "source" / "mlhood" / "errors.py").write_text(""))
attempt("environment", lambda: (grader() / "environ").read_bytes())
attempt("memory", lambda: (grader() / "mem").open("rb"))
attempt("files", lambda: os.listdir(grader() / "fd"))
attempt("kill", lambda: os.kill(int(grader().name), 0))
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {mark!r}], start_new_session=True)


def double(x):
    return 2 * x if reached else reached
"""


@pytest.fixture
def forbidden(tmp_path):
    """A PATH on which some programs fail for want of permission, as in Docker."""

    def refuse(*names: str) -> str:
        for name in names:
            stub = tmp_path / "refused" / name
            stub.parent.mkdir(exist_ok=True)
            stub.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2; exit 1\n")
            stub.chmod(0o755)
        return f"{tmp_path / 'refused'}{os.pathsep}{os.environ['PATH']}"

    return refuse


def hostile(container: Path, course) -> str:
    """Submit the hostile notebook, and return the mark of the process that it leaves behind."""
    mark = f"left-by-{container.parent.name}-{os.getpid()}"
    source = HOSTILE.format(root=str(container), mark=mark)
    write(course.notebook(course.EMPTY | {"T9.1": source}), container / "submission" / "hostile.ipynb")
    (container / "submission_metadata.json").write_text('{"users": [{"email": "ada@example.org"}]}')
    return mark


def processes_with(mark: str) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mark in process.cmdline():
                processes.append(process)
    return processes


def test_students_code_in_the_sandbox_reaches_nothing_of_the_autograder(container, course):
    if reason := problem():
        pytest.skip(f"no sandbox on this machine: {reason}")
    mark = hostile(container, course)
    assert_nothing_reached(run_autograder(container), gradescope.SANDBOX, mark)


def test_students_code_as_another_user_reaches_nothing_of_the_autograder(container, course, forbidden, open_python):
    mark = hostile(container, course)
    # the package that it imports is outside the folder that is closed to it
    results = run_autograder(container, REPOSITORY, open_python, PATH=forbidden("bwrap"))
    assert_nothing_reached(results, gradescope.OTHER_USER, mark)
    assert "No permissions to create new namespace" in results["extra_data"]["isolation"]


@POSIX
def test_without_isolation_the_instructor_is_informed(container, course, forbidden):
    """This also shows that the attacks of the two tests above work without isolation."""
    mark = hostile(container, course)
    results = run_autograder(container, PATH=forbidden("bwrap", "setpriv"))
    try:
        assert results["extra_data"]["isolation"].startswith(gradescope.NOT_ISOLATED)
        assert processes_with(mark)
    finally:
        for process in processes_with(mark):
            process.kill()


def assert_nothing_reached(results: dict, expected: str, mark: str) -> None:
    assert results["extra_data"]["isolation"].startswith(expected)
    first = next(test for test in results["tests"] if test["number"] == "9.1.1")
    assert first["status"] == "failed"
    assert "[]" in first["output"]
    assert not processes_with(mark)


@POSIX
def test_an_autograder_that_is_killed_leaves_a_result(container):
    stub = container / "python"
    stub.write_text("#!/usr/bin/env bash\nkill -9 $$\n")
    stub.chmod(0o755)
    assert call(container, "run_autograder", MLHOOD_PYTHON=str(stub)).returncode != 0
    results = json.loads((container / "results" / "results.json").read_text())
    assert (results["score"], results["tests"]) == (0, [])
    assert "did not finish" in results["output"]


STUBS = {
    "apt-get": 'echo "apt-get $*" >> "$LOG"\n[ "$1" = install ] && cp "$HERE/python" "$HERE/$3" || true\n',
    "python": 'if [ "$1" = -m ]; then mkdir -p "$3/bin" && cp "$HERE/pip" "$3/bin/python"; fi\n',
    "pip": 'echo "python $*" >> "$LOG"\n',
}


@POSIX
@pytest.mark.parametrize("has_python", [True, False])
def test_setup_finds_or_installs_a_python_and_the_package(container, tmp_path, has_python):
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    refused = {f"python3{minor}": "exit 1\n" for minor in ("", ".14", ".13", ".12", ".11")}
    for name, text in {**refused, **STUBS, **({"python3.12": STUBS["python"]} if has_python else {})}.items():
        (stubs / name).write_text(f"#!/bin/bash\n{text}")
        (stubs / name).chmod(0o755)
    log = tmp_path / "log"
    more = {"PATH": f"{stubs}:{os.environ['PATH']}", "MLHOOD_VENV": str(tmp_path / "venv")}
    done = call(container, "source/setup.sh", LOG=str(log), HERE=str(stubs), **more)
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    assert lines[0] == "apt-get update"
    assert "apt-get install -y bubblewrap" in lines
    assert ("apt-get install -y python3.13 python3.13-venv" in lines) is not has_python
    installs = [line for line in lines if line.startswith("python")]
    assert installs[0].endswith(f" -r {container}/source/requirements.txt")
    assert installs[1].endswith(f" --no-deps {container}/source")
