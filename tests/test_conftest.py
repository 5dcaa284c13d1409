"""What `pytest` runs: without arguments the suite, but for its exhaustive tests; with a selection, all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFIGURATION = """
[tool.pytest.ini_options]
testpaths = ["tests"]
addopts = ["-p", "xdist", "--strict-markers", "--import-mode=importlib"]
markers = ["exhaustive: further cases"]
"""
TESTS = """
import pytest

@pytest.mark.parametrize("case", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_it(case):
    pass
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    (tmp_path / "tests").mkdir()
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path / "tests")
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION, encoding="utf-8")
    (tmp_path / "tests/test_it.py").write_text(TESTS, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ("", "1 passed"),
        ("-p no:xdist", "1 passed, 1 deselected"),
        ("--exhaustive", "2 passed"),
        ("tests/test_it.py", "2 passed"),
        ("tests -n 2", "2 passed"),
        ("-k it", "2 passed"),
    ],
)
def test_exhaustive_tests_run_when_asked_for_or_selected(repository, arguments, summary):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # all of them take seconds to import
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments.split()],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{summary} in" in done.stdout, done.stdout + done.stderr
