"""The autograder's zip in a root like that of Gradescope's container: its documented paths, and a system to read only.

Paths, scripts and results are those of "Autograder Specifications", metadata those of "Submission Metadata", both at
gradescope-autograders.readthedocs.io.
What setup.sh would install from the network is there already; the rest runs as Gradescope runs it.
"""

from __future__ import annotations

import compileall
import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from mlhood.grading import gradescope
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.sandbox.bubblewrap import problem
from mlhood.grading.student.gradescope_zip import write_autograder
from mlhood.grading.student.version_files import package_files
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[3]
WRITABLE = ("autograder", "dev", "opt", "proc", "tmp")
ISOLATIONS = (gradescope.SANDBOX, gradescope.OTHER_USER, gradescope.NOT_ISOLATED)

METADATA = {
    "id": 123456,
    "created_at": "2026-07-01T14:22:32.365935-07:00",
    "assignment": {"id": 25828, "title": "Programming Assignment T9", "total_points": "80.0"},
    "users": [
        {"email": "ada@example.org", "id": 1234, "name": "Ada Lovelace"},
        {"email": "bob@example.org", "id": 1235, "name": "Bob"},
    ],
    "previous_submissions": [
        {"submission_time": "2026-06-06T14:24:48.087023-07:00", "score": 0.0, "results": {"tests": []}}
    ],
}


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Path:
    """The folders /autograder and /opt/mlhood as they are when Gradescope has built the image."""
    folder = tmp_path_factory.mktemp("image")
    with zipfile.ZipFile(write_autograder(REPOSITORY, package_files(REPOSITORY), folder / "autograder.zip")) as file:
        for info in file.infolist():
            (folder / "autograder" / "source" / file.extract(info, folder / "autograder" / "source")).chmod(
                info.external_attr >> 16 & 0o777
            )
    shutil.copy(folder / "autograder" / "source" / "run_autograder", folder / "autograder")
    for name in ("submission", "results"):
        (folder / "autograder" / name).mkdir()
    _install(folder / "autograder" / "source", folder / "mlhood")
    return folder


def _install(source: Path, venv: Path) -> None:
    """Do what setup.sh does without a network: the libraries are those of this environment, the package the zip's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(venv), "platbase": str(venv)}))
    shutil.copytree(source / "mlhood", packages / "mlhood")
    compileall.compile_dir(packages, quiet=1)  # as pip does
    # after it, so that it is not imported from the repository; the small project is the tests'
    paths = [*(path for path in sys.path if path.endswith("-packages")), str(REPOSITORY)]
    (packages / "libraries.pth").write_text("\n".join(paths))
    (packages / "sitecustomize.py").write_text(
        "from tests.grading import synthetic_course\nsynthetic_course.install()\n"
    )


def in_container(image: Path, *command: str) -> subprocess.CompletedProcess:
    """Run a command in /autograder; the system cannot be written."""
    system = [path for path in sorted(Path("/").iterdir()) if path.name not in WRITABLE]
    links = [
        option for path in system if path.is_symlink() for option in ("--symlink", str(path.readlink()), str(path))
    ]
    folders = [path for path in system if path.is_dir() and not path.is_symlink()]
    binds = [option for path in folders for option in ("--ro-bind-try", str(path), str(path))]
    mounts = ["--bind", str(image / "autograder"), "/autograder", "--ro-bind", str(image / "mlhood"), "/opt/mlhood"]
    # the libraries and the small project, which may be in /tmp
    needed = [option for path in (sys.prefix, str(REPOSITORY)) for option in ("--ro-bind", path, path)]
    environment = ["--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME", "/tmp"]
    return subprocess.run(
        [
            *("bwrap", *links, *binds, *mounts, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *needed),
            *("--unshare-net", "--unshare-pid", "--die-with-parent", *environment, "--chdir", "/autograder"),
            *("--remount-ro", "/", *command),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_a_submission_is_graded_in_gradescopes_paths(image, course):
    if reason := problem():
        pytest.skip(f"no bubblewrap to build the root with: {reason}")
    probe = "import mlhood; print(mlhood.__file__); open('/opt/mlhood/x', 'w')"
    probed = in_container(image, "/opt/mlhood/bin/python", "-c", probe)
    assert probed.stdout.startswith("/opt/mlhood/lib/")
    assert "Read-only file system" in probed.stderr
    autograder = image / "autograder"
    solutions = course.SOLUTIONS | {"T9.3": "def quadruple(x):\n    return [x][4]"}
    write(course.notebook(solutions), autograder / "submission" / "my work.ipynb")
    (autograder / "submission_metadata.json").write_text(json.dumps(METADATA))
    done = in_container(image, "/autograder/run_autograder")
    assert done.returncode == 0, done.stderr
    results = json.loads((autograder / "results" / "results.json").read_text())
    assert results["extra_data"]["isolation"].startswith(ISOLATIONS)
    assert results["extra_data"]["isolation"] in done.stderr
    assert [(test["score"], test["max_score"], test.get("status")) for test in results["tests"]] == [
        *[(20, 20, "passed")] * 3,
        (0, 0, None),
        (0, 20, "failed"),
    ]
    assert (results["score"], results["stdout_visibility"]) == (60, "hidden")
    assert "in line 2 of the solution cell of T9.3" in results["tests"][-1]["output"]
