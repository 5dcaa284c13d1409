"""`mlhood grade` as a program of its own, as an instructor calls it: timed, watched, and killed where that is asked."""

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
GRADED = re.compile(r"\[\d+/\d+\] ")  # how the line begins that a submission's end is told with
LAST_LINES = 20
END_SECONDS = 30.0
ERROR = 2
Say = Callable[[str], None]


@dataclass
class Call:
    """A call: how long it took, how many submissions it told of, how it ended, and the memory that it held."""

    seconds: float = 0.0
    graded: int = 0
    code: int | None = None
    peaks: Peaks = field(default_factory=Peaks)

    @property
    def killed(self) -> bool:
        """Whether SIGKILL has ended it."""
        return self.code == -signal.SIGKILL


def per_minute(graded: int, seconds: float) -> float:
    """Submissions graded in a minute; 0 where nothing has begun."""
    return 60 * graded / seconds if seconds else 0.0


@dataclass(frozen=True)
class Blow:
    """Something done to a call in the middle of its work.

    Args:
        after: How many submissions it has graded then.
        pause: How long after, as a share of the seconds since it told of something before, so that not only the first
            moments of a submission are met.
        deal: What is done.
    """

    after: int
    pause: float
    deal: Callable[[subprocess.Popen[str]], None]


def call(arguments: Sequence[object], say: Say, blow: Blow | None = None, done: Call | None = None) -> Call:
    """Grade by the command line.

    Args:
        arguments: Of `mlhood grade`.
        say: Told each line that it prints about its work.
        blow: What is done to it in the middle.
        done: Takes up what there is to tell of the call, after Ctrl-C, too.

    Raises:
        GradingError: It could not do its work.
    """
    done, last = done or Call(), deque[str](maxlen=LAST_LINES)
    began = time.perf_counter()
    process = subprocess.Popen(
        [*GRADE, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the bench, which then ends the call itself
    )
    sampler = Sampler(process.pid)
    sampler.start()
    try:
        _follow(process, done, last, say, blow)
    finally:
        _end(process)
        done.seconds, done.code, done.peaks = time.perf_counter() - began, process.returncode, sampler.stop()
    if done.code == ERROR:
        raise GradingError("a call of `mlhood grade` could not do its work", got="\n".join(last))
    return done


def _follow(process: subprocess.Popen[str], done: Call, last: deque[str], say: Say, blow: Blow | None) -> None:
    told = time.monotonic()
    for line in process.stderr or ():
        before, told = told, time.monotonic()
        last.append(line.rstrip())
        say(last[-1])
        done.graded += GRADED.match(line) is not None
        if blow is not None and done.graded >= blow.after:
            time.sleep(blow.pause * (told - before))
            blow.deal(process)
            blow = None
    process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    """See that it has ended: by Ctrl-C, so that it ends its workers, and if that takes too long by force."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stderr:
        process.stderr.close()
