"""The git repository of the student version: a first commit on `main`, and no other repository is touched.

Nothing here stops a release: the files are written by then, so what git cannot do is said, with the commands for it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

BRANCH = "main"
MESSAGE = "The student version of the course"
# who has told git no name commits under this one
NEUTRAL = {"user.name": "mlhood", "user.email": "mlhood@localhost"}
# the user's hooks, signatures and line endings are for the user's own commits
PLAIN = ("-c", f"core.hooksPath={os.devnull}", "-c", "commit.gpgSign=false", "-c", "core.autocrlf=false")
# where these are set, as in a git hook, git would work on another repository
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")


def make_repository(folder: Path, files: Iterable[str], *, nested: bool = False) -> str:
    """Make a repository in a folder, with a first commit of these files; return a message about it.

    A repository that is there already is left as it is. Inside another repository none is made, unless `nested`.
    """
    if shutil.which("git") is None:
        return f"git: not installed, so this is no repository yet; later: {_by_hand(folder)}"
    if (folder / ".git").exists():
        commands = f"git -C {shlex.quote(str(folder))} add . && git -C {shlex.quote(str(folder))} commit"
        return f"git: the repository that is here is left as it is; to commit the new version: {commands}"
    try:
        around = _around(folder)
        if around and not nested:
            return f"git: no repository is made inside of {around}; to make one all the same, use --git"
        return f"git: {_first_commit(folder, files)}"
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", "") or str(error)
        reason = output.strip().splitlines()[-1][:200]
        return f"git: the first commit could not be made ({reason}); by hand: {_by_hand(folder)}"


def _around(folder: Path) -> str:
    """Return the repository that a folder is in, or nothing."""
    try:
        return _git(folder, "rev-parse", "--show-toplevel")
    except subprocess.CalledProcessError:
        return ""


def _first_commit(folder: Path, files: Iterable[str]) -> str:
    _git(folder, "init", "--quiet")
    _git(folder, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")  # `init --initial-branch` needs git 2.28
    # forced: the user's own list of ignored files must not leave one out
    _git(folder, "add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", text="\0".join(sorted(files)))
    _git(folder, *_identity(folder), "commit", "--quiet", "--no-verify", "--message", MESSAGE)
    return _git(folder, "log", "-1", f"--format=commit %h on branch {BRANCH}, by %an <%ae>")


def _identity(folder: Path) -> list[str]:
    """Return the options that name an author where git knows none."""
    options = []
    for key, value in NEUTRAL.items():
        try:
            known = _git(folder, "config", key)
        except subprocess.CalledProcessError:
            known = ""
        options += [] if known else ["-c", f"{key}={value}"]
    return options


def _git(folder: Path, *arguments: str, text: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    command = ["git", "-C", str(folder), *PLAIN, *arguments]
    done = subprocess.run(
        command, input=text, capture_output=True, check=True, encoding="utf-8", errors="replace", env=environment
    )
    return done.stdout.strip()


def _by_hand(folder: Path) -> str:
    place = shlex.quote(str(folder))
    return f"git init -b {BRANCH} {place} && git -C {place} add . && git -C {place} commit -m {shlex.quote(MESSAGE)}"
