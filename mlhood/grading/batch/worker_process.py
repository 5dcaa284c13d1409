"""The workers of a batch, seen from the batch: started, told, heard, and ended with all that they have started."""

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

from mlhood.files.locks import machine_file
from mlhood.grading.intake.submitted_file import Handed

MAX_LINE = 16 << 20
LAST_WORDS = 2000
JOIN_SECONDS = 5.0
GONE = "gone"
ANSWERS = {"ready", "task", "done", "looked", "refused", "broken", "waits", "measures"}


@dataclass(frozen=True)
class Job:
    """A submission to look into (`look`) or to mark (`grade`), under the key of its result."""

    do: str
    key: str
    handed: Handed

    @property
    def name(self) -> str:
        """The name under which attempts at it are counted."""
        return f"{self.do}:{self.handed.sha256}" if self.do == "look" else self.key


@dataclass(frozen=True)
class Heard:
    """Something that a worker has said; `gone` if it has ended."""

    worker: Worker
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)


class Worker:
    """A worker process.

    Args:
        marker: `module:function` that makes its marker.
        seed: Inputs of the checks are drawn from it.
        heard: Where everything that it says is put.
        seconds: Time limit for its start.

    Raises:
        OutputError: There can be no turns to measure on this machine (see `turns.machine_file`).
    """

    def __init__(self, marker: str, seed: int, heard: queue.Queue[Heard], seconds: float) -> None:
        turns = machine_file()  # out here, where the folder of temporary files is everybody's
        self.job: Job | None = None
        self.attempt = 0
        self.position = 0
        self.limit: float | None = time.monotonic() + seconds
        self._left = 0.0
        self._temporary = tempfile.mkdtemp(prefix="mlhood-")
        self._errors = (Path(self._temporary) / "stderr").open("a+b")
        self._process = subprocess.Popen(
            # -P: a file of the folder in which we were called may be a student's, and shall not pass for a module
            [sys.executable, "-P", "-m", "mlhood.grading.batch.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "TMPDIR": self._temporary, "TEMP": self._temporary, "TMP": self._temporary},
            start_new_session=True,  # Ctrl-C is for the batch, which then ends its workers itself
        )
        self._listener = threading.Thread(target=self._listen, args=(heard,), daemon=True)
        self._listener.start()
        self._tell({"marker": marker, "seed": seed, "turns": str(turns), "temporary": self._temporary})

    @property
    def folder(self) -> Path:
        """Its temporary files: gone when it has ended, however it ended."""
        return Path(self._temporary)

    def give(self, job: Job, attempt: int, seconds: float) -> None:
        """Let it do a job, within a time limit."""
        self.job, self.attempt, self.position = job, attempt, 0
        self.limit = time.monotonic() + seconds
        handed = {"student": "", "path": str(job.handed.path), "sha256": job.handed.sha256}
        self._tell({"do": job.do, "handed": handed})

    def rest(self) -> None:
        """Note that it has nothing to do."""
        self.job, self.limit = None, None

    def wait_for_turn(self, waiting: bool) -> None:
        """Stop the clock of its time limit while it waits for its turn to measure, and go on with it after."""
        now = time.monotonic()
        if waiting and self.limit is not None:
            self._left, self.limit = self.limit - now, None
        elif not waiting and self.limit is None and self.job:
            self.limit = now + self._left

    def late(self) -> bool:
        """Whether its time limit has passed."""
        return self.limit is not None and time.monotonic() > self.limit

    def end(self) -> None:
        """Kill it and all that it has started, and remove what they left in the folder of temporary files."""
        with contextlib.suppress(psutil.Error):
            psutil.Process(self._process.pid).suspend()  # so that it starts nothing between the next two lines
        for process in [self._process, *children_of(self._process.pid)]:
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
        self._process.wait()
        for process in orphans_of(self._temporary):
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
        self._listener.join(JOIN_SECONDS)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError, ValueError):
                if stream:
                    stream.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def last_words(self) -> str:
        """How it ended, with the last line of what it said to nobody."""
        code = self._process.poll()
        self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - LAST_WORDS, 0))
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = f"was killed by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        return f"the worker {how}" + (f": {said[:300]}" if said else "")

    def _tell(self, order: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, ValueError):  # one that is gone is heard of by `_listen`
            if self._process.stdin:
                self._process.stdin.write(json.dumps(order) + "\n")
                self._process.stdin.flush()

    def _listen(self, heard: queue.Queue[Heard]) -> None:
        stream = self._process.stdout
        with contextlib.suppress(ValueError, OSError):
            while stream and (line := stream.readline(MAX_LINE)):
                facts = json.loads(line)
                if facts["say"] not in ANSWERS:
                    break
                heard.put(Heard(self, facts.pop("say"), facts))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(JOIN_SECONDS)  # so that its exit code can be told
        heard.put(Heard(self, GONE))


def children_of(process_id: int) -> list[psutil.Process]:
    """All that a process has started, and what that has started, as far as the system still knows."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process_id).children(recursive=True)
    return []


def orphans_of(temporary: str) -> list[psutil.Process]:
    """What a worker has started that has outlived it: known by the folder of temporary files, as nobody else has it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("TMPDIR") == temporary:
                found.append(process)
    return found
