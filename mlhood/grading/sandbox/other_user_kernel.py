"""The kernel of an untrusted notebook as another user: for containers, where bubblewrap is not permitted.

Both processes use the same folders, protected by ownership. `work` and `exchange` belong to the grader and are sticky:
everybody may create files in them, and nobody may remove or replace those of another user. A file is read only after
the grader has made a copy, which cannot be replaced.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from nbclient import NotebookClient

from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.rpc.transport import MAX_FETCHED_BYTES, InvalidFile
from mlhood.grading.sandbox.bubblewrap import environment
from mlhood.grading.sandbox.channels import KernelManager
from mlhood.grading.sandbox.other_user import command, free_user, kill_all
from mlhood.grading.sandbox.untrusted_folder import UntrustedFolder

STICKY = 0o1777
ENTER_ONLY = 0o711
OOM_SCORE = "1000"  # if the container runs out of memory, the kernel is killed before the grader


class _Provisioner(LocalProvisioner):
    """Starts a kernel as another user."""

    user: int
    home: Path

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Write the connection file, owned by the user, and return the command that starts the kernel."""
        options = await super().pre_launch(**kwargs)
        manager: Any = self.parent
        os.chown(manager.connection_file, self.user, self.user)
        variables = environment(self.home, self.home) | manager.kernel_spec.env
        started_as = {"cmd": [*command(self.user), *options["cmd"]], "env": variables}
        return {**options, **started_as}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel, and let the system kill it first when memory runs out."""
        info = await super().launch_kernel(cmd, **kwargs)
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
        return info


class OtherUserKernel(Kernel):
    """A kernel as another user, whose files are copied to `folder` when they are fetched.

    It needs root; see `other_user.problem`.
    """

    def __init__(self, folder: Path, libraries: Libraries | None = None) -> None:
        super().__init__(folder, libraries)
        self._user = free_user()
        base = Path(self._exchange.name)
        self._work, self._home, self._private = base / "work", base / "home", base / "private"

    @property
    def scratch(self) -> Path:
        """A folder that both processes can write."""
        return Path(self._exchange.name) / "exchange"

    def __enter__(self) -> OtherUserKernel:
        Path(self._exchange.name).chmod(ENTER_ONLY)
        for folder, mode in ((self._work, STICKY), (self.scratch, STICKY), (self._home, 0o700), (self._private, 0o700)):
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

    def fetch(self, path: Path, limit: int = MAX_FETCHED_BYTES) -> None:
        """Replace a file in `scratch` by a copy of the grader's, or copy a file of the notebook's folder to `folder`.

        Raises:
            InvalidFile: It is a link or a special file, or too large.
        """
        shared = path.is_relative_to(self.scratch)
        root, base = (self.scratch, self.scratch) if shared else (self._work, self.folder)
        target = self._private / "fetched" if shared else path
        try:
            target.unlink(missing_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            with _opened(root) as folder:
                folder.copy_out(str(path.relative_to(base)), target, limit)
            target.replace(path)
        except (FileNotFoundError, ValueError):
            return
        except OSError as error:
            raise InvalidFile(f"cannot be read ({error.strerror})") from None

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

    def _configure(self, client: NotebookClient) -> None:
        client.kernel_manager_class = KernelManager
        super()._configure(client)
        client.resources["metadata"]["path"] = str(self._work)
        manager: Any = client.km
        manager.on_too_large = lambda: kill_all(self._user)
        manager.connection_file = str(Path(self._exchange.name) / "kernel.json")
        manager.provisioner = _Provisioner(parent=manager, kernel_spec=manager.kernel_spec, kernel_id="")
        manager.provisioner.user, manager.provisioner.home = self._user, self._home

    def _kill_processes(self, client: NotebookClient) -> None:
        kill_all(self._user)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[UntrustedFolder]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield UntrustedFolder(descriptor)
    finally:
        os.close(descriptor)
