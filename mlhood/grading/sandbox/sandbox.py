"""One sandbox: its process, the connection to it, copies of its files, and its end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mlhood.errors import GradingError
from mlhood.grading.bare.files import BareFiles, interpreter
from mlhood.grading.rpc.transport import InvalidFile
from mlhood.grading.sandbox import seccomp
from mlhood.grading.sandbox.bubblewrap import HOME, bare_view, command, require
from mlhood.grading.sandbox.limits import Limits, ResourceMonitor
from mlhood.grading.sandbox.untrusted_folder import UntrustedFolder

START_SECONDS = 300.0
END_SECONDS = 20.0
SOCKETS = "kernel"
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
LAUNCHER = ("-P", "-m", "mlhood.grading.sandbox.launcher")


class Sandbox:
    """A process in bubblewrap that becomes a Jupyter kernel, and its two folders.

    `folder` (where the notebook runs) and `scratch` (files that checks exchange with it) have the same paths inside and
    outside, but are different folders: inside they are file systems in memory, outside they belong to the grader, and
    nothing in the sandbox can write them. `upload` and `download` copy files between them.

    `start` returns at once. The sandbox lives no longer than the thread that called it: bubblewrap ends with it.

    Args:
        limits: What it may use.
        imports: Modules to import in advance, while another submission is graded.
        bare: Of a bare kernel, its files.

    Attributes:
        reason: Why it was killed, in words.
    """

    def __init__(self, limits: Limits, imports: tuple[str, ...] = (), bare: BareFiles | None = None) -> None:
        self.limits = limits
        self.imports = imports
        self.bare = bare
        self.reason = ""
        self.connection: dict[str, Any] = {}
        self._outside = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
        base = Path(self._outside.name).resolve()
        self.folder, self.scratch = base / "work", base / "exchange"
        self._uploaded: dict[str, tuple[int, int, int]] = {}  # inode, time and size of each file, by name
        self._process: subprocess.Popen[bytes] | None = None
        self._launcher: socket.socket | None = None
        self._descriptors: list[int] = []  # of /proc, the first process, the kernel, and the writable folders
        self._sockets: list[int] = []
        self._monitor: ResourceMonitor | None = None

    @property
    def started(self) -> bool:
        """Whether there is a process that `stop` has not cleaned up yet, running or not."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """The process of bubblewrap, while there is one."""
        return None if self._process is None else self._process.pid

    @property
    def only_process(self) -> int | None:
        """The process of a bare kernel; None for another kernel, and where nothing keeps it from starting others."""
        if not self.bare or self.bare.setup["processes"] or not self._descriptors or not seccomp.program():
            return None
        information = Path(f"/proc/self/fdinfo/{self._descriptors[2]}").read_text(encoding="ascii")
        return int(information.partition("\nPid:")[2].split()[0])  # pidfd_open(2)

    def poll(self) -> int | None:
        """Return None while it runs, else the exit code of bubblewrap."""
        return 0 if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process; `connect` waits for it."""
        require()
        for folder in (self.folder, self.scratch):
            folder.mkdir(exist_ok=True)
        self._uploaded.clear()
        self.reason = ""
        self.connection = {
            **{name: number for number, name in enumerate(PORTS, 1)},
            "transport": "ipc",
            "ip": str(self.scratch / SOCKETS),
            "key": secrets.token_hex(32),
            "signature_scheme": "hmac-sha256",
            "kernel_name": "python3",
        }
        self._launcher, launcher_end = socket.socketpair()
        program = [interpreter(), "-S"] if self.bare else [sys.executable]
        view = bare_view(self.bare) if self.bare else None
        with launcher_end, seccomp.opened() as filters:
            words = command([self.folder, self.scratch], self.limits.disk, filters=filters, view=view)
            self._process = subprocess.Popen(
                [*words, *program, *LAUNCHER],
                stdin=launcher_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,  # read until the launcher is ready, then closed
                pass_fds=filters,
                env={},  # visible inside: the first process there is bubblewrap itself
            )
        setup = {
            "connection": self.connection,
            "folders": [str(folder) for folder in self._writable_folders()],
            "imports": self.imports,
            "file": self.limits.file,
            "threads": self.limits.threads,
            "descriptors": self.limits.descriptors,
            "bare": self.bare.setup if self.bare else None,
        }
        with contextlib.suppress(OSError):  # it has ended already, and `connect` reports why
            self._launcher.sendall(json.dumps(setup).encode() + b"\n")

    def connect(self) -> dict[str, Any]:
        """Wait until the sandbox is ready, and start the resource monitor.

        Returns:
            The kernel's connection information for the outside.

        Raises:
            GradingError: It does not start.
        """
        if not self._descriptors:
            self._descriptors = self._receive_descriptors()
        self._monitor = ResourceMonitor(self._descriptors[0], self._descriptors[3:], self.limits, self.kill)
        self._monitor.start()
        return {**self.connection, "ip": str(self._link_sockets()), "key": self.connection["key"].encode()}

    def _link_sockets(self) -> Path:
        """Open the kernel's sockets, and return the common prefix of the paths that refer to them outside.

        Each path is a link to a descriptor of the socket that the kernel created before any student code ran, whatever
        the student puts in its place later, such as a link to a socket of the grader.
        """
        prefix = self.folder.with_name("sockets") / SOCKETS
        prefix.parent.mkdir(exist_ok=True)
        deadline = time.monotonic() + START_SECONDS
        for number in range(1, len(PORTS) + 1):
            while (descriptor := self._inside(self.scratch).socket(f"{SOCKETS}-{number}")) is None:
                if self.poll() is not None or time.monotonic() > deadline:
                    raise self._start_error(self.reason or "the kernel in it did not start in time")
                time.sleep(0.01)
            self._sockets.append(descriptor)
            link = prefix.with_name(f"{SOCKETS}-{number}")
            link.unlink(missing_ok=True)
            link.symlink_to(f"/proc/self/fd/{descriptor}")
        return prefix

    def send_signal(self, number: int) -> None:
        """Send a signal to the kernel; SIGKILL and SIGTERM kill the whole sandbox."""
        if number in (signal.SIGKILL, signal.SIGTERM) or not self._descriptors:
            self.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptors[2], number)

    def kill(self, reason: str = "") -> None:
        """Kill all processes at once. May be called from any thread, and more than once; the first reason counts."""
        self.reason = self.reason or reason
        if self._process is None:
            return
        if not self._descriptors and self.poll() is None:  # if it is killed while it starts, bubblewrap leaks processes
            with contextlib.suppress(GradingError):
                self._descriptors = self._receive_descriptors()
        with contextlib.suppress(OSError, IndexError):
            signal.pidfd_send_signal(self._descriptors[1], signal.SIGKILL)  # kills the whole process namespace
        self._process.kill()

    def stop(self) -> None:
        """Kill all processes, wait until they have ended, and release their memory. It can be started again."""
        self.kill()
        if self._monitor is not None:
            self._monitor.stop()
        if self._descriptors:  # the first process ends after all others
            select.select([self._descriptors[1]], [], [], END_SECONDS)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
            self._close(self._process.stderr, self._launcher)
        self._process = self._launcher = self._monitor = None
        for descriptor in self._descriptors + self._sockets:
            os.close(descriptor)
        self._descriptors, self._sockets = [], []

    def close(self) -> None:
        """Stop it for good, and remove the folders outside."""
        self.stop()
        self._outside.cleanup()

    def upload(self) -> None:
        """Copy new and changed files of `scratch` into the sandbox.

        Raises:
            OSError: The disk there is full, or the sandbox has ended.
        """
        for file in sorted(self.scratch.iterdir()):
            status = file.stat()
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if self._uploaded.get(file.name) != version:
                self._inside(self.scratch).copy_in(file, file.name)
                self._uploaded[file.name] = version

    def download(self, path: Path, limit: int) -> None:
        """Copy a file of the sandbox to the same path outside; if there is none, remove an earlier copy.

        Raises:
            InvalidFile: It is not a regular file, or has more than `limit` bytes.
        """
        path.unlink(missing_ok=True)
        root = self.scratch if path.is_relative_to(self.scratch) else self.folder
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._inside(root).copy_out(str(path.relative_to(root)), path, limit)
        except (FileNotFoundError, ValueError):
            return
        except OSError as error:
            raise InvalidFile(f"cannot be read ({error.strerror})") from None
        if root == self.scratch:
            status = path.stat()
            self._uploaded[path.name] = (status.st_ino, status.st_mtime_ns, status.st_size)

    def discard(self, names: list[str]) -> None:
        """Remove files of `scratch` inside and outside."""
        for name in names:
            self._uploaded.pop(name, None)
            (self.scratch / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._inside(self.scratch).remove(name)

    def clear_scratch(self) -> None:
        """Remove everything from `scratch` inside, except the kernel's sockets."""
        self._inside(self.scratch).clear(keep=f"{SOCKETS}-")

    def copy_files(self, target: Path, limit: int) -> None:
        """Copy the regular files of the notebook's folder to `target`, up to `limit` bytes in total."""
        with contextlib.suppress(OSError):
            inside, remaining = self._inside(self.folder), limit
            for name in inside.files():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(InvalidFile):
                    inside.copy_out(name, target / name, remaining)
                    remaining -= (target / name).stat().st_size

    def _inside(self, folder: Path) -> UntrustedFolder:
        if not self._descriptors:
            raise FileNotFoundError(errno.ENOENT, "the sandbox has ended", str(folder))
        return UntrustedFolder(self._descriptors[-1 if folder == self.scratch else -2])

    def _writable_folders(self) -> list[Path]:
        return [Path("/tmp"), Path("/dev/shm"), HOME, self.folder, self.scratch]  # noqa: S108 (the sandbox's)

    def _receive_descriptors(self) -> list[int]:
        if self._launcher is None or self._process is None:
            raise self._start_error("it was not started")
        count, message, descriptors = 3 + len(self._writable_folders()), b"", []
        self._launcher.settimeout(START_SECONDS)
        with contextlib.suppress(OSError):  # it has ended, or timed out
            message, descriptors, _, _ = socket.recv_fds(self._launcher, 16, count)
        if message != b"ready" or len(descriptors) != count:
            self._process.kill()
            _, errors = self._process.communicate()
            raise self._start_error(errors.decode(errors="replace").strip()[-1000:] or "it did not start in time")
        self._close(self._process.stderr, self._launcher)
        return descriptors

    def _start_error(self, got: str) -> GradingError:
        return GradingError(
            "the sandbox does not start",
            where="bubblewrap",
            expected="a Python process in it",
            got=got,
            todo="run `mlhood doctor`; with --no-sandbox submissions run with your own rights",
        )

    @staticmethod
    def _close(*streams: Any) -> None:
        for stream in streams:
            if stream is not None:
                stream.close()
