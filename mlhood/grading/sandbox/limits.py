"""The limits of a sandbox, and the thread that monitors them: what exceeds one is killed, with the reason in words."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

INTERVAL_SECONDS = 0.05
EXACT_SUM_SECONDS = 1.0
MIB = 1 << 20
SOCKET_COUNTS = re.compile(rb"(sockets|TCP6?): (?:used|inuse) (\d+)")  # in sockstat and sockstat6


@dataclass(frozen=True)
class Limits:
    """What a submission may use.

    Args:
        memory: Bytes of all its processes together, of its files, which are in memory too, and of its sockets: no
            process is charged for the data in one, so each counts with all that may be queued in it.
        processes: Processes at the same time; a browser that draws a graph takes about a dozen.
        threads: Threads of all its processes together.
        descriptors: Open files and sockets of all its processes together, by the size of their tables. One process may
            have a quarter of them.
        files: Files and folders at the same time.
        disk: Bytes in its working folder.
        file: Bytes in one file.
        seconds: Wall time of all its cells and requests together.
    """

    memory: int = 6 << 30
    processes: int = 128
    threads: int = 2048
    descriptors: int = 16_384
    files: int = 20_000
    disk: int = 1 << 30
    file: int = 768 << 20
    seconds: float = 3600.0


@functools.cache
def socket_bytes() -> tuple[int, int]:
    """Return the bytes that may be queued in a socket, and those that one of TCP may take in addition, as it grows.

    A sandbox cannot enlarge them (see `seccomp`). Where the system does not show them, Linux's defaults count.
    """
    return (
        _setting("core/wmem_default", 208 << 10) + _setting("core/rmem_default", 208 << 10),
        _setting("ipv4/tcp_wmem", 4 << 20) + _setting("ipv4/tcp_rmem", 32 << 20),
    )


def _setting(name: str, default: int) -> int:
    """Return a setting of the network, the last one of several."""
    try:
        return int(Path("/proc/sys/net", name).read_text(encoding="ascii").split()[-1])
    except OSError:
        return default


class _BackgroundSum(threading.Thread):
    """A sum that another thread computes."""

    def __init__(self, compute: Callable[[], int]) -> None:
        super().__init__(name="mlhood sandbox sum", daemon=True)
        self.began, self.total = time.monotonic(), 0
        self._compute = compute
        self.start()

    def run(self) -> None:
        self.total = self._compute()


class ResourceMonitor(threading.Thread):
    """Compares what a sandbox uses with its limits, twenty times a second.

    The kernel's own limits are not sufficient: `RLIMIT_AS` counts addresses, of which torch and JAX reserve far more
    than they use, and control groups are seldom available to an unprivileged process.

    Args:
        processes: Descriptor of the sandbox's own /proc, which lists its processes and no others.
        disks: Descriptors of the file systems that it can write.
        limits: Its limits.
        on_exceeded: Called once, with the reason in words, when a limit is exceeded.
    """

    def __init__(self, processes: int, disks: list[int], limits: Limits, on_exceeded: Callable[[str], None]) -> None:
        super().__init__(name="mlhood sandbox monitor", daemon=True)
        self._processes = processes
        self._disks = disks
        self._limits = limits
        self._on_exceeded = on_exceeded
        self._stopped = threading.Event()
        self._exact_sum: _BackgroundSum | None = None

    def run(self) -> None:
        """Check until `stop` is called, the sandbox has ended or a limit is exceeded."""
        while not self._stopped.wait(INTERVAL_SECONDS):
            try:
                reason = self.exceeded()
            except OSError:  # its first process has ended, and /proc with it
                return
            if reason:
                self._on_exceeded(reason)
                return

    def stop(self) -> None:
        """Stop, and return when the last check is finished: then the descriptors may be closed."""
        self._stopped.set()
        for thread in (self, self._exact_sum):
            if thread is not None and thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def exceeded(self) -> str:
        """Return which limit is exceeded, in words, or an empty text."""
        limits, pids = self._limits, self._pids()
        if len(pids) > limits.processes:
            return f"started more than {limits.processes} processes and was stopped"
        statuses = [self._numbers(f"{pid}/status") for pid in pids]
        if sum(status.get("Threads", 0) for status in statuses) > limits.threads:
            return f"started more than {limits.threads} threads and was stopped"
        if sum(status.get("FDSize", 0) for status in statuses) > limits.descriptors:
            return f"opened more than {limits.descriptors} files and sockets at once and was stopped"
        states = [os.fstatvfs(disk) for disk in self._disks]
        if sum(state.f_files - state.f_ffree for state in states) > limits.files:
            return f"made more than {limits.files} files and was stopped"
        written = sum((state.f_blocks - state.f_bfree) * state.f_frsize for state in states)
        if self._memory_exceeded(pids, list(map(_resident, statuses)), written + self._queued()):
            return f"used more than {limits.memory // MIB} MiB of memory and was stopped"
        return ""

    def _queued(self) -> int:
        """Return the bytes that may be queued in all sockets of its network, open ones and others."""
        each, tcp = socket_bytes()
        counts = SOCKET_COUNTS.findall(self._read("1/net/sockstat") + self._read("1/net/sockstat6"))
        return sum(int(count) * (each if name == b"sockets" else tcp) for name, count in counts)

    def _pids(self) -> list[str]:
        """Return the processes, at most one more than allowed: a list that grows while it is read may not end."""
        with os.scandir(self._processes) as entries:
            pids = (entry.name for entry in entries if entry.name.isdigit())
            return list(itertools.islice(pids, self._limits.processes + 1))

    def _memory_exceeded(self, pids: list[str], resident: list[int], written: int) -> bool:
        """Compare the memory with its limit: by a fast sum, which counts shared memory once per process, or exactly.

        Reading the exact numbers waits for every process that is forking, and a process can fork without end. So
        another thread reads them, for a limited time.
        """
        limit = self._limits.memory
        if written + sum(resident) <= limit:
            self._exact_sum = None
            return False
        if written + max(resident) > limit:
            return True
        if self._exact_sum is None:
            self._exact_sum = _BackgroundSum(lambda: written + sum(self._proportional(pid) for pid in pids))
        if self._exact_sum.is_alive():
            return time.monotonic() > self._exact_sum.began + EXACT_SUM_SECONDS
        exceeded, self._exact_sum = self._exact_sum.total > limit, None
        return exceeded

    def _proportional(self, pid: str) -> int:
        """Return the memory of a process, with its share of what it shares."""
        shares = self._numbers(f"{pid}/smaps_rollup")
        # a process can hide this file, but not its status
        memory = sum(shares.get(name, 0) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss")) << 10
        return memory or _resident(self._numbers(f"{pid}/status"))

    def _numbers(self, name: str) -> dict[str, int]:
        """Return the numbers in a file of /proc with a line for each; memory is in KiB (proc_pid_status(5))."""
        lines = [line.split() for line in self._read(name).decode(errors="replace").splitlines()]
        return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}

    def _read(self, name: str) -> bytes:
        with contextlib.suppress(OSError):  # it may have ended since it was listed
            file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._processes)
            try:
                return os.read(file, 1 << 16)
            finally:
                os.close(file)
        return b""


def _resident(status: dict[str, int]) -> int:
    """Return the memory of a process in bytes, with all that it shares, without mapped files of the system."""
    return sum(status.get(name, 0) for name in ("RssAnon", "RssShmem", "VmSwap", "VmPTE")) << 10
