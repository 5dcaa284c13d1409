"""Untrusted code as another user, where the grader is root and bubblewrap is not permitted: in a container.

This isolates less than a sandbox: the code sees the system, its processes and the network. But it can neither read nor
change files, memory and processes of the grader, and all processes that it starts are killed in the end.

Both processes use the same folders, protected by ownership. `work` and `exchange` belong to the grader and are sticky:
everybody may create files in them, and nobody may remove or replace those of another user. The kernel reads a file for
the grader, who writes a copy that cannot be replaced.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

from mlhood.grading.bare.files import files_of
from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.execution.kernel import RUNNER, Kernel
from mlhood.grading.sandbox.bubblewrap import TIMEOUT_SECONDS, environment
from mlhood.grading.sandbox.visible import package

# above the users of any distribution, below the ids that a container may not map
FIRST_ID, LAST_ID = 20_000, 60_000
MAX_PROCESSES = 2048
MAX_FILE = 768 << 20
STICKY = 0o1777
ENTER_ONLY = 0o711
OOM_SCORE = "1000"  # if the container runs out of memory, the kernel is killed before the grader
# tests what a kernel needs, and what it must not be able to do
SELF_TEST = """
import os, subprocess, sys
import mlhood, mlhood.grading.rpc.cell_runner

package, *hidden = sys.argv[1:]
if os.path.dirname(mlhood.__file__) != package:
    sys.exit("it finds another mlhood")
if any(os.access(path, mode) for path in hidden for mode in (os.R_OK, os.X_OK)):
    sys.exit("it can read what is hidden")
subprocess.run([sys.executable, "-P", "-c", ""], check=True)
"""
# Kills all processes of a user atomically, so none can escape by forking. None of them can signal this process, whose
# real user is another one (`keeper`). If it still has the grader's rights, it must not kill anything.
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
    sys.exit("it still has the rights of the grader")
"""


def free_user() -> int:
    """Return a user id that is unused and whose successor is unused, too (see `kill_all`)."""
    import pwd  # exists on POSIX only

    used = {process.info["uids"].real for process in psutil.process_iter(["uids"]) if process.info["uids"]}
    used |= {entry.pw_uid for entry in pwd.getpwall()}
    while True:
        user = FIRST_ID + 2 * secrets.randbelow((LAST_ID - FIRST_ID) // 2)
        if not {user, user + 1} & used:
            return user


def command(user: int) -> list[str]:
    """Return the command that runs the program after it as a user; it is killed when the starting thread ends."""
    limits = [f"--nproc={MAX_PROCESSES}", f"--fsize={MAX_FILE}", "--core=0"]
    rights = [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
    return ["prlimit", *limits, "setpriv", *rights, "--pdeathsig=KILL"]


def problem(hidden: Sequence[Path] = ()) -> str:
    """Return why untrusted code cannot run as another user that cannot read `hidden`, or an empty text if it can."""
    if not sys.platform.startswith("linux"):
        return f"another user needs Linux, and this is {sys.platform}"
    if os.geteuid():
        return "only root can run code as another user"
    missing = [name for name in ("prlimit", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} (util-linux) not found"
    try:
        attempt = subprocess.run(
            [*command(free_user()), sys.executable, "-P", "-c", SELF_TEST, str(package()), *map(str, hidden)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            cwd="/",
            env=environment(Path("/nonexistent"), Path("/tmp")),  # noqa: S108 (nothing is written)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"another user's process does not run ({error})"
    if attempt.returncode:
        lines = attempt.stderr.strip().splitlines() or ["no reason given"]
        return f"another user's process fails ({lines[-1][:500]})"
    return ""


def kill_all(user: int) -> None:
    """Kill all processes of a user.

    Raises:
        OSError: They could not be killed.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", KILL_ALL, str(user), str(user + 1)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        cwd="/",
        env={},
    )
    if done.returncode:
        raise OSError(f"the processes of user {user} could not be killed: {done.stderr.strip()[-500:]}")


class OtherUserKernel(Kernel):
    """A kernel as another user, whose files are copied to `folder` when they are fetched.

    It needs root; see `other_user.problem`.
    """

    def __init__(self, folder: Path, libraries: Libraries | None = None) -> None:
        super().__init__(folder, libraries)
        self._user = free_user()
        base = Path(self._exchange.name)
        self._work, self._home = base / "work", base / "home"

    @property
    def scratch(self) -> Path:
        """A folder that both processes can write."""
        return Path(self._exchange.name) / "exchange"

    def __enter__(self) -> OtherUserKernel:
        Path(self._exchange.name).chmod(ENTER_ONLY)
        for folder, mode in ((self._work, STICKY), (self.scratch, STICKY), (self._home, 0o700)):
            folder.mkdir()
            folder.chmod(mode)
        os.chown(self._home, self._user, self._user)
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            kill_all(self._user)
        finally:
            super().__exit__(*exception)

    def fetch(self, path: Path) -> None:
        """Replace a file in `scratch` by a copy of the grader's, or copy a file of the notebook's folder to `folder`.

        Raises:
            InvalidFile: See `transport.InvalidFile`.
        """
        self._copy(path if path.is_relative_to(self.scratch) else self._work / path.relative_to(self.folder), path)

    def _only_process(self) -> None:
        """Return None: nothing keeps the kernel from starting other processes."""

    def _upload(self) -> None:
        """Make the notebook's user the owner of the grader's files in `scratch`, so that it may write them again."""
        with os.scandir(self.scratch) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                # a hard link would change the owner of a file elsewhere
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
                    os.chown(entry.path, self._user, self._user, follow_symlinks=False)

    def _launch(self) -> tuple[IO[bytes], IO[bytes]]:
        program, variables = [sys.executable, *RUNNER], environment(self._home, self._home)
        if self._libraries is not None:
            files = files_of(self._libraries)
            program, variables = files.command(), variables | files.environment()
        pipes = self._open([*command(self._user), *program], self._work, variables)
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
        return pipes

    def _kill(self) -> None:
        kill_all(self._user)
