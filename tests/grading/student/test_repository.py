"""The git repository of the student version, whatever the user's settings are, and without git."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mlhood.grading.student.release import StudentVersion
from mlhood.grading.student.repository import make_repository

FILES = {"P1.ipynb": "{}", "ignored.txt": "but released", ".github/workflows/a.yml": "on: push\n"}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The files of a version, and one that is not of it, on a machine where git knows nothing."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    for name, value in {"HOME": "home", "XDG_CONFIG_HOME": "home", "GIT_CONFIG_GLOBAL": "home/config"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name, text in {**FILES, "mine.txt": "not of the version"}.items():
        path = tmp_path / "a version" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "a version"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_first_commit_holds_the_version_under_a_neutral_name(folder, tmp_path, monkeypatch):
    (tmp_path / "home" / "ignored").write_text("ignored.txt\n")
    settings = "[user]\nname = Ada\nemail = ada@example.org\n"
    settings += (
        "[core]\nexcludesFile = {0}/ignored\nhooksPath = {0}\n[init]\ndefaultBranch = other\n[commit]\ngpgSign = true\n"
    )
    (tmp_path / "home" / "config").write_text(settings.format(tmp_path / "home"))
    hook = tmp_path / "home" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another.git"))  # as in a hook of another repository
    message = make_repository(folder, FILES)
    monkeypatch.delenv("GIT_DIR")
    assert not (tmp_path / "another.git").exists()
    assert git(folder, "branch", "--show-current") == "main"
    assert git(folder, "log", "--format=%an <%ae>, %cn") == "mlhood <mlhood@localhost>, mlhood"
    assert set(git(folder, "ls-files").splitlines()) == set(FILES)
    assert message == f"git: commit {git(folder, 'log', '--format=%h')} on branch main"
    # a second release changes nothing in it
    (folder / "P1.ipynb").write_text("[]")
    assert "left as it is" in make_repository(folder, FILES)
    assert git(folder, "rev-list", "--count", "HEAD") == "1"
    assert git(folder, "status", "--porcelain", "P1.ipynb") == "M P1.ipynb"


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script in place of git")
@pytest.mark.parametrize(("script", "reason"), [(None, "git"), ("echo disk full >&2; exit 1", "(disk full)")])
def test_without_a_working_git_the_commands_are_said(folder, tmp_path, monkeypatch, script, reason):
    (tmp_path / "bin").mkdir()
    if script:
        (tmp_path / "bin" / "git").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    message = make_repository(folder, FILES)
    assert reason in message
    place = shlex.quote(str(folder))
    assert f"git init -b main {place} && git -C {place} add . && " in message


@pytest.mark.parametrize("autograder", [None, Path("s-gradescope.zip")])
def test_the_message_says_what_to_do_next(autograder):
    text = StudentVersion(Path("s"), ("P1.ipynb",), 3, (), autograder, "git: commit 1").text()
    assert "git: commit 1\n" in text
    assert "git -C s push -u origin main" in text
    assert ("upload s-gradescope.zip under Configure Autograder" in text) is bool(autograder)
    assert ("mlhood release --gradescope" in text) is not bool(autograder)
