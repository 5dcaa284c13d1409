"""Another user of this machine, for foreign code where we are root and bubblewrap may do nothing: in a container.

Less than a sandbox: it sees the system, the processes and the network. It reads and changes no file, no memory and no
process of ours, and nothing that it has started is left.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from mlhood.grading.sandbox.bubblewrap import environment, package

# below what a container's own map of users may leave out, above the users of any distribution
FIRST, LAST = 20_000, 60_000
MAX_PROCESSES = 2048
MAX_FILE = 768 << 20
SECONDS = 60
# what a kernel needs, and what it must not have
TRIAL = """
import os, subprocess, sys
import ipykernel, mlhood

package, *hidden = sys.argv[1:]
if os.path.dirname(mlhood.__file__) != package:
    sys.exit("it finds another mlhood")
if any(os.access(path, mode) for path in hidden for mode in (os.R_OK, os.X_OK)):
    sys.exit("it can read what is hidden")
subprocess.run([sys.executable, "-P", "-c", ""], check=True)
"""
# Kills all of a user's at once: nothing can fork away from it, and nothing can stop it, as a process may only signal
# those whose real user it is, and this one's is the keeper. Should it still have our rights, it must not.
KILL_ALL = """
import os, sys
user, keeper = map(int, sys.argv[1:])
os.setgroups([])
os.setresgid(keeper, keeper, keeper)
os.setresuid(keeper, user, keeper)
try:
    os.kill(os.getppid(), 0)
except PermissionError:
    try:
        os.kill(-1, 9)
    except ProcessLookupError:
        pass
else:
    sys.exit("there are rights left")
"""


def free_user() -> int:
    """A user id that nobody has, and whose successor nobody has (see `kill_all`)."""
    taken = {process.info["uids"].real for process in psutil.process_iter(["uids"]) if process.info["uids"]}
    taken |= _known_users()
    while True:
        user = FIRST + 2 * secrets.randbelow((LAST - FIRST) // 2)
        if not {user, user + 1} & taken:
            return user


def _known_users() -> set[int]:
    import pwd  # where there is no Linux, there may be no such module

    return {entry.pw_uid for entry in pwd.getpwall()}


def command(user: int) -> list[str]:
    """The command that a program and its arguments are put behind. It ends with the thread that has started it."""
    limits = [f"--nproc={MAX_PROCESSES}", f"--fsize={MAX_FILE}", "--core=0"]
    rights = [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
    return ["prlimit", *limits, "setpriv", *rights, "--pdeathsig=KILL"]


def problem(hidden: Sequence[Path] = ()) -> str:
    """Why foreign code cannot run as another user, in words; empty if it can.

    Args:
        hidden: Files and folders that it must be able neither to read nor to enter.
    """
    if not sys.platform.startswith("linux"):
        return f"another user needs Linux, and this is {sys.platform}"
    if os.geteuid():
        return "only root can be another user"
    missing = [name for name in ("prlimit", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} (util-linux) not found"
    try:
        attempt = subprocess.run(
            [*command(free_user()), sys.executable, "-P", "-c", TRIAL, str(package()), *map(str, hidden)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            cwd="/",
            env=environment(Path("/nonexistent"), Path("/tmp")),  # noqa: S108 (it writes nothing)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"another user's process does not run ({error})"
    if attempt.returncode:
        said = attempt.stderr.strip().splitlines() or ["no reason given"]
        return f"another user cannot do it ({said[-1][:500]})"
    return ""


def kill_all(user: int) -> None:
    """Kill all that runs as a user, whatever it has started.

    Raises:
        OSError: It could not be done.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", KILL_ALL, str(user), str(user + 1)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd="/",
        env={},
    )
    if done.returncode:
        raise OSError(f"the processes of user {user} could not be ended: {done.stderr.strip()[-500:]}")
