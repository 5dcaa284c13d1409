"""Start a program as several processes of one machine, show what they say, and see that they end together.

The processes find each other by `mlhood.jaxlab.cluster.initialize()`. Each is the head of a process group of its own,
so that what it starts ends with it. When one fails the others wait for it in vain: they get a moment to say so, then
the signal to end, then no choice.
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
from typing import IO, Any, NamedTuple, cast

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.processes import BIND, COORDINATOR, PROCESS, PROCESSES
from mlhood.measure.threading import environment

GRACE = 3.0
_LOCAL = "127.0.0.1"
_MOST = 64  # processes
_TAIL = 12  # lines of a failed process that its error repeats
_LONGEST = 64 * 1024  # bytes of a line
_FRAME = re.compile(r"\s+@\s+0x")  # of a C++ stack: what comes before says more
_STOPS = ("SIGINT", "SIGTERM", "SIGHUP")


class _Event(NamedTuple):
    kind: str  # "line", "ended" or "signal"
    number: int  # of the process, or of the signal
    value: Any = None  # the line, or the exit code


class _Child:
    """One process, and two threads that tell of it: of its lines, and of its end."""

    def __init__(self, number: int, command: Sequence[str], env: dict[str, str], tell: Callable[[_Event], None]):
        self.number = number
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self.ended = float("inf")
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            process_group=0,
        )  # fmt: skip
        self._stream = cast("IO[bytes]", self.process.stdout)
        self._tell = tell
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def _read(self) -> None:
        with self._stream as stream:
            while line := stream.readline(_LONGEST):
                self._tell(_Event("line", self.number, line.decode(errors="replace").rstrip("\r\n")))

    def _wait(self) -> None:
        code = self.process.wait()
        self.ended = time.monotonic()
        self._reader.join(1)
        if self._reader.is_alive():  # something that the process has started holds its output open
            self._group(signal.SIGKILL)
        self._tell(_Event("ended", self.number, code))

    def send(self, number: int) -> None:
        """Send a signal to the process and to all that it has started."""
        if self.process.poll() is None:
            self._group(number)

    def kill(self) -> None:
        """End it if it has not ended, and wait until nothing of it is left."""
        self.send(signal.SIGKILL)
        self.process.wait()
        self._reader.join()

    def _group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class _Cluster:
    """The processes that run, why they are to end, and when which signal is due."""

    def __init__(self, grace: float, timeout: float | None, say: Callable[[str], None]) -> None:
        self.events: queue.SimpleQueue[_Event] = queue.SimpleQueue()  # a signal's handler may put into this kind
        self.children: dict[int, _Child] = {}
        self.running: set[int] = set()
        self.error: BaseException | None = None
        self._grace, self._say, self._timeout = grace, say, timeout
        self._started = time.monotonic()
        self._due: list[tuple[float, int]] = []

    def start(self, number: int, command: Sequence[str], env: dict[str, str]) -> None:
        try:
            self.children[number] = _Child(number, command, env, self.events.put)
        except OSError as error:
            todo = f"mlhood cluster -n 2 -- python {command[0]}" if command[0].endswith(".py") else None
            raise ClusterError(
                "the command cannot be started", where=command[0], got=error.strerror, todo=todo
            ) from error
        self.running.add(number)

    def wait(self) -> None:
        """Follow the processes until all have ended."""
        while self.running:
            try:
                event = self.events.get(timeout=self._patience())
            except queue.Empty:
                self._overdue()
            else:
                self._follow(event)

    def kill(self) -> None:
        """Leave nothing behind, whatever has happened."""
        for child in self.children.values():
            child.kill()

    def _follow(self, event: _Event) -> None:
        if event.kind == "line":
            if not _FRAME.match(event.value):
                self.children[event.number].tail.append(event.value)
            self._say(f"[{event.number}] {event.value}")
        elif event.kind == "ended":
            self.running.discard(event.number)
            if event.value and self.error is None:
                self._end(self._failure(), self._grace)
        else:
            # a second one means it
            self._end(_stopped(event.number), 0 if self.error is None else -self._grace)

    def _end(self, error: BaseException, patience: float) -> None:
        self.error = self.error or error
        now = time.monotonic()
        self._due = [(now + patience, signal.SIGTERM), (now + patience + self._grace, signal.SIGKILL)]

    def _patience(self) -> float | None:
        """Return the seconds until something is due."""
        moments = [moment for moment, _ in self._due]
        if self._timeout is not None and self.error is None:
            moments.append(self._started + self._timeout)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _overdue(self) -> None:
        if self.error is None:
            self._end(self._late(), 0)
            return
        for _, number in [one for one in self._due if one[0] <= time.monotonic()]:
            for name in self.running:
                self.children[name].send(number)
        self._due = [one for one in self._due if one[0] > time.monotonic()]

    def _failure(self) -> ClusterError:
        """Tell of the process that failed first: those that it has let down may be heard of before."""
        failed = [child for child in self.children.values() if child.process.returncode]
        first = min(failed, key=lambda child: child.ended)
        number, code = first.number, first.process.returncode
        how = f"exit code {code}" if code > 0 else f"signal {-code} ({_name(-code)})"
        return ClusterError(
            f"process {number} of {len(self.children)} failed; the others were ended",
            where=f"process {number}, after {time.monotonic() - self._started:.1f} s",
            expected="exit code 0 of every process",
            got="\n    ".join([how, *self._last(number)]),
            todo="read its lines; if the program saves checkpoints, the same command resumes from the last",
        )

    def _late(self) -> ClusterError:
        left = sorted(self.running)
        lines = [line for number in left[:4] for line in self._last(number, 3)]
        return ClusterError(
            f"the cluster was stopped: {self._timeout:g} s were over",
            where=f"process{'es' if len(left) > 1 else ''} {', '.join(map(str, left))} of {len(self.children)}",
            got="\n    ".join(["last lines", *lines]) if lines else "not a line of output",
            todo="give a larger --timeout; or see where a process waits for others that never come",
        )

    def _last(self, number: int, count: int = _TAIL) -> list[str]:
        return [f"[{number}] {line}" for line in list(self.children[number].tail)[-count:]]


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
    """Run a command as several processes that find each other by `initialize()`, and wait until all have ended.

    Args:
        command: The program with its arguments; `python` means the Python that runs this.
        processes: How many.
        devices: CPU devices that JAX has in each.
        threads: Threads that libraries take in each process; left out, the cores are shared out.
        timeout: Seconds after which all are ended; no limit if left out.
        grace: Seconds that the others have to end when one has failed, and again after they were told to.
        say: Called with each line of output, with the process's number before it.

    Raises:
        ClusterError: A process failed, time was over, or the command cannot be started.
        KeyboardInterrupt: Ctrl-C; no process is left.
        SystemExit: SIGTERM or SIGHUP came; no process is left.
    """
    _check(command, processes, devices, timeout)
    cluster = _Cluster(grace, timeout, say)
    with _port() as port, _heard(cluster.events.put):
        try:
            for number in range(processes):
                env = variables(number, processes, port, devices, threads or max(1, _cores() // processes))
                cluster.start(number, _program(command), env)
            cluster.wait()
        finally:
            cluster.kill()
    if cluster.error is not None:
        raise cluster.error


def variables(number: int, processes: int, port: int, devices: int = 1, threads: int = 1) -> dict[str, str]:
    """Return the environment of one process: this one's, its place in the cluster, and its share of the cores.

    The coordinator is bound to the loopback: nobody outside of this machine can reach it.
    """
    address = f"{_LOCAL}:{port}"
    return {
        **environment(threads),
        **_past_proxies(),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_ENABLE_PREEMPTION_SERVICE": "false",  # with it, SIGTERM is only a hint
        "PYTHONUNBUFFERED": "1",  # the last words of a process that dies
        COORDINATOR: address,
        BIND: address,
        PROCESSES: str(processes),
        PROCESS: str(number),
    }


def _check(command: Sequence[str], processes: int, devices: int, timeout: float | None) -> None:
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ClusterError("there are no clusters on this system", expected="Linux or macOS", got=sys.platform)
    if not command:
        raise ClusterError("there is nothing to run", todo="mlhood cluster -n 2 -- python script.py")
    if not 1 <= processes <= _MOST or devices < 1:
        raise ClusterError(
            "this is no cluster",
            expected=f"1 to {_MOST} processes with 1 device or more each",
            got=f"{processes} processes with {devices} devices",
        )
    if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:  # not a number is none, either
        raise ClusterError(
            "this is no time limit", expected="more than 0 s", got=timeout, todo="leave it out, and there is none"
        )


def _program(command: Sequence[str]) -> list[str]:
    """Return the command, with our own Python for `python`: the shell's may lack the course."""
    first, *rest = command
    return [sys.executable if first in ("python", "python3") else first, *rest]


def _past_proxies() -> dict[str, str]:
    """Return what keeps gRPC from looking for the coordinator behind a proxy, where there is one."""
    known = {name.lower(): value for name, value in os.environ.items()}
    if not {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"} & known.keys():
        return {}
    around = [one for one in known.get("no_proxy", "").split(",") if one]
    return {"no_proxy": ",".join([*around, _LOCAL]), "JAX_CHECK_PROXY_ENVS": "false"}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _port() -> Iterator[int]:
    """Keep a port for the coordinator: bound here, it is nobody else's, and process 0 binds it beside us.

    Both sides set SO_REUSEPORT, which gRPC does by itself, and only the one that listens gets connections.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind((_LOCAL, 0))
        yield kept.getsockname()[1]


@contextlib.contextmanager
def _heard(tell: Callable[[_Event], None]) -> Iterator[None]:
    """Turn signals into events: an exception could come between a process's start and the note of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in _STOPS if hasattr(signal, name)]
    # a program in the background is deaf to Ctrl-C, and stays so
    chosen = [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda got, _: tell(_Event("signal", got))) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return "unknown"
