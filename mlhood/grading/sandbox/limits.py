"""The limits of a sandbox, and the thread that monitors them: what exceeds one is killed, with the reason in words."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL_SECONDS = 0.05
EXACT_SUM_SECONDS = 1.0
MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a submission may use.

    Args:
        memory: Bytes of all its processes together, and of its files, which are in memory too.
        processes: Processes at the same time; a browser that draws a graph takes about a dozen.
        threads: Threads of all its processes together.
        descriptors: Open files and sockets of all its processes together, by the size of their tables. Data queued in a
            socket are memory of the system, up to 200 KiB, which no process is charged for. One process may have a
            quarter of them.
        files: Files and folders at the same time.
        disk: Bytes in its working folder.
        file: Bytes in one file.
        output: Bytes of outputs of one cell.
        seconds: Wall time of all its cells and requests together.
    """

    memory: int = 6 << 30
    processes: int = 128
    threads: int = 2048
    descriptors: int = 16_384
    files: int = 20_000
    disk: int = 1 << 30
    file: int = 768 << 20
    output: int = 16 << 20
    seconds: float = 3600.0


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
        if self._memory_exceeded(pids, list(map(_resident, statuses)), written):
            return f"used more than {limits.memory // MIB} MiB of memory and was stopped"
        return ""

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
