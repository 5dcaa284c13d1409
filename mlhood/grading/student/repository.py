"""The git repository of the student version: a first commit on `main`, whatever the user's own settings are.

Nothing here stops a release: the files are written by then, so what git cannot do is said, with the commands for it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

BRANCH = "main"
MESSAGE = "The student version of the course"
# the user's name, hooks, signatures and line endings are for the user's own commits
SETTINGS = {
    "user.name": "mlhood",
    "user.email": "mlhood@localhost",
    "core.hooksPath": os.devnull,
    "commit.gpgSign": "false",
    "core.autocrlf": "false",
}


def make_repository(folder: Path, files: Iterable[str]) -> str:
    """Make a repository in a folder, with a first commit of these files; return a message about it.

    A repository that is there already is left as it is.
    """
    place = shlex.quote(str(folder))
    if (folder / ".git").exists():
        return f"git: the repository that is here is left as it is; commit the new version by git -C {place} add ."
    try:
        _git(folder, "init", "--quiet", "--initial-branch", BRANCH)
        # forced: the user's own list of ignored files must not leave one out
        _git(folder, "add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", text="\0".join(sorted(files)))
        _git(folder, "commit", "--quiet", "--no-verify", "--message", MESSAGE)
        return _git(folder, "log", "-1", f"--format=git: commit %h on branch {BRANCH}")
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1][:200]
        commands = f"git init -b {BRANCH} {place} && git -C {place} add . && git -C {place} commit"
        return f"git: the first commit could not be made ({reason}); by hand: {commands}"


def _git(folder: Path, *arguments: str, text: str = "") -> str:
    # where variables such as GIT_DIR are set, as in a git hook, git would work on another repository
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = [option for name, value in SETTINGS.items() for option in ("-c", f"{name}={value}")]
    command = ["git", "-C", str(folder), *settings, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, check=True, encoding="utf-8", env=environment)
    return done.stdout.strip()
