"""One sandbox: its process, the connection to it, copies of its files, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, cast

from mlhood.errors import GradingError
from mlhood.grading.bare.files import BareFiles, interpreter
from mlhood.grading.sandbox import seccomp
from mlhood.grading.sandbox.bubblewrap import HOME, bare_view, command, require
from mlhood.grading.sandbox.limits import Limits, ResourceMonitor

START_SECONDS = 300.0
END_SECONDS = 20.0
READY = b"ready"
LAUNCHER = ("-P", "-m", "mlhood.grading.sandbox.launcher")


class Sandbox:
    """A process in bubblewrap that runs cells, the connection to it, and its two folders.

    `folder` (where the notebook runs) and `scratch` (files that checks exchange with it) have the same paths inside and
    outside, but are different folders: inside they are file systems in memory, outside they belong to the grader, and
    nothing in the sandbox can write them.

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
        self._outside = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
        base = Path(self._outside.name).resolve()
        self.folder, self.scratch = base / "work", base / "exchange"
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._descriptors: list[int] = []  # of /proc, the first process, the kernel, and the writable folders
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
        self.reason = ""
        self._socket, end = socket.socketpair()
        program = [interpreter(), "-S"] if self.bare else [sys.executable]
        view = bare_view(self.bare) if self.bare else None
        setup = {
            "folders": [str(folder) for folder in self._writable_folders()],
            "imports": self.imports,
            "file": self.limits.file,
            "threads": self.limits.threads,
            "descriptors": self.limits.descriptors,
            "bare": self.bare.setup if self.bare else None,
        }
        with end, seccomp.opened() as filters:
            words = command([self.folder, self.scratch], self.limits.disk, filters=filters, view=view)
            self._process = subprocess.Popen(
                [*words, *program, *LAUNCHER, json.dumps(setup)],
                stdin=end.fileno(),
                stdout=end.fileno(),
                stderr=subprocess.PIPE,  # read until the launcher is ready, then closed
                pass_fds=filters,
                env={},  # visible inside: the first process there is bubblewrap itself
            )

    def connect(self) -> tuple[IO[bytes], IO[bytes]]:
        """Wait until the sandbox is ready, and start the resource monitor.

        Returns:
            The pipes to its process and from it.

        Raises:
            GradingError: It does not start.
        """
        if not self._descriptors:
            self._descriptors = self._receive_descriptors()
        self._monitor = ResourceMonitor(self._descriptors[0], self._descriptors[3:], self.limits, self.kill)
        self._monitor.start()
        connection = cast("socket.socket", self._socket)
        return connection.makefile("wb"), connection.makefile("rb")

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
            self._close(self._process.stderr, self._socket)
        self._process = self._socket = self._monitor = None
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def close(self) -> None:
        """Stop it for good, and remove the folders outside."""
        self.stop()
        self._outside.cleanup()

    def _writable_folders(self) -> list[Path]:
        return [Path("/tmp"), Path("/dev/shm"), HOME, self.folder, self.scratch]  # noqa: S108 (the sandbox's)

    def _receive_descriptors(self) -> list[int]:
        if self._socket is None or self._process is None:
            raise self._start_error("it was not started")
        count, message, descriptors = 3 + len(self._writable_folders()), b"", []
        self._socket.settimeout(START_SECONDS)
        with contextlib.suppress(OSError):  # it has ended, or timed out
            message, descriptors, _, _ = socket.recv_fds(self._socket, len(READY), count)
        if message != READY or len(descriptors) != count:
            self._process.kill()
            _, errors = self._process.communicate()
            raise self._start_error(errors.decode(errors="replace").strip()[-1000:] or "it did not start in time")
        self._close(self._process.stderr)
        self._socket.settimeout(None)
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
