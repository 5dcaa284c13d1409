"""The command line itself: its version, and the two ways to start it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from mlhood import cli
from mlhood.errors import KernelError

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_version_is_that_of_the_package():
    result = CliRunner().invoke(cli.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"mlhood {PROJECT['version']}\n")


def test_python_m_mlhood_is_the_command_line():
    command = [sys.executable, "-m", "mlhood", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"mlhood {PROJECT['version']}\n", "")


@pytest.mark.parametrize(("error", "code"), [(KernelError("unknown dtype"), 2), (KeyboardInterrupt(), 130)])
def test_errors_become_messages_and_exit_codes(error, code, monkeypatch, capsys):
    def fail():
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == code
    assert "Traceback" not in capsys.readouterr().err


def main(arguments, monkeypatch, capsys) -> tuple[int, str]:
    """Return the exit code of the command line, and what it wrote to the standard error."""
    monkeypatch.setattr(sys, "argv", ["mlhood", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0), " ".join(capsys.readouterr().err.replace("│", " ").split())


COMMANDS = [
    (["benhc"], "Did you mean 'bench'?"),
    (["chek", "P1"], "Did you mean 'check'?"),
    (["class-reprot"], "Did you mean 'class-report'?"),
    (["bench", "modle"], "Did you mean 'model'?"),
    (["check", "P1", "--hint"], "--hints"),
    (["run", "--ouput", "x"], "--out"),
]
TASKS = [
    (["check", "P1", "--task", "P1.33"], "did you mean P1.3"),
    (["check", "P1.33"], "did you mean P1.3"),
]
CHOICES = [
    (["export", "graded", "--to", "x.csv", "--format", "nbgradr"], "did you mean nbgrader?"),
    (["compile", "lenet.onnx", "--target", "interpretr"], "did you mean interpreter?"),
    (["compile", "lenet.onnx", "--target", "wams", "--out", "x"], "did you mean wasm?"),
    (["compile", "lenet.onnx", "--stop-after", "optimised"], "did you mean optimized?"),
    (["compile", "lenet.onnx", "--quantize", "symetric"], "did you mean symmetric"),
    (["compile", "lenet.onnx", "--quantize", "symmetric", "--element", "itn8"], "did you mean int8"),
]
FILES = [
    (["check", "P33"], "did you mean P3.ipynb?"),
    (["run", "P1", "p3.ipny"], "did you mean P3.ipynb?"),
    (["run", "thesis"], "give the path of a notebook, such as P1.ipynb"),
    (["validate", "P1.ipynbb"], "did you mean P1.ipynb?"),
    (["preview", "PP1.ipynb"], "did you mean P1.ipynb?"),
    (["view", "lenet.onx"], "did you mean lenet.onnx?"),
    (["compile", "lnet.onnx"], "did you mean lenet.onnx?"),
    (["compile", "lenet.onnx", "--quantize", "symmetric", "--calibration", "digit.npz"], "did you mean digits.npz?"),
    (["grade", "submited", "--out", "graded", "--no-sandbox"], "did you mean submitted?"),
    (["grade", "submitted", "--out", "graded", "--no-sandbox", "--late", "lat.toml"], "did you mean late.toml?"),
    (["grade", "submitted", "--out", "graded", "--no-sandbox", "--roster", "rooster.csv"], "did you mean roster.csv?"),
    (["export", "graed.sqlite", "--to", "x.csv"], "did you mean grade.sqlite?"),
]


@pytest.fixture
def folder_of_typos(tmp_path, monkeypatch) -> Path:
    """The working folder has notebooks and other files of the course, whose names are nearly typed."""
    for name in ("P1.ipynb", "P3.ipynb"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "submitted").mkdir()
    for name in ("lenet.onnx", "digits.npz", "late.toml", "roster.csv", "grade.sqlite", "pyproject.toml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(each: object) -> str:
    return " ".join(each) if isinstance(each, list) else ""


@pytest.mark.parametrize(("arguments", "hint"), [*COMMANDS, *TASKS, *CHOICES, *FILES], ids=typed)
def test_what_is_mistyped_names_the_nearest(arguments, hint, folder_of_typos, monkeypatch, capsys):
    code, said = main(arguments, monkeypatch, capsys)
    assert code == 2
    assert hint in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["", "bench"])
def test_a_group_without_a_command_lists_its_commands(command):
    said = CliRunner().invoke(cli.app, command.split()).output
    assert "Usage: " in said
    assert "Commands" in said


def help_texts(command: click.Command) -> Iterator[str]:
    yield command.help or ""
    yield from (getattr(parameter, "help", None) or "" for parameter in command.params)
    for inner in getattr(command, "commands", {}).values():
        yield from help_texts(inner)


def test_help_shows_brackets_and_does_not_take_them_for_markup():
    for text in help_texts(get_command(cli.app)):
        assert Text.from_markup(text).plain == text.replace("\\[", "["), text
