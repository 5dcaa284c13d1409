"""Launch a program as several processes on one machine, forward their output, and terminate them together.

The processes find each other by `mlhood.jaxlab.cluster.initialize()`. Each leads its own process group, so that
its descendants are signalled with it. When one fails, the others would wait for it forever: they get a grace period to
exit by themselves, then SIGTERM, then SIGKILL.
"""

from __future__ import annotations

import contextlib
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
from dataclasses import dataclass
from typing import IO, NamedTuple, cast

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.processes import BIND, COORDINATOR, PROCESS, PROCESSES
from mlhood.measure.threading import environment

GRACE = 3.0
_LOOPBACK = "127.0.0.1"
_MAX_PROCESSES = 64
_TAIL = 12  # lines of a failed process that its error quotes
_MAX_LINE = 64 * 1024  # bytes
_STACK_FRAME = re.compile(r"\s+@\s+0x")  # of a C++ stack trace: the lines before it are more useful
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class _Line(NamedTuple):
    """A process has written a line."""

    rank: int
    text: str


class _Exit(NamedTuple):
    """A process has exited."""

    rank: int
    code: int


class _Signal(NamedTuple):
    """The launcher has received a signal."""

    number: int


_Event = _Line | _Exit | _Signal


class _Process:
    """A process, with one thread that reads its output and one that waits for its exit; both post events."""

    def __init__(self, rank: int, command: Sequence[str], env: dict[str, str], post: Callable[[_Event], None]):
        self.rank = rank
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self.exit_time = float("inf")
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, env=env, stdin=null, stdout=pipe, stderr=subprocess.STDOUT, process_group=0
        )
        self._stream = cast("IO[bytes]", self.process.stdout)
        self._post = post
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def _read(self) -> None:
        with self._stream as stream:
            while line := stream.readline(_MAX_LINE):
                self._post(_Line(self.rank, line.decode(errors="replace").rstrip("\r\n")))

    def _wait(self) -> None:
        code = self.process.wait()
        self.exit_time = time.monotonic()
        self._reader.join(1)
        if self._reader.is_alive():  # a descendant holds the output open
            self._signal_group(signal.SIGKILL)
        self._post(_Exit(self.rank, code))

    def send(self, number: int) -> None:
        """Send a signal to the process and its descendants."""
        if self.process.poll() is None:
            self._signal_group(number)

    def kill(self) -> None:
        """Kill the process if it is running, and wait until its output is closed."""
        self.send(signal.SIGKILL)
        self.process.wait()
        self._reader.join()

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class _Supervisor:
    """The running processes, the reason for their termination, and the signals that are due."""

    def __init__(self, grace: float, timeout: float | None, say: Callable[[str], None]) -> None:
        self.events: queue.SimpleQueue[_Event] = queue.SimpleQueue()  # its put is safe in a signal handler
        self.processes: dict[int, _Process] = {}
        self.running: set[int] = set()
        self.error: BaseException | None = None
        self._grace, self._say, self._timeout = grace, say, timeout
        self._start_time = time.monotonic()
        self._due: list[tuple[float, int]] = []  # times and signals

    def start(self, rank: int, command: Sequence[str], env: dict[str, str]) -> None:
        try:
            self.processes[rank] = _Process(rank, command, env, self.events.put)
        except OSError as error:
            todo = f"mlhood cluster -n 2 -- python {command[0]}" if command[0].endswith(".py") else None
            message = "the command cannot be started"
            raise ClusterError(message, where=command[0], got=error.strerror, todo=todo) from error
        self.running.add(rank)

    def wait(self) -> None:
        """Handle events until all processes have exited."""
        while self.running:
            try:
                event = self.events.get(timeout=self._seconds_until_due())
            except queue.Empty:
                self._send_due_signals()
            else:
                self._handle(event)

    def kill(self) -> None:
        """Kill all processes that are still running."""
        for process in self.processes.values():
            process.kill()

    def _handle(self, event: _Event) -> None:
        if isinstance(event, _Line):
            if not _STACK_FRAME.match(event.text):
                self.processes[event.rank].tail.append(event.text)
            self._say(f"[{event.rank}] {event.text}")
        elif isinstance(event, _Exit):
            self.running.discard(event.rank)
            if event.code and self.error is None:
                self._terminate(self._failure(), self._grace)
        else:
            interrupted = event.number == signal.SIGINT
            error = KeyboardInterrupt() if interrupted else SystemExit(128 + event.number)
            self._terminate(error, 0 if self.error is None else -self._grace)  # a second signal kills at once

    def _terminate(self, error: BaseException, delay: float) -> None:
        self.error = self.error or error
        sigterm = time.monotonic() + delay
        self._due = [(sigterm, signal.SIGTERM), (sigterm + self._grace, signal.SIGKILL)]

    def _seconds_until_due(self) -> float | None:
        times = [due for due, _ in self._due]
        if self._timeout is not None and self.error is None:
            times.append(self._start_time + self._timeout)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _send_due_signals(self) -> None:
        if self.error is None:
            self._terminate(self._timeout_error(), 0)
            return
        now = time.monotonic()
        for number in [number for due, number in self._due if due <= now]:
            for rank in self.running:
                self.processes[rank].send(number)
        self._due = [(due, number) for due, number in self._due if due > now]

    def _failure(self) -> ClusterError:
        """Describe the process that failed first; the exits of those that depend on it may be reported earlier."""
        failed = [process for process in self.processes.values() if process.process.returncode]
        first = min(failed, key=lambda process: process.exit_time)
        rank, code = first.rank, first.process.returncode
        how = f"exit code {code}" if code > 0 else f"signal {-code} ({_signal_name(-code)})"
        return ClusterError(
            f"process {rank} of {len(self.processes)} failed; the others were terminated",
            where=f"process {rank}, after {time.monotonic() - self._start_time:.1f} s",
            expected="exit code 0 of every process",
            got="\n    ".join([how, *self._last_lines(rank)]),
            todo="read its last lines; if the program saves checkpoints, the same command resumes from the last one",
        )

    def _timeout_error(self) -> ClusterError:
        ranks = sorted(self.running)
        lines = [line for rank in ranks[:4] for line in self._last_lines(rank, 3)]
        return ClusterError(
            f"the cluster timed out after {self._timeout:g} s",
            where=f"process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} of {len(self.processes)}",
            got="\n    ".join(["last lines", *lines]) if lines else "no output",
            todo="give a larger --timeout, or check whether a process waits for others that never arrive",
        )

    def _last_lines(self, rank: int, count: int = _TAIL) -> list[str]:
        return [f"[{rank}] {line}" for line in list(self.processes[rank].tail)[-count:]]


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster on this machine.

    Args:
        processes: Number of processes.
        port: The coordinator's port on the loopback interface, which other machines cannot reach.
        devices: CPU devices of JAX in each process.
        threads: Threads of the libraries in each process.
    """

    processes: int
    port: int
    devices: int = 1
    threads: int = 1

    def environment(self, rank: int) -> dict[str, str]:
        """Return the environment of one process: this process's, with its rank and its share of the cores."""
        address = f"{_LOOPBACK}:{self.port}"
        return {
            **environment(self.threads),
            **_bypass_proxies(),
            "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
            "JAX_NUM_CPU_DEVICES": str(self.devices),
            "JAX_ENABLE_PREEMPTION_SERVICE": "false",  # with it, SIGTERM does not terminate
            "PYTHONUNBUFFERED": "1",  # so that the last lines of a crashed process are not lost
            COORDINATOR: address,
            BIND: address,
            PROCESSES: str(self.processes),
            PROCESS: str(rank),
        }


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
    _check(command, processes, devices, timeout)
    if command[0] in ("python", "python3"):  # the first one on the PATH may not have the course installed
        command = [sys.executable, *command[1:]]
    supervisor = _Supervisor(grace, timeout, say)
    with _reserved_port() as port, _signals_posted(supervisor.events.put):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        spec = ClusterSpec(processes, port, devices, threads or max(1, cores // processes))
        try:
            for rank in range(processes):
                supervisor.start(rank, command, spec.environment(rank))
            supervisor.wait()
        finally:
            supervisor.kill()
    if supervisor.error is not None:
        raise supervisor.error


def _check(command: Sequence[str], processes: int, devices: int, timeout: float | None) -> None:
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ClusterError("unsupported platform", expected="Linux or macOS", got=sys.platform)
    if not command:
        raise ClusterError("no command to run", todo="mlhood cluster -n 2 -- python script.py")
    if not 1 <= processes <= _MAX_PROCESSES or devices < 1:
        raise ClusterError(
            "invalid size of the cluster",
            expected=f"1 to {_MAX_PROCESSES} processes with 1 device or more each",
            got=f"{processes} processes with {devices} devices",
        )
    if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:  # rejects NaN, too
        raise ClusterError("invalid timeout", expected="more than 0 s", got=timeout, todo="omit it for no limit")


def _bypass_proxies() -> dict[str, str]:
    """Return variables that keep gRPC from connecting to the coordinator through a proxy, if one is configured."""
    variables = {name.lower(): value for name, value in os.environ.items()}
    if not {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"} & variables.keys():
        return {}
    hosts = [host for host in variables.get("no_proxy", "").split(",") if host]
    return {"no_proxy": ",".join([*hosts, _LOOPBACK]), "JAX_CHECK_PROXY_ENVS": "false"}


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
def _signals_posted(post: Callable[[_Event], None]) -> Iterator[None]:
    """Post signals as events: an exception in a handler could strike between starting and recording a process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    # a signal that is ignored, such as SIGINT in a background job, stays ignored
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, lambda received, _: post(_Signal(received))) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "unknown"
