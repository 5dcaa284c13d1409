from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from mlhood import cli
from mlhood.errors import GradingError
from mlhood.grading import commands
from mlhood.grading.notebooks import sync
from mlhood.grading.notebooks.notebook import write, write_text
from mlhood.grading.notebooks.sync import cell_files
from mlhood.grading.student import release, variant_version

ROOT = Path(__file__).parents[2]
COMMANDS = ("run", "check", "validate", "sync", "release", "grade", "export", "marks")
HEAVY = ("torch", "numpy", "IPython", "nbformat", "sqlite3", "psutil")


def call(*arguments: object):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example: mlhood {command}" in result.stdout


def test_help_imports_nothing_heavy():
    code = f"import sys, mlhood.cli, mlhood.grading.pytest_plugin; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_check_prints_marks(solved):
    result = call("check", solved)
    assert result.exit_code == 0
    assert "all tasks" in result.stdout


def test_check_explains_lost_points(empty):
    result = call("check", empty, "--task", "T9.1")
    assert result.exit_code == 1
    assert "`double` is not written yet" in result.stdout
    assert "T9.2" not in result.stdout


def test_hints_say_how_to_go_on(course, solved):
    write(course.notebook(course.SOLUTIONS | {"T9.1": "def double(x):\n    return x"}), solved)
    assert "two times the number" in call("check", solved, "--task", "T9.1", "--hints").stdout
    assert "two times the number" not in call("check", solved, "--task", "T9.1").stdout


@pytest.mark.parametrize(
    ("typed", "name", "tasks"),
    [("P1", "P1.ipynb", []), ("p1.3", "P1.ipynb", ["p1.3"]), ("P1.ipynb", "P1.ipynb", []), ("T9.1", "T9.1", [])],
)
def test_check_takes_a_notebook_or_one_of_its_tasks(typed, name, tasks, tmp_path, monkeypatch):
    for other in ("P1.ipynb", "pyproject.toml"):
        (tmp_path / other).touch()
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path / "tests")
    path, named = commands._split_task(Path(typed))
    assert (path.name, named) == (name, tasks)
    assert path.exists() is (name == "P1.ipynb")


@pytest.mark.parametrize("command", [["sync", "--check"], ["release", "--out", "version"]], ids=" ".join)
def test_a_command_about_the_course_finds_it_from_a_folder_of_it(command, tmp_path, monkeypatch):
    for other in ("P1.ipynb", "pyproject.toml"):
        (tmp_path / other).touch()
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path / "tests")
    seen = []
    monkeypatch.setattr(sync, "outdated_files", lambda root: seen.append(root) or {})
    monkeypatch.setattr(release, "release", lambda root, out, **options: seen.append(root) or SimpleNamespace(text=str))
    assert call(*command).exit_code == 0
    assert [root.resolve() for root in seen] == [tmp_path.resolve()]


def test_check_json_is_only_json(empty):
    result = call("check", empty, "--json", "--task", "T9.3", "--task", "T9.1", "--seed", "5")
    plain = json.loads(result.stdout)
    assert [task["id"] for task in plain["tasks"]] == ["T9.1", "T9.3"]
    assert (plain["earned"], plain["points"]) == (0, 60)


def test_run_prints_marks_and_report(solved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call("run", solved)
    assert result.exit_code == 0
    assert "80 of 80" in result.stdout
    assert "report: out" in result.stdout


def test_run_explains_a_lost_point(empty, tmp_path):
    result = call("run", empty, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "a cell failed: `import os`: NotImplementedError" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "absent.ipynb"],
        ["check", "T9.ipynb", "--task", "T9.9"],
        ["validate", "absent.ipynb"],
        ["run"],
        ["run", "T9.ipynb", "--out", "T9.ipynb"],
        ["release", "--out", "student"],
    ],
    ids=" ".join,
)
def test_bad_input_is_a_message_and_exit_code_2(solved, arguments, monkeypatch, capsys):
    monkeypatch.chdir(solved.parent)
    monkeypatch.setattr(sys, "argv", ["mlhood", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "where: " in printed.err


def test_release_command(solved, tmp_path, monkeypatch):
    monkeypatch.setattr(variant_version, "package_files", lambda root: {"mlhood/__init__.py": ""})
    monkeypatch.setattr(variant_version, "course_notebooks", lambda root: [solved])
    for name, text in cell_files([solved]).items():
        write_text(tmp_path / name, text)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "LICENSE").write_text("free")
    monkeypatch.chdir(tmp_path)
    result = call("release", "--out", "student")
    assert result.exit_code == 0
    assert "student version: student (T9.ipynb; 7 files)" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--variant", ""], "this cannot be the name of a variant"),  # a variable of the shell that is not set
        (["--seed-file", "seed.txt"], "--seed-file and --sources are for a variant"),
    ],
    ids=" ".join,
)
def test_no_other_version_is_released_than_the_one_asked_for(options, said, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = call("release", "--out", tmp_path / "student", *options)
    assert isinstance(result.exception, GradingError)
    assert said in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [["run", "P1"], ["check", "P1"], ["grade", ".", "--out", "graded"]],
    ids=" ".join,
)
def test_an_empty_word_is_not_the_public_course(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = call(*command, "--variant", "")
    assert isinstance(result.exception, GradingError)
    assert "name of a variant" in str(result.exception)
