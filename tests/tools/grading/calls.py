"""Call `mlhood grade` as a program of its own, as an instructor does: timed, memory sampled, with faults injected."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from mlhood.errors import GradingError
from mlhood.grading.batch.local_executor import descendants_of

INTERVAL = 0.05  # seconds between two samples of the grader itself
DESCENDANTS_EVERY = 10  # samples; its descendants take longer to measure
GRADE = (sys.executable, "-P", "-c", "from mlhood.cli import main; main()", "grade")
GRADED = re.compile(r"\[\d+/\d+\] ")  # begins the line that reports a graded submission
LAST_LINES = 20
INTERRUPT_SECONDS = 30.0
ERROR = 2
Log = Callable[[str], None]


@dataclass
class Peaks:
    """Peak resident memory, in bytes.

    Args:
        grader: Of the process that writes the gradebook.
        worker: Of a worker process, which loads the course and checks the answers.
        sandboxed: Of a process that a worker has started.
        together: Of all of them at the same time; shared pages are counted for each.
    """

    grader: int = 0
    worker: int = 0
    sandboxed: int = 0
    together: int = 0

    def update(self, other: Peaks) -> None:
        """Set each peak to the maximum of both."""
        for name, value in vars(other).items():
            setattr(self, name, max(getattr(self, name), value))


class Sampler(threading.Thread):
    """Samples a process until it ends or `stop` is called."""

    def __init__(self, process_id: int) -> None:
        super().__init__(name="mlhood memory", daemon=True)
        self.peaks = Peaks()
        self._id = process_id
        self._stopped = threading.Event()

    def run(self) -> None:
        """Take samples."""
        samples = 0
        with contextlib.suppress(psutil.Error):
            grader = psutil.Process(self._id)
            while not self._stopped.wait(INTERVAL):
                resident = grader.memory_info().rss
                self.peaks.update(Peaks(resident))
                if samples % DESCENDANTS_EVERY == 0:
                    self._sample_descendants(grader, resident)
                samples += 1

    def _sample_descendants(self, grader: psutil.Process, resident: int) -> None:
        workers = grader.children()
        of_workers = _resident(workers)
        of_sandboxed = _resident([process for worker in workers for process in descendants_of(worker.pid)])
        together = resident + sum(of_workers) + sum(of_sandboxed)
        self.peaks.update(Peaks(resident, max(of_workers, default=0), max(of_sandboxed, default=0), together))

    def stop(self) -> Peaks:
        """Stop, and return the peaks."""
        self._stopped.set()
        self.join()
        return self.peaks


def _resident(processes: list[psutil.Process]) -> list[int]:
    sizes = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            sizes.append(process.memory_info().rss)
    return sizes


@dataclass
class Call:
    """A call: its duration, the number of graded submissions it reported, its exit code and its peak memory."""

    seconds: float = 0.0
    graded: int = 0
    code: int | None = None
    peaks: Peaks = field(default_factory=Peaks)

    @property
    def killed(self) -> bool:
        """Whether it was ended by SIGKILL."""
        return self.code == -signal.SIGKILL


def per_minute(graded: int, seconds: float) -> float:
    """Return the submissions graded per minute; 0 if nothing has started."""
    return 60 * graded / seconds if seconds else 0.0


@dataclass(frozen=True)
class Fault:
    """A fault that is injected while a call is running.

    Args:
        after: Number of graded submissions after which it is injected.
        delay: As a fraction of the time since the last graded submission but one, so that faults do not only hit the
            first moments of a submission.
        inject: Called with the process.
    """

    after: int
    delay: float
    inject: Callable[[subprocess.Popen[str]], None]


def run_grade(arguments: Sequence[object], log: Log, fault: Fault | None = None, call: Call | None = None) -> Call:
    """Run `mlhood grade`; `log` gets each line of its progress, `call` the outcome, also after Ctrl-C.

    Raises:
        GradingError: It could not start its work.
    """
    call, last = call or Call(), deque[str](maxlen=LAST_LINES)
    began = time.perf_counter()
    process = subprocess.Popen(
        [*GRADE, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the bench, which then ends the process itself
    )
    sampler = Sampler(process.pid)
    sampler.start()
    try:
        _follow(process, call, last, log, fault)
    finally:
        _end(process)
        call.seconds, call.code, call.peaks = time.perf_counter() - began, process.returncode, sampler.stop()
    if call.code == ERROR:
        raise GradingError("`mlhood grade` could not start its work", got="\n".join(last))
    return call


def _follow(process: subprocess.Popen[str], call: Call, last: deque[str], log: Log, fault: Fault | None) -> None:
    received = time.monotonic()
    for line in process.stderr or ():
        last.append(line.rstrip())
        log(last[-1])
        if not GRADED.match(line):
            continue
        previous, received = received, time.monotonic()
        call.graded += 1
        if fault is not None and call.graded >= fault.after:
            time.sleep(fault.delay * (received - previous))
            fault.inject(process)
            fault = None
    process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    """Make sure that it has ended: by SIGINT, so that it ends its workers; if that takes too long, by SIGKILL."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stderr:
        process.stderr.close()


def verdict(promise: str, held: bool) -> str:
    """Return a promise, and whether it was held."""
    return f"{promise}: {'held' if held else 'MISSED'}"
