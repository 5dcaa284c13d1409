"""The autograder's zip in a root like that of Gradescope's container: its documented paths, and a system to read only.

Paths, scripts and results are those of "Autograder Specifications", metadata those of "Submission Metadata", both at
gradescope-autograders.readthedocs.io.
What setup.sh would install from the network is there already; the rest runs as Gradescope runs it.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import jsonschema
import pytest
from packaging.requirements import Requirement

from mlhood.grading import gradescope
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.sandbox.bubblewrap import problem
from mlhood.grading.student.gradescope_zip import write_autograder
from mlhood.grading.student.version_files import package_files
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[3]
WRITABLE = ("autograder", "dev", "opt", "proc", "tmp")
ISOLATIONS = (gradescope.SANDBOX, gradescope.OTHER_USER, gradescope.NOT_ISOLATED)

VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
FORMAT = {"enum": ["text", "html", "simple_format", "md", "ansi"]}
TEXT, NUMBER, OBJECT = {"type": "string"}, {"type": "number"}, {"type": "object"}
TEST = {
    "type": "object",
    "properties": {
        "score": NUMBER,
        "max_score": NUMBER,
        "status": {"enum": ["passed", "failed"]},
        "name": TEXT,
        "name_format": FORMAT,
        "number": TEXT,
        "output": TEXT,
        "output_format": FORMAT,
        "tags": {"type": "array", "items": TEXT},
        "visibility": VISIBILITY,
        "extra_data": OBJECT,
    },
    "additionalProperties": False,
}
RESULTS = {
    "type": "object",
    "properties": {
        "score": NUMBER,
        "execution_time": NUMBER,
        "output": TEXT,
        "output_format": FORMAT,
        "test_output_format": FORMAT,
        "test_name_format": FORMAT,
        "visibility": VISIBILITY,
        "stdout_visibility": VISIBILITY,
        "extra_data": OBJECT,
        "tests": {"type": "array", "items": TEST},
        "leaderboard": {"type": "array"},
    },
    "additionalProperties": False,
    # a score for everything, or one for each test
    "anyOf": [
        {"required": ["score"]},
        {"required": ["tests"], "properties": {"tests": {"minItems": 1, "items": {"required": ["score"]}}}},
    ],
}
METADATA = {
    "id": 123456,
    "created_at": "2026-07-01T14:22:32.365935-07:00",
    "assignment": {
        "due_date": "2026-07-31T23:00:00.000000-07:00",
        "group_size": 4,
        "group_submission": True,
        "id": 25828,
        "course_id": 1234,
        "late_due_date": None,
        "release_date": "2026-07-02T00:00:00.000000-07:00",
        "title": "Programming Assignment T9",
        "total_points": "80.0",
    },
    "submission_method": "upload",
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
    jsonschema.validate(results, RESULTS)
    assert results["extra_data"]["isolation"].startswith(ISOLATIONS)
    assert results["extra_data"]["isolation"] in done.stderr
    assert [(test["score"], test["max_score"], test.get("status")) for test in results["tests"]] == [
        *[(20, 20, "passed")] * 3,
        (0, 0, None),
        (0, 20, "failed"),
    ]
    assert (results["score"], results["stdout_visibility"]) == (60, "hidden")
    assert "in line 2 of the solution cell of T9.3" in results["tests"][-1]["output"]
    jsonschema.validate(gradescope.failure("the reason") | {"extra_data": {"isolation": ""}}, RESULTS)


@pytest.mark.skipif(sys.platform == "win32", reason="bash scripts for Ubuntu")
def test_the_scripts_are_valid_and_setup_installs_what_the_package_declares(image):
    source = image / "autograder" / "source"
    for script in ("setup.sh", "run_autograder"):
        assert (source / script).stat().st_mode & 0o111 == 0o111
        checked = subprocess.run(["bash", "-n", source / script], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")
    requirements = [Requirement(line) for line in (source / "requirements.txt").read_text().splitlines()]
    declared = map(Requirement, importlib.metadata.requires("mlhood") or [])
    assert {str(requirement) for requirement in requirements} == {
        str(requirement) for requirement in declared if "extra" not in str(requirement.marker)
    }
    # so what is run here is what would be installed there
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(importlib.metadata.version(requirement.name), prereleases=True)
