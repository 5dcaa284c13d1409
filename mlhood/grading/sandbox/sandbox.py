"""One sandbox: its process, the way in and out of it, and its end."""

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
from mlhood.grading.sandbox import seccomp
from mlhood.grading.sandbox.bubblewrap import HOME, command, require
from mlhood.grading.sandbox.limits import Limits, Watch
from mlhood.grading.sandbox.untrusted_folder import Folder, NotPlain

START_SECONDS = 60.0
END_SECONDS = 20.0
SOCKETS = "kernel"
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
PROGRAM = (sys.executable, "-P", "-m", "mlhood.grading.sandbox.launcher")


class Sandbox:
    """A process behind bubblewrap that becomes a Jupyter kernel, and two folders of it.

    `folder` (where the notebook runs) and `scratch` (what checks hand over) have the same paths on both sides, and are
    two things: in the sandbox file systems in memory, out here folders of ours, which nothing in the sandbox can write.
    `bring` and `give` copy files from one to the other.

    It is started by `start`, which returns at once, and lives no longer than the thread that did so: bubblewrap ends it
    with that thread.

    Args:
        limits: What it may use.
        imports: Modules to load before they are asked for, so that their seconds pass while something else is graded.
    """

    def __init__(self, limits: Limits, imports: tuple[str, ...] = ()) -> None:
        self.limits = limits
        self.imports = imports
        self.reason = ""
        self.connection: dict[str, Any] = {}
        self._outside = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
        base = Path(self._outside.name).resolve()
        self.folder, self.scratch = base / "work", base / "exchange"
        self._given: dict[str, tuple[int, int, int]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._grader: socket.socket | None = None
        self._descriptors: list[int] = []
        self._sockets: list[int] = []
        self._watch: Watch | None = None

    @property
    def started(self) -> bool:
        """Whether there is a process, running or ended and not yet cleared away by `stop`."""
        return self._process is not None

    def poll(self) -> int | None:
        """None while it runs; else the exit code of bubblewrap."""
        return 0 if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process; `enter` waits until it is there."""
        require()
        for folder in (self.folder, self.scratch):
            folder.mkdir(exist_ok=True)
        self._given.clear()
        self.reason = ""
        self.connection = {
            **{name: number for number, name in enumerate(PORTS, 1)},
            "transport": "ipc",
            "ip": str(self.scratch / SOCKETS),
            "key": secrets.token_hex(32),
            "signature_scheme": "hmac-sha256",
            "kernel_name": "python3",
        }
        self._grader, theirs = socket.socketpair()
        with theirs, seccomp.opened() as filters:
            self._process = subprocess.Popen(
                [*command([self.folder, self.scratch], self.limits.disk, filters=filters), *PROGRAM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,  # until a student's code runs; then it is nobody's
                pass_fds=filters,
                env={},  # the first process in there is bubblewrap itself, and shows what it was started with
            )
        setup = {
            "connection": self.connection,
            "folders": [str(place) for place in self._writable()],
            "imports": self.imports,
            "file": self.limits.file,
            "threads": self.limits.threads,
            "descriptors": self.limits.descriptors,
        }
        with contextlib.suppress(OSError):  # it has ended already: `enter` says why
            self._grader.sendall(json.dumps(setup).encode() + b"\n")

    def enter(self) -> dict[str, Any]:
        """Wait until the sandbox is there, and begin to watch it.

        Returns:
            The kernel's connection information as it holds on this side.

        Raises:
            GradingError: It does not start.
        """
        if not self._descriptors:
            self._descriptors = self._received()
        self._watch = Watch(self._descriptors[0], self._descriptors[3:], self.limits, self.end)
        self._watch.start()
        return {**self.connection, "ip": str(self._connected()), "key": self.connection["key"].encode()}

    def _connected(self) -> Path:
        """Hold the kernel's sockets, and return the beginning of the paths that lead to them out here.

        Each leads by way of a descriptor to the socket that the kernel has made before it ran anything, whatever a
        student puts in its place later: a link, say, to a socket of ours.
        """
        begin = self.folder.with_name("sockets") / SOCKETS
        begin.parent.mkdir(exist_ok=True)
        deadline = time.monotonic() + START_SECONDS
        for number in range(1, len(PORTS) + 1):
            while (held := self._inside(self.scratch).socket(f"{SOCKETS}-{number}")) is None:
                if self.poll() is not None or time.monotonic() > deadline:
                    raise self._failure(self.reason or "the kernel in it did not start in time")
                time.sleep(0.01)
            self._sockets.append(held)
            link = begin.with_name(f"{SOCKETS}-{number}")
            link.unlink(missing_ok=True)
            link.symlink_to(f"/proc/self/fd/{held}")
        return begin

    def send_signal(self, number: int) -> None:
        """Send a signal to the kernel; one that ends processes ends them all."""
        if number in (signal.SIGKILL, signal.SIGTERM) or not self._descriptors:
            self.end()
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptors[2], number)

    def end(self, reason: str = "") -> None:
        """Kill everything in it at once; `reason` says why. From any thread, and when it has ended already too."""
        self.reason = self.reason or reason
        if self._process is None:
            return
        if not self._descriptors and self.poll() is None:  # killed in its set-up, bubblewrap leaves half of it for ever
            with contextlib.suppress(GradingError):
                self._descriptors = self._received()
        with contextlib.suppress(OSError, IndexError):
            signal.pidfd_send_signal(self._descriptors[1], signal.SIGKILL)  # the others go with the first
        self._process.kill()

    def stop(self) -> None:
        """Kill everything in it, wait until it is gone, and let its memory go. It can be started again."""
        self.end()
        if self._watch is not None:
            self._watch.end()
        if self._descriptors:  # the first process ends when all others have
            select.select([self._descriptors[1]], [], [], END_SECONDS)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
            self._close(self._process.stderr, self._grader)
        self._process = self._grader = self._watch = None
        for descriptor in self._descriptors + self._sockets:
            os.close(descriptor)
        self._descriptors, self._sockets = [], []

    def close(self) -> None:
        """Stop it for good, and remove the folders out here."""
        self.stop()
        self._outside.cleanup()

    def give(self) -> None:
        """Copy what is new in `scratch` out here into the sandbox.

        Raises:
            OSError: There is no room, or no sandbox.
        """
        for file in sorted(self.scratch.iterdir()):
            state = file.stat()
            known = (state.st_ino, state.st_mtime_ns, state.st_size)
            if self._given.get(file.name) != known:
                self._inside(self.scratch).copy_in(file, file.name)
                self._given[file.name] = known

    def bring(self, path: Path, most: int) -> None:
        """Copy a file of the sandbox out here, in place of what was brought before. Without one there is none.

        Raises:
            NotPlain: It is no plain file of its own, or too large.
        """
        path.unlink(missing_ok=True)
        root = self.scratch if path.is_relative_to(self.scratch) else self.folder
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._inside(root).copy_out(str(path.relative_to(root)), path, most)
        except (FileNotFoundError, ValueError):
            return
        except OSError as error:
            raise NotPlain(f"cannot be read ({error.strerror})") from None
        if root == self.scratch:
            state = path.stat()
            self._given[path.name] = (state.st_ino, state.st_mtime_ns, state.st_size)

    def forget(self, names: list[str]) -> None:
        """Remove files of `scratch` on both sides."""
        for name in names:
            self._given.pop(name, None)
            (self.scratch / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._inside(self.scratch).remove(name)

    def clear_scratch(self) -> None:
        """Remove whatever the notebook has put into `scratch`, which is not its own."""
        self._inside(self.scratch).clear(keep=f"{SOCKETS}-")

    def collect(self, target: Path, most: int) -> None:
        """Copy the plain files of the notebook's folder to `target`, until `most` bytes are full."""
        with contextlib.suppress(OSError):
            inside, left = self._inside(self.folder), most
            for name in inside.files():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(NotPlain):
                    inside.copy_out(name, target / name, left)
                    left -= (target / name).stat().st_size

    def _inside(self, folder: Path) -> Folder:
        if not self._descriptors:
            raise FileNotFoundError(errno.ENOENT, "there is no sandbox any more", str(folder))
        return Folder(self._descriptors[-1 if folder == self.scratch else -2])

    def _writable(self) -> list[Path]:
        return [Path("/tmp"), Path("/dev/shm"), HOME, self.folder, self.scratch]  # noqa: S108 (the sandbox's)

    def _received(self) -> list[int]:
        """Descriptors: /proc, the first process, the kernel, and the folders that can be written."""
        if self._grader is None or self._process is None:
            raise self._failure("it was not started")
        count, message, found = 3 + len(self._writable()), b"", []
        self._grader.settimeout(START_SECONDS)
        with contextlib.suppress(OSError):  # it has ended, or does not come to an end
            message, found, _, _ = socket.recv_fds(self._grader, 16, count)
        if message != b"ready" or len(found) != count:
            self._process.kill()
            _, said = self._process.communicate()
            raise self._failure(said.decode(errors="replace").strip()[-1000:] or "it did not start in time")
        self._close(self._process.stderr, self._grader)
        return found

    def _failure(self, got: str) -> GradingError:
        return GradingError(
            "the sandbox does not start",
            where="bubblewrap",
            expected="a Python process behind it",
            got=got,
            todo="run `mlhood doctor`; with --no-sandbox submissions run with your own rights",
        )

    @staticmethod
    def _close(*streams: Any) -> None:
        for stream in streams:
            if stream is not None:
                stream.close()
