"""The command line itself: its version, and the two ways to start it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlhood import cli
from mlhood.errors import KernelError

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


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
