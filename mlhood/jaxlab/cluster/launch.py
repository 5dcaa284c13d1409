"""Launch a program as several processes on one machine, forward their output, and terminate them together.

The processes find each other by `mlhood.jaxlab.cluster.initialize()`. Each leads its own process group, so that
its descendants are signalled with it. When one fails, the others would wait for it forever: they get a grace period to
exit by themselves, then SIGTERM, then SIGKILL.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO, cast

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.processes import BIND, COORDINATOR, PROCESS, PROCESSES
from mlhood.measure.threading import environment

GRACE = 3.0
_LOOPBACK = "127.0.0.1"
_TAIL = 12  # lines of a failed process that its error quotes
_MAX_LINE = 64 * 1024  # bytes
_STACK_FRAME = re.compile(r"\s+@\s+0x")  # of a C++ stack trace: the lines before it are more useful
_POLL = 0.05  # seconds


def launch(
    command: Sequence[str],
    processes: int,
    *,
    devices: int = 1,
    threads: int | None = None,
    timeout: float | None = None,
    grace: float = GRACE,
    say: Callable[[str], None] = print,
) -> None:
    """Run a command as several processes that find each other by `initialize()`, and wait until all have exited.

    Args:
        command: The program and its arguments; `python` means the interpreter that runs this.
        processes: Number of processes.
        devices: CPU devices of JAX in each process.
        threads: Threads of the libraries in each process; by default an equal share of the cores.
        timeout: Seconds after which all processes are terminated; None for no limit.
        grace: Seconds from a failure to SIGTERM for the others, and from that to SIGKILL.
        say: Called with each line of output, prefixed with the process's rank.

    Raises:
        ClusterError: A process failed, the timeout expired, or the command cannot be started.
        KeyboardInterrupt: SIGINT (Ctrl-C) was received; all processes have been terminated.
        SystemExit: SIGTERM or SIGHUP was received; all processes have been terminated.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ClusterError("unsupported platform", expected="Linux or macOS", got=sys.platform)
    if processes < 1 or devices < 1:
        got = f"{processes} processes with {devices} devices"
        raise ClusterError("invalid size of the cluster", expected="at least one of each", got=got)
    if command[0] in ("python", "python3"):  # the first one on the PATH may not have the course installed
        command = [sys.executable, *command[1:]]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = threads or max(1, cores // processes)
    with _reserved_port() as port, _exit_on_signals():
        cluster = _Cluster(say)
        try:
            for rank in range(processes):
                cluster.start(command, process_environment(rank, processes, port, devices, threads))
            cluster.wait(timeout, grace)
        finally:
            cluster.terminate(grace)


def process_environment(rank: int, processes: int, port: int, devices: int = 1, threads: int = 1) -> dict[str, str]:
    """Return the environment of one process: this process's, with its rank and its share of the cores."""
    address = f"{_LOOPBACK}:{port}"
    return {
        **environment(threads),
        **_bypass_proxies(),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_ENABLE_PREEMPTION_SERVICE": "false",  # with it, SIGTERM does not terminate
        "PYTHONUNBUFFERED": "1",  # so that the last lines of a crashed process are not lost
        COORDINATOR: address,
        BIND: address,
        PROCESSES: str(processes),
        PROCESS: str(rank),
    }


def _bypass_proxies() -> dict[str, str]:
    """Return variables that keep gRPC from connecting to the coordinator through a proxy, if one is configured."""
    variables = {name.lower(): value for name, value in os.environ.items()}
    if not {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"} & variables.keys():
        return {}
    hosts = [host for host in variables.get("no_proxy", "").split(",") if host]
    return {"no_proxy": ",".join([*hosts, _LOOPBACK]), "JAX_CHECK_PROXY_ENVS": "false"}


class _Process:
    """A process, its last lines, and a thread that posts each line."""

    def __init__(self, rank: int, command: Sequence[str], env: dict[str, str], lines: queue.SimpleQueue) -> None:
        self.rank, self.tail = rank, deque[str](maxlen=_TAIL)
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, env=env, stdin=null, stdout=pipe, stderr=subprocess.STDOUT, process_group=0
        )
        self._reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._reader.start()

    def _read(self, lines: queue.SimpleQueue) -> None:
        with cast("IO[bytes]", self.process.stdout) as stream:
            while line := stream.readline(_MAX_LINE):
                lines.put((self, line.decode(errors="replace").rstrip("\r\n")))

    def has_exited(self) -> bool:
        """Return whether it has exited; then its lines are posted, but for those of descendants that still run."""
        if self.process.poll() is None:
            return False
        self._reader.join(1)
        return True

    def last_lines(self, count: int = _TAIL) -> list[str]:
        return [f"[{self.rank}] {line}" for line in list(self.tail)[-count:]]


class _Cluster:
    """The processes that were started, and their lines."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.processes: list[_Process] = []
        self._lines: queue.SimpleQueue[tuple[_Process, str]] = queue.SimpleQueue()
        self._say = say

    def start(self, command: Sequence[str], env: dict[str, str]) -> None:
        try:
            self.processes.append(_Process(len(self.processes), command, env, self._lines))
        except OSError as error:
            todo = f"mlhood cluster -n 2 -- python {command[0]}" if command[0].endswith(".py") else None
            what = "the command cannot be started"
            raise ClusterError(what, where=command[0], got=error.strerror, todo=todo) from error

    def wait(self, timeout: float | None, grace: float) -> None:
        """Forward lines until all processes have exited; raise ClusterError if one failed, or the time is over."""
        if not self._forward(lambda: self._failed() or not self._running(), timeout):
            running = self._running()
            raise ClusterError(
                f"the cluster timed out after {timeout:g} s",
                where=f"processes {', '.join(str(each.rank) for each in running)} of {len(self.processes)}",
                got="\n    ".join(["last lines", *(line for each in running[:4] for line in each.last_lines(3))]),
                todo="give a larger --timeout, or check whether a process waits for others that never arrive",
            )
        if failed := self._failed():
            self._forward(lambda: not self._running(), grace)
            code = failed.process.returncode
            how = f"exit code {code}" if code > 0 else f"signal {-code} ({signal.Signals(-code).name})"
            raise ClusterError(
                f"process {failed.rank} of {len(self.processes)} failed; the others were terminated",
                expected="exit code 0 of every process",
                got="\n    ".join([how, *failed.last_lines()]),
                todo="read its last lines",
            )

    def terminate(self, grace: float) -> None:
        """Terminate what still runs, descendants included."""
        try:
            for process in self._running():
                _send(process, signal.SIGTERM)
            self._forward(lambda: not self._running(), grace)
        finally:
            for process in self.processes:
                _send(process, signal.SIGKILL)
                process.process.wait()

    def _running(self) -> list[_Process]:
        return [process for process in self.processes if not process.has_exited()]

    def _failed(self) -> _Process | None:
        return next((process for process in self.processes if process.process.poll()), None)

    def _forward(self, is_over: Callable[[], object], seconds: float | None) -> bool:
        """Forward lines until a condition holds and none is left; return whether it held in time."""
        end = time.monotonic() + (math.inf if seconds is None else seconds)
        while not (over := is_over()) or not self._lines.empty():
            if time.monotonic() > end:
                return bool(over)
            with contextlib.suppress(queue.Empty):
                process, line = self._lines.get(timeout=_POLL)
                if not _STACK_FRAME.match(line):
                    process.tail.append(line)
                self._say(f"[{process.rank}] {line}")
        return True


def _send(process: _Process, number: int) -> None:
    """Send a signal to a process and its descendants."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.process.pid, number)


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """Reserve a port for the coordinator by binding it, so that no other program is given it.

    Process 0 can still bind it, as both sockets set SO_REUSEPORT (gRPC by default); only the one that listens gets
    connections.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind((_LOOPBACK, 0))
        yield reservation.getsockname()[1]


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Raise SystemExit at SIGTERM and SIGHUP, unless they are ignored, so that the processes are terminated."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handled = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
