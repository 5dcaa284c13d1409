"""The kernel of a foreign notebook as another user of this machine: for a container, where no sandbox can be.

Both sides see the same folders, so who may do what there is a matter of their owner. `work` and `exchange` are ours and
sticky: everybody may put files into them, and nobody may remove or replace those of another. A file is read once it is
ours, so that it is not another one by then.
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

from mlhood.grading.checks.submission import MAX_FILE_BYTES, BadFile
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.sandbox.bubblewrap import environment
from mlhood.grading.sandbox.other_user import command, free_user, kill_all
from mlhood.grading.sandbox.untrusted_folder import Folder, NotPlain

SHARED = 0o1777
ENTER_ONLY = 0o711
EXPENDABLE = "1000"  # should the container run out of memory, the kernel begins here, and not with us


class OtherUsers:
    """Gives out kernels, each as a user of its own (see `kernel.Kernels`)."""

    def kernel(self, folder: Path) -> Kernel:
        """A kernel whose files come to `folder` when they are asked for."""
        return OtherUserKernel(folder)


class _Provisioner(LocalProvisioner):
    """Starts a kernel as another user."""

    user: int
    home: Path

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Write the connection file, and give it to the user."""
        known = await super().pre_launch(**kwargs)
        manager: Any = self.parent
        os.chown(manager.connection_file, self.user, self.user)
        own = {"cmd": [*command(self.user), *known["cmd"]], "env": environment(self.home, self.home)}
        return {**known, **own}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start it."""
        found = await super().launch_kernel(cmd, **kwargs)
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(EXPENDABLE, encoding="ascii")
        return found


class OtherUserKernel(Kernel):
    """A kernel as another user. Needs root; `isolation.otheruser.problem` says whether it can be."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._user = free_user()
        base = Path(self._exchange.name)
        self._work, self._home, self._ours = base / "work", base / "home", base / "ours"

    @property
    def scratch(self) -> Path:
        """A folder that both sides can write."""
        return Path(self._exchange.name) / "exchange"

    def __enter__(self) -> OtherUserKernel:
        Path(self._exchange.name).chmod(ENTER_ONLY)
        for folder, mode in ((self._work, SHARED), (self.scratch, SHARED), (self._home, 0o700), (self._ours, 0o700)):
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
        """Make a file of the notebook's ours, at the same path in `scratch`, or copied from its folder to ours.

        Raises:
            BadFile: It is a link or a special file, or too large.
        """
        shared = path.is_relative_to(self.scratch)
        root, known = (self.scratch, self.scratch) if shared else (self._work, self.folder)
        target = self._ours / "taken" if shared else path
        try:
            target.unlink(missing_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            with _opened(root) as folder:
                folder.copy_out(str(path.relative_to(known)), target, MAX_FILE_BYTES)
            target.replace(path)
        except (FileNotFoundError, ValueError):
            return
        except NotPlain as error:
            raise BadFile(str(error)) from None
        except OSError as error:
            raise BadFile(f"cannot be read ({error.strerror})") from None

    def _hand_over(self) -> None:
        """Let the notebook have the files that we have put or taken there: it may write them anew."""
        with os.scandir(self.scratch) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                # one of ours with two names would be a file from elsewhere
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
                    os.chown(entry.path, self._user, self._user, follow_symlinks=False)

    def _configure(self, client: NotebookClient) -> None:
        super()._configure(client)
        client.resources["metadata"]["path"] = str(self._work)
        manager: Any = client.km
        manager.connection_file = str(Path(self._exchange.name) / "kernel.json")
        manager.provisioner = _Provisioner(parent=manager, kernel_spec=manager.kernel_spec, kernel_id="")
        manager.provisioner.user, manager.provisioner.home = self._user, self._home

    def _end_group(self, client: NotebookClient) -> None:
        kill_all(self._user)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[Folder]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Folder(descriptor)
    finally:
        os.close(descriptor)
