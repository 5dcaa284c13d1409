"""Call `mlhood grade` as an instructor does, as a program of its own: timed, and with faults injected if requested."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mlhood.errors import GradingError
from mlhood.grading.bench.memory import Peaks, Sampler

GRADE = (sys.executable, "-P", "-c", "from mlhood.cli import main; main()", "grade")
GRADED = re.compile(r"\[\d+/\d+\] ")  # begins the line that reports a graded submission
LAST_LINES = 20
INTERRUPT_SECONDS = 30.0
ERROR = 2
Log = Callable[[str], None]


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
        delay: As a fraction of the time between the last two lines of output, so that faults do not only hit the first
            moments of a submission.
        inject: Called with the process.
    """

    after: int
    delay: float
    inject: Callable[[subprocess.Popen[str]], None]


def run_grade(arguments: Sequence[object], log: Log, fault: Fault | None = None, call: Call | None = None) -> Call:
    """Run `mlhood grade`.

    Args:
        arguments: Of the command.
        log: Called with each line of its progress.
        fault: Injected while it is running.
        call: Filled with the outcome, also after Ctrl-C.

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
        previous, received = received, time.monotonic()
        last.append(line.rstrip())
        log(last[-1])
        call.graded += GRADED.match(line) is not None
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
