"""What a sandbox may use, and the thread that looks: what is over a limit is ended at once, and told in words."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL = 0.05  # seconds between two looks
PATIENCE = 1.0  # seconds for an exact sum
MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a submission may use.

    Args:
        memory: Bytes that all its processes hold together, and its files with them, for they lie in memory too.
        processes: Processes at once; a browser that draws a graph takes about a dozen.
        threads: Threads of all its processes together.
        descriptors: Open files and sockets of all its processes together, as the system makes room for them. What waits
            in a socket is memory of the system's, up to 200 KiB, which no process is charged for. One process may have
            a quarter of them.
        files: Files and folders at once.
        disk: Bytes in its working folder.
        file: Bytes in one file.
        output: Bytes of outputs of one cell.
        seconds: Wall time of all its cells and answers together.
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


class _Sum(threading.Thread):
    """A sum that may take its time."""

    def __init__(self, add: Callable[[], int]) -> None:
        super().__init__(name="mlhood sandbox sum", daemon=True)
        self.began, self.total = time.monotonic(), 0
        self._add = add
        self.start()

    def run(self) -> None:
        self.total = self._add()


class Watch(threading.Thread):
    """Looks at a sandbox every few hundredths of a second.

    The kernel's own limits do not do: `RLIMIT_AS` counts addresses, of which torch and JAX reserve far more than they
    use, and control groups are seldom ours to make.

    Args:
        processes: Descriptor of the sandbox's own /proc, which lists its processes and no others.
        disks: Descriptors of the file systems that it can write.
        limits: What it may use.
        over: Called once, with the reason in words, if that is too much.
    """

    def __init__(self, processes: int, disks: list[int], limits: Limits, over: Callable[[str], None]) -> None:
        super().__init__(name="mlhood sandbox watch", daemon=True)
        self._processes = processes
        self._disks = disks
        self._limits = limits
        self._over = over
        self._ended = threading.Event()
        self._exact: _Sum | None = None

    def run(self) -> None:
        """Look until `end` is called, the sandbox is gone or something is over its limit."""
        while not self._ended.wait(INTERVAL):
            try:
                reason = self.look()
            except OSError:  # its first process has ended, and /proc with it
                return
            if reason:
                self._over(reason)
                return

    def end(self) -> None:
        """Stop looking, and return when the last look is over: the descriptors may be closed then."""
        self._ended.set()
        for thread in (self, self._exact):
            if thread is not None and thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def look(self) -> str:
        """Return what is over its limit, in words, or nothing."""
        limits, pids = self._limits, self._pids()
        if len(pids) > limits.processes:
            return f"started more than {limits.processes} processes and was stopped"
        states = [self._numbers(f"{pid}/status") for pid in pids]
        if sum(state.get("Threads", 0) for state in states) > limits.threads:
            return f"started more than {limits.threads} threads and was stopped"
        if sum(state.get("FDSize", 0) for state in states) > limits.descriptors:
            return f"opened more than {limits.descriptors} files and sockets at once and was stopped"
        written, files = self._files()
        if files > limits.files:
            return f"made more than {limits.files} files and was stopped"
        if self._over_memory(pids, list(map(_resident, states)), written):
            return f"used more than {limits.memory // MIB} MiB of memory and was stopped"
        return ""

    def _pids(self) -> list[str]:
        """The processes, or as many as are one too many: a list that grows while it is read has no end."""
        with os.scandir(self._processes) as entries:
            found = (entry.name for entry in entries if entry.name.isdigit())
            return list(itertools.islice(found, self._limits.processes + 1))

    def _over_memory(self, pids: list[str], held: list[int], written: int) -> bool:
        """The quick sum counts what processes share as often as there are sharers; where it is over, ask exactly.

        The exact answer waits for every process that forks just then, and one can fork without end. So somebody else
        waits for it, and not for long.
        """
        limit = self._limits.memory
        if written + sum(held) <= limit:
            self._exact = None
            return False
        if written + max(held) > limit:
            return True
        if self._exact is None:
            self._exact = _Sum(lambda: written + sum(self._own(pid) for pid in pids))
        if self._exact.is_alive():
            return time.monotonic() > self._exact.began + PATIENCE
        over, self._exact = self._exact.total > limit, None
        return over

    def _files(self) -> tuple[int, int]:
        states = [os.fstatvfs(disk) for disk in self._disks]
        written = sum((state.f_blocks - state.f_bfree) * state.f_frsize for state in states)
        return written, sum(state.f_files - state.f_ffree for state in states)

    def _own(self, pid: str) -> int:
        """Memory of a process, with its share of what it shares."""
        shares = self._numbers(f"{pid}/smaps_rollup")
        # a process can forbid this look at itself, but not the other one
        found = sum(shares.get(name, 0) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss")) << 10
        return found or _resident(self._numbers(f"{pid}/status"))

    def _numbers(self, name: str) -> dict[str, int]:
        """The numbers of a file of /proc that has a line for each, by name; memory is in KiB (proc_pid_status(5))."""
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


def _resident(state: dict[str, int]) -> int:
    """Memory of a process in bytes, with all that it shares; without the files of the system that it has mapped."""
    return sum(state.get(name, 0) for name in ("RssAnon", "RssShmem", "VmSwap", "VmPTE")) << 10
