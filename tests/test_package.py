"""The wheel and the source distribution: complete, and installed into a clean environment every command runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import nbformat
import onnx
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from onnx import TensorProto, helper

from mlhood.grading.student.release import release
from mlhood.grading.student.version_files import text_files
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
STEM = f"mlhood-{PROJECT['version']}"
pytestmark = pytest.mark.slow
NO_PACKAGE = ("__pycache__", ".pyc")
# what a source distribution has besides the package, to build and to test it
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "P1.ipynb", "tests/conftest.py", ".github/CHANGELOG.md")

# prints where the package is, and the exit code of every command's help
ALL_HELP = """
import json, mlhood, typer
from typer.testing import CliRunner
from mlhood.cli import app

def paths(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from paths(inner, (*path, name))

runner = CliRunner()
codes = {" ".join(path): runner.invoke(app, [*path, "--help"]).exit_code for path in paths(typer.main.get_command(app))}
print(json.dumps({"file": mlhood.__file__, "codes": codes}))
"""

USES_THE_COURSE = """
import glob, importlib.metadata
import mlhood
print(mlhood.__file__, *glob.glob("P1.ipynb"), importlib.metadata.distribution("mlhood").locate_file("."), sep="\\n")
"""
OFFLINE = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_IGNORE_INSTALLED": "1"}


def run(*command: object, folder: Path, code: int = 0, environment: dict[str, str] | None = None) -> str:
    """Run a program in a folder, expect this exit code, and return what it wrote."""
    outer = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    outer |= environment or {}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=outer, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    """The two distributions, by their suffixes, built by the back end of pyproject.toml without a network."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", out, folder=ROOT)
    return {"wheel": out / f"{STEM}-py3-none-any.whl", "sdist": out / f"{STEM}.tar.gz"}


def new_environment(environment: Path) -> Path:
    """Make an environment with the libraries of this one, without mlhood; return the folder of its programs."""
    venv.create(environment, with_pip=False)
    paths = sysconfig.get_paths(scheme="venv", vars={"base": str(environment), "platbase": str(environment)})
    Path(paths["purelib"], "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return Path(paths["scripts"])


def install(distribution: Path, environment: Path) -> Path:
    """Install a distribution into a new environment without a network, and return the folder of its programs."""
    programs = new_environment(environment)
    python = programs / Path(sys.executable).name
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "-q"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, distribution, folder=environment)
    return programs


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The folder of programs of an environment with the wheel."""
    return install(built["wheel"], tmp_path_factory.mktemp("wheel"))


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "mlhood"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository")
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def test_the_wheel_has_every_file_of_the_package_and_no_other(built):
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = {name for name in archive.namelist() if not name.startswith(f"{STEM}.dist-info/")}
    assert tracked() <= names
    assert not [name for name in names if not name.startswith("mlhood/") or name.endswith(NO_PACKAGE)]


def test_the_source_distribution_can_be_built_and_tested(built, tmp_path):
    with tarfile.open(built["sdist"]) as archive:
        names = {name.removeprefix(f"{STEM}/") for name in archive.getnames()}
    assert {*SOURCES, *tracked()} <= names
    assert not [name for name in names if name.startswith((".venv/", "out/", ".git/")) or name.endswith(NO_PACKAGE)]
    programs = install(built["sdist"], tmp_path / "environment")
    assert run(programs / "mlhood", "--version", folder=tmp_path) == f"mlhood {PROJECT['version']}\n"
    (package,) = programs.parent.glob("**/site-packages/mlhood")
    assert tracked() <= {f"mlhood/{path.relative_to(package).as_posix()}" for path in package.rglob("*")}


def test_every_command_has_help_in_any_folder(installed, tmp_path):
    found = json.loads(run(installed / "python", "-c", ALL_HELP, folder=tmp_path))
    assert Path(found["file"]).is_relative_to(installed.parent)
    assert {"run", "check", "grade", "bench model"} <= set(found["codes"])
    assert set(found["codes"].values()) == {0}


def test_commands_act_in_any_folder(installed, tmp_path):
    program = installed / "mlhood"
    assert run(program, "--version", folder=tmp_path) == f"mlhood {PROJECT['version']}\n"
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]), helper.make_tensor_value_info("y", 1, [2, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "rectify")], "tiny", shape[:1], shape[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "t.onnx")
    assert "rectify" in run(program, "compile", "t.onnx", "--text", "hir", folder=tmp_path)
    assert "there is no notebook of the course here" in run(program, "run", folder=tmp_path, code=2)
    assert "there is no gradebook" in run(program, "export", "x", "--to", "x.csv", folder=tmp_path, code=2)


def test_the_cell_for_colab_fetches_and_installs_the_student_version(tmp_path):
    """A kernel in an empty folder runs it, as Colab does, and then a cell of the notebook."""
    programs = new_environment(tmp_path / "environment")
    course = release(ROOT, tmp_path / "repository").folder
    author = ("-c", "user.name=author", "-c", "user.email=author@localhost")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*author, "commit", "-q", "-m", "The course")):
        subprocess.run(["git", *words], cwd=course, check=True)
    text = text_files(["P1.ipynb"])["README.md"].replace("https://github.com/OWNER/REPOSITORY", course.as_uri())
    cell = "COURSE = " + text.partition("```\nCOURSE = ")[2].partition("```")[0]
    assert course.as_uri() in cell
    content = tmp_path / "content"
    content.mkdir()
    cells = [new_code_cell(cell), new_code_cell(USES_THE_COURSE)]
    nbformat.write(new_notebook(cells=cells), content / "P1.ipynb")
    execute = ("-m", "nbconvert", "--to", "notebook", "--execute", "--output", "done.ipynb", "P1.ipynb")
    execute += (f"--ExecutePreprocessor.startup_timeout={PATIENCE}",)
    run(programs / Path(sys.executable).name, *execute, folder=content, environment=OFFLINE)
    outputs = nbformat.read(content / "done.ipynb", as_version=4).cells[1].outputs
    shown = "".join(output.text for output in outputs if output.get("name") == "stdout")
    package, notebook, installed_in = shown.splitlines()
    assert (Path(package), notebook) == (content / "course/mlhood/__init__.py", "P1.ipynb")
    assert Path(installed_in).is_relative_to(programs.parent)
