"""Run jobs in worker processes: started, sent jobs, listened to, and killed with all descendants."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from mlhood.errors import GradingError
from mlhood.grading.gradebook.gradebook import identification_job
from mlhood.grading.intake.collect import SubmittedFile

WORKER = "mlhood.grading.batch.worker"
START_SECONDS = 300.0
TICK_SECONDS = 0.25
MAX_LINE = 16 << 20
MAX_STDERR = 2000
JOIN_SECONDS = 5.0
EXITED = "exited"
MAX_STARTUP_FAILURES = 3  # in a row


@dataclass(frozen=True)
class Job:
    """A submission whose project is to be found, or which is to be graded.

    Args:
        kind: `identify`, `grade`, or `regrade`: grade once more, as measurements left checks undecided.
        submission: With a path.
        seconds: Time limit.
        key: Of the grading.
    """

    kind: Literal["identify", "grade", "regrade"]
    submission: SubmittedFile
    seconds: float
    key: str = ""

    @property
    def name(self) -> str:
        """The name under which the gradebook counts attempts."""
        if self.kind == "identify":
            return identification_job(self.submission.sha256)
        return self.key if self.kind == "grade" else f"{self.kind}:{self.key}"


@dataclass(frozen=True)
class Event:
    """What has happened to a job.

    Args:
        kind: `started`; `task`, of which there is a `result`; `identified` (`project`, `version`), `done` (`seconds`)
            or `refused` (`reason`: the notebook is at fault), which end it; or `lost` (`reason`), through no fault of
            the notebook, as far as is known: its worker died, or ran out of time.
        job: The job.
        facts: Those named above, plain data.
    """

    kind: str
    job: Job
    facts: dict[str, Any] = field(default_factory=dict)


Messages = queue.Queue[tuple["Worker", str, dict[str, Any]]]


class Worker:
    """A worker process. Its messages are put into `messages`: it, the kind (`exited` at its end), and plain data."""

    def __init__(self, sandbox: bool, seed: int, messages: Messages) -> None:
        self.job: Job | None = None
        self._deadline: float | None = time.monotonic() + START_SECONDS
        self._remaining = 0.0
        self._temporary = tempfile.mkdtemp(prefix="mlhood-")  # removed when it has ended, however it ended
        self._stderr = Path(self._temporary, "stderr").open("a+b")  # noqa: SIM115 (closed by `kill`)
        self._process = subprocess.Popen(
            # -P: a file in the working folder may be a student's, and must not be imported
            [sys.executable, "-P", "-m", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "TMPDIR": self._temporary, "TEMP": self._temporary, "TMP": self._temporary},
            start_new_session=True,  # Ctrl-C is for the batch, which then kills its workers itself
        )
        self._reader = threading.Thread(target=self._read_messages, args=(messages,), daemon=True)
        self._reader.start()
        self._send({"sandbox": sandbox, "seed": seed, "lock": str(machine_lock_file()), "temporary": self._temporary})

    def run(self, job: Job) -> None:
        """Send it a job; the time limit begins."""
        self.job = job
        self._deadline = time.monotonic() + job.seconds
        file = job.submission
        facts = {"sha256": file.sha256, "student": file.student, "version": file.version}
        self._send({"kind": job.kind, "path": str(file.path), **facts})

    def set_idle(self) -> None:
        """Record that it has no job, and therefore no time limit."""
        self.job, self._deadline = None, None

    def set_waiting(self, waiting: bool) -> None:
        """Pause its time limit while it waits for the lock of timed tasks, and resume it afterwards."""
        now = time.monotonic()
        if waiting and self._deadline is not None:
            self._remaining, self._deadline = self._deadline - now, None
        elif not waiting and self._deadline is None and self.job:
            self._deadline = now + self._remaining

    def timed_out(self) -> bool:
        """Return whether its time limit has passed."""
        return self._deadline is not None and time.monotonic() > self._deadline

    def kill(self) -> None:
        """Kill it and its descendants, and remove its temporary files."""
        with contextlib.suppress(psutil.Error):
            worker = psutil.Process(self._process.pid)
            worker.suspend()  # so that it starts nothing while its children are listed
            for process in worker.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self._process.kill()
        self._process.wait()
        self._reader.join(JOIN_SECONDS)
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            with contextlib.suppress(OSError, ValueError):
                if stream:
                    stream.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def exit_reason(self) -> str:
        """Return how the process ended, with the last line of its standard error."""
        code = self._process.poll()
        self._stderr.seek(max(self._stderr.seek(0, os.SEEK_END) - MAX_STDERR, 0))
        lines = self._stderr.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = f"was killed by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        return f"the worker {how}" + (f": {last[:300]}" if last else "")

    def _send(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, ValueError):  # `_read_messages` reports a process that has ended
            if self._process.stdin:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()

    def _read_messages(self, messages: Messages) -> None:
        stream = self._process.stdout
        with contextlib.suppress(ValueError, OSError):
            while stream and (line := stream.readline(MAX_LINE)):
                facts = json.loads(line)
                messages.put((self, facts["kind"], facts))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(JOIN_SECONDS)  # so that its exit code is known
        messages.put((self, EXITED, {}))


class Executor:
    """Runs jobs in worker processes, which are started as needed.

    Args:
        sandbox: Whether notebooks run in sandboxes.
        seed: Of the course.
        max_workers: Jobs to run at once.
    """

    def __init__(self, sandbox: bool, seed: int, max_workers: int) -> None:
        self.sandbox = sandbox
        self.seed = seed
        self.max_workers = max_workers
        self._messages: Messages = queue.Queue()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._waiting: deque[Job] = deque()
        self._startup_failures = 0

    def start(self) -> dict[str, Any]:
        """Start one worker, and return how it describes the course: `projects` and `environment`.

        Raises:
            GradingError: It does not start.
        """
        self._start_worker()
        try:
            worker, kind, facts = self._messages.get(timeout=START_SECONDS)
        except queue.Empty:
            raise _no_worker("it does not answer") from None
        if kind != "ready":
            raise _no_worker(facts.get("reason") or worker.exit_reason())
        self._set_idle(worker)
        return facts

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs."""
        self._waiting.extend(jobs)

    def poll(self) -> Iterator[Event]:
        """Give queued jobs to idle workers, start more workers if needed, and yield what has happened.

        Raises:
            GradingError: Workers fail to start again and again.
        """
        while self._waiting and self._idle:
            worker, job = self._idle.pop(), self._waiting.popleft()
            yield Event("started", job)
            worker.run(job)
        starting = sum(worker.job is None for worker in self._workers)
        for _ in range(min(self.max_workers - len(self._workers), len(self._waiting) - starting)):
            self._start_worker()
        with contextlib.suppress(queue.Empty):
            yield from self._handle(*self._messages.get(timeout=TICK_SECONDS))
        for worker in [worker for worker in self._workers if worker.timed_out()]:
            yield from self._replace(worker, "it exceeded the time limit and was stopped")

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def _start_worker(self) -> None:
        self._workers.add(Worker(self.sandbox, self.seed, self._messages))

    def _set_idle(self, worker: Worker) -> None:
        worker.set_idle()
        self._idle.append(worker)

    def _handle(self, worker: Worker, kind: str, facts: dict[str, Any]) -> Iterator[Event]:
        job = worker.job
        if worker not in self._workers:
            return
        if kind == EXITED:
            yield from self._replace(worker, worker.exit_reason())
        elif kind == "error":
            yield from self._replace(worker, facts["reason"])
        elif kind == "ready":
            self._startup_failures = 0
            self._set_idle(worker)
        elif kind in {"waiting", "resumed"}:
            worker.set_waiting(kind == "waiting")
        elif job:
            if kind != "task":
                self._set_idle(worker)
            yield Event(kind, job, facts)

    def _replace(self, worker: Worker, reason: str) -> Iterator[Event]:
        worker.kill()
        self._workers.discard(worker)
        self._idle = [other for other in self._idle if other is not worker]
        if worker.job:
            yield Event("lost", worker.job, {"reason": reason})
            return
        self._startup_failures += 1
        if self._startup_failures > MAX_STARTUP_FAILURES:
            raise _no_worker(reason)


def _no_worker(reason: str) -> GradingError:
    return GradingError(
        "no worker can be started",
        expected="a Python process that loads the course",
        got=reason,
        todo="run `mlhood doctor`, and grade again; finished results are kept",
    )


def machine_lock_file() -> Path:
    """Return the file whose lock serialises time measurements of all processes of this user on this machine."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "mlhood" / f"timing-{platform.node()}.lock"
