"""A worker process as seen by its executor: started, sent jobs, listened to, and killed with all its descendants."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from mlhood.files.locks import machine_lock_file
from mlhood.grading.batch.executor import Job

MAX_LINE = 16 << 20
MAX_STDERR = 2000
JOIN_SECONDS = 5.0
EXITED = "exited"
KINDS = {"ready", "task", "done", "identified", "refused", "error", "waiting", "resumed"}


@dataclass(frozen=True)
class WorkerMessage:
    """A message of a worker: its kind (`exited` if the process has ended) and all of it as plain data."""

    worker: Worker
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)


class Worker:
    """A worker process.

    Args:
        grader: `module:function` that makes its grader.
        seed: Inputs of the checks are drawn from it.
        messages: Receives all of its messages.
        seconds: Time limit for its start.

    Raises:
        OutputError: The lock for time measurements cannot be created (see `locks.machine_lock_file`).
    """

    def __init__(self, grader: str, seed: int, messages: queue.Queue[WorkerMessage], seconds: float) -> None:
        lock = machine_lock_file()  # determined here, as the worker has a folder for temporary files of its own
        self.job: Job | None = None
        self.tasks_finished = 0
        self._deadline: float | None = time.monotonic() + seconds
        self._remaining = 0.0
        self._temporary = tempfile.mkdtemp(prefix="mlhood-")
        self._stderr = (self.folder / "stderr").open("a+b")
        self._process = subprocess.Popen(
            # -P: a file in the working folder may be a student's, and must not be imported
            [sys.executable, "-P", "-m", "mlhood.grading.batch.worker"],
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
        self._send({"grader": grader, "seed": seed, "lock": str(lock), "temporary": self._temporary})

    @property
    def folder(self) -> Path:
        """Its temporary files: removed when it has ended, however it ended."""
        return Path(self._temporary)

    def run(self, job: Job) -> None:
        """Send it a job; the time limit begins."""
        self.job, self.tasks_finished = job, 0
        self._deadline = time.monotonic() + job.seconds
        self._send({"kind": job.kind, "path": str(job.submission.path), "sha256": job.submission.sha256})

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
            psutil.Process(self._process.pid).suspend()  # so that it starts nothing while its children are listed
        for process in [self._process, *descendants_of(self._process.pid)]:
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
        self._process.wait()
        for process in _orphans_of(self._temporary):
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
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

    def _read_messages(self, messages: queue.Queue[WorkerMessage]) -> None:
        stream = self._process.stdout
        with contextlib.suppress(ValueError, OSError):
            while stream and (line := stream.readline(MAX_LINE)):
                facts = json.loads(line)
                if facts["kind"] not in KINDS:
                    break
                messages.put(WorkerMessage(self, facts["kind"], facts))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(JOIN_SECONDS)  # so that its exit code is known
        messages.put(WorkerMessage(self, EXITED))


def descendants_of(process_id: int) -> list[psutil.Process]:
    """Return the children of a process, their children, and so on."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process_id).children(recursive=True)
    return []


def _orphans_of(temporary: str) -> list[psutil.Process]:
    """Return the processes that outlived their worker, recognised by its unique folder for temporary files."""
    orphans = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("TMPDIR") == temporary:
                orphans.append(process)
    return orphans
