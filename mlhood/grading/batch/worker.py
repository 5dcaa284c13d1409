"""The program of a worker process: grades one submission at a time, and reports each result as soon as it is known.

Requests and messages are lines of JSON on the standard streams. When the standard input ends, because the executor has
died, the process ends itself and all its descendants.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import psutil
from filelock import FileLock

from mlhood.errors import MlhoodError, NotebookError
from mlhood.grading.batch.result_keys import environment_digest
from mlhood.grading.intake.collect import SubmittedFile

Requests = queue.Queue[dict[str, Any]]
Exclusive = Callable[[], AbstractContextManager[object]]


def course_grader(sandbox: bool, seed: int, exclusive: Exclusive) -> Any:
    """Load the course, and return its `CourseGrader`; in sandboxes, the next one warms up while one is in use.

    Raises:
        GradingError: This machine has no sandbox.
    """
    from mlhood.grading.batch.course_grader import CourseGrader
    from mlhood.grading.sandbox.kernel import SandboxPool

    return CourseGrader(seed, exclusive, SandboxPool().kernel if sandbox else None)


def main(load: Callable[[bool, int, Exclusive], Any] = course_grader) -> None:
    """Serve requests until the input ends. The first line holds the settings, each further one a job."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as messages:
        os.dup2(2, 1)  # what a library prints must not be taken for a message
        requests: Requests = queue.Queue()
        threading.Thread(target=_read_requests, args=(sys.stdin, requests), daemon=True).start()
        _serve(requests, messages, load)


def _read_requests(lines: IO[str], requests: Requests) -> None:
    temporary = ""
    for line in lines:
        request = json.loads(line)
        temporary = request.get("temporary", temporary)
        requests.put(request)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    if temporary:
        shutil.rmtree(temporary, ignore_errors=True)  # the executor was killed, and cannot do it
    os._exit(0)


def _serve(requests: Requests, messages: IO[str], load: Callable[[bool, int, Exclusive], Any]) -> None:
    def send(kind: str, **facts: object) -> None:
        messages.write(json.dumps({"kind": kind, **facts}) + "\n")
        messages.flush()

    settings = requests.get()

    @contextlib.contextmanager
    def exclusive() -> Iterator[None]:
        send("waiting")
        Path(settings["lock"]).parent.mkdir(parents=True, exist_ok=True)
        with FileLock(settings["lock"], mode=0o600):
            send("resumed")
            yield

    try:
        grader = load(settings["sandbox"], settings["seed"], exclusive)
        projects = [project.as_dict() for project in grader.projects()]
    except Exception as error:  # whatever keeps the course from loading is reported
        send("error", reason=_describe(error))
        return
    send("ready", projects=projects, environment=environment_digest(str(settings["seed"])))
    while True:
        _run_job(requests.get(), grader, send)


def _run_job(request: dict[str, Any], grader: Any, send: Callable[..., None]) -> None:
    path = Path(request["path"])
    try:
        if request["kind"] == "identify":
            project, version = grader.identify(path)
            send("identified", project=project, version=version)
            return
        student, version = request["student"], request["version"]
        submission = SubmittedFile(student, path=path, sha256=request["sha256"], version=version)
        marks = grader.grade(submission, lambda result: send("task", result=asdict(result)))
    except NotebookError as error:
        send("refused", reason=_describe(error))
    except Exception as error:  # an error of ours or of the machine: the batch tries again, then reports it
        send("error", reason=_describe(error))
    else:
        send("done", seconds=marks.seconds)


def _describe(error: Exception) -> str:
    return error.one_line() if isinstance(error, MlhoodError) else f"{type(error).__name__}: {error}"[:500]


if __name__ == "__main__":
    main()
