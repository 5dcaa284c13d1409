"""One core for a submission and the grader while they are timed.

A submission may start threads and programs. So all that it runs shares one core with this process meanwhile: threads
make nothing faster, and other programs slow both down. This is done from outside; what runs there has no say.

What a submission runs descends from the process `pid` of its transport. Where the transport has none, or the system has
no such calls, libraries use one thread and no more is done. In a sandbox `sched_setaffinity` has no effect (`seccomp`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mlhood.grading.checks.submission import Session, Submission
from mlhood.measure.threading import threads as limited_threads

if TYPE_CHECKING:
    from psutil import Process

SINGLE_THREAD = "mlhood.grading.checks.probes:single_thread"
PASSES = 10  # over what a submission runs, until one finds nothing new


@contextmanager
def one_core(submission: Submission) -> Iterator[None]:
    """Keep all threads that the submission runs, and the thread that times them, on one core of this machine.

    Libraries use one thread meanwhile: several would wait for each other on one core.
    """
    threads = submission.call(SINGLE_THREAD)
    try:
        with limited_threads(1), _pinned(submission.session):
            yield
    finally:
        submission.call(threads, method="restore")


@contextmanager
def _pinned(session: Session) -> Iterator[None]:
    """Pin this thread, and all that a submission runs, to the core that this thread runs on."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    import psutil

    cores = os.sched_getaffinity(0)
    core = {psutil.Process().cpu_num()} & cores or {min(cores)}
    try:
        os.sched_setaffinity(0, core)
        _pin(session, core)
        yield
    finally:
        os.sched_setaffinity(0, cores)
        _pin(session, cores)


def _pin(session: Session, cores: set[int]) -> None:
    """Let all threads of a submission run on these cores only; those that it starts later do, too."""
    pinned: set[int] = set()
    for _ in range(PASSES):
        new: set[int] = set()
        for process in _processes(session):
            with suppress(OSError):  # it has ended meanwhile
                new |= {int(thread.name) for thread in Path(f"/proc/{process.pid}/task").iterdir()} - pinned
        for thread in new:
            with suppress(OSError):  # it has ended, or belongs to another user
                os.sched_setaffinity(thread, cores)
        if not new:
            return
        pinned |= new


def _processes(session: Session) -> list[Process]:
    """Return the processes that a submission runs now."""
    import psutil

    pid = getattr(session.transport, "pid", None)
    if pid is None:
        return []
    with suppress(psutil.Error):  # it has ended meanwhile
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    return []
