"""A worker: a process that marks one submission at a time and says each result as soon as it has it.

It is told its work in lines of JSON and answers in lines of JSON. When nobody listens any more, it ends itself
and whatever it has started.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import psutil

from mlhood.errors import MlhoodError, NotebookError
from mlhood.files.locks import turn
from mlhood.grading.batch.grader import Marker, Settings
from mlhood.grading.batch.result_keys import environment_digest
from mlhood.grading.batch.worker_process import children_of
from mlhood.grading.intake.submitted_file import Handed


def main() -> None:
    """Serve until the input ends. The first line holds the settings, each further one a job."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as answers:
        os.dup2(2, 1)  # what a library prints shall not pass for an answer
        orders: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=_listen, args=(sys.stdin, orders), daemon=True).start()
        _serve(orders, answers)


def _listen(lines: IO[str], orders: queue.Queue[dict[str, Any]]) -> None:
    temporary = ""
    for line in lines:
        order = json.loads(line)
        temporary = order.get("temporary", temporary)
        orders.put(order)
    for child in children_of(os.getpid()):
        with contextlib.suppress(psutil.Error):
            child.kill()
    if temporary:
        shutil.rmtree(temporary, ignore_errors=True)  # the batch, which would have done it, was killed
    os._exit(0)


def _serve(orders: queue.Queue[dict[str, Any]], answers: IO[str]) -> None:
    def say(kind: str, **facts: object) -> None:
        answers.write(json.dumps({"say": kind, **facts}) + "\n")
        answers.flush()

    first = orders.get()
    try:
        marker = _marker(first, say)
        plans = [plan.as_dict() for plan in marker.plans()]
    except Exception as error:  # whatever keeps the course from loading ends here, in words
        say("broken", reason=_words(error))
        return
    say("ready", plans=plans, environment=environment_digest(str(first["seed"])))
    while True:
        _work(orders.get(), marker, say)


def _marker(first: dict[str, Any], say: Callable[..., None]) -> Marker:
    @contextlib.contextmanager
    def alone() -> Iterator[None]:
        say("waits")
        with turn(Path(first["turns"])):
            say("measures")
            yield

    module, _, name = str(first["marker"]).partition(":")
    return getattr(importlib.import_module(module), name)(Settings(int(first["seed"]), alone))


def _work(order: dict[str, Any], marker: Marker, say: Callable[..., None]) -> None:
    handed = Handed(**{**order["handed"], "path": Path(order["handed"]["path"])})
    try:
        if order["do"] == "look":
            say("looked", project=marker.project(handed.path or Path()))
            return
        marks = marker.grade(handed, lambda result: say("task", result=asdict(result)))
    except NotebookError as error:
        say("refused", reason=_words(error))
    except Exception as error:  # ours, or the machine's: the batch tries again, then says so
        say("broken", reason=_words(error))
    else:
        say("done", seconds=marks.seconds)


def _words(error: Exception) -> str:
    return error.one_line() if isinstance(error, MlhoodError) else f"{type(error).__name__}: {error}"[:500]


if __name__ == "__main__":
    main()
