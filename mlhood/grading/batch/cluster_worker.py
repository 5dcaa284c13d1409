"""What runs on a worker of a Dask cluster: jobs of a batch, each done by a process of ours beside it.

The process is the same that a batch starts on its own machine, so a job ends in the same words on both: when it
crashes, takes too long, or is at fault. It ends when the Dask worker does, however that ends.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed import WorkerPlugin, get_worker

from mlhood.grading.batch.worker_process import GONE, Heard, Job, Worker
from mlhood.grading.intake.submitted_file import Handed

Tell = Callable[[int, dict[str, Any]], None]

LOST = "lost"
TICK_SECONDS = 0.25
LATE = "it took longer than the time limit and was stopped"


@dataclass(frozen=True)
class Order:
    """A job for a cluster, with all that it needs there.

    Args:
        crew: Name of the plugin that does it.
        do: `look` or `grade`; `describe` asks for what a worker says of the course and of itself.
        sha256: Hash of the content.
        content: The notebook.
        seconds: Time limit.
        environment: What the batch expects to be the worker's.
    """

    crew: str
    do: str
    sha256: str = ""
    content: bytes = b""
    seconds: float = 60.0
    environment: str = ""


def carry_out(order: Order) -> str:
    """Do a job on the Dask worker that calls this; its answer as JSON.

    Plain text on purpose: what comes back to the batch is read, never unpickled into objects of a cluster's choice.
    Each task's result is told at once, too, under the crew's name as topic; the answer holds them all again.
    """
    worker = get_worker()
    crew, key = worker.plugins.get(order.crew), worker.get_current_task()
    if not isinstance(crew, Crew):
        raise RuntimeError("the batch has ended")

    def tell(position: int, result: dict[str, Any]) -> None:
        worker.log_event(order.crew, json.dumps({"key": str(key), "position": position, "result": result}))

    return json.dumps(crew.carry_out(order, tell))


@dataclass
class _Member:
    worker: Worker
    heard: queue.Queue[Heard]
    ready: dict[str, Any] = field(default_factory=dict)


class Crew(WorkerPlugin):
    """Our processes beside a Dask worker: as many as it has jobs at once, kept for the next job, ended with it.

    Args:
        marker: `module:function` that makes their markers.
        seed: Inputs of the checks are drawn from it.
        seconds: Time limit for the start of a process.
    """

    def __init__(self, marker: str, seed: int, seconds: float) -> None:
        self.marker, self.seed, self.seconds = marker, seed, seconds

    def setup(self, worker: object) -> None:
        """Begin without a process: the first job starts one."""
        self._lock = threading.Lock()
        self._members: list[_Member] = []
        self._resting: list[_Member] = []
        self._over = False

    def teardown(self, worker: object) -> None:
        """End all processes; a job that is in work ends with its own."""
        with self._lock:
            self._over = True
            members, self._members = self._members, []
        for member in members:
            member.worker.end()

    def carry_out(self, order: Order, tell: Tell) -> dict[str, Any]:
        """Do a job: what the process has said last, with the results of all tasks; or that it is lost, and why."""
        member = self._member()
        answer: dict[str, Any] = {}
        try:
            answer = self._answer(member, order, tell)
        finally:
            if answer.get("say", LOST) == LOST:
                self._dismiss(member)
            else:
                self._rest(member)
        return answer

    def _answer(self, member: _Member, order: Order, tell: Tell) -> dict[str, Any]:
        if not member.ready:
            started = _follow(member, tell)
            if started["say"] != "ready":
                return started
            member.ready = started
            member.worker.rest()
        if order.do == "describe":
            return member.ready
        if member.ready["environment"] != order.environment:
            return _lost("a machine of the cluster has other versions of Python or of libraries than the others")
        path = member.worker.folder / f"{order.sha256}.ipynb"
        path.write_bytes(order.content)
        member.worker.give(Job(order.do, "", Handed("", path=path, sha256=order.sha256)), 0, order.seconds)
        answer = _follow(member, tell)
        member.worker.rest()
        path.unlink(missing_ok=True)
        return answer

    def _member(self) -> _Member:
        with self._lock:
            if self._over:
                raise RuntimeError("the batch has ended")
            if self._resting:
                return self._resting.pop()
            heard: queue.Queue[Heard] = queue.Queue()
            # the scheduler counts the resource `timed`; where it was declared twice for a machine, its turn still holds
            member = _Member(Worker(self.marker, self.seed, heard, self.seconds), heard)
            self._members.append(member)
            return member

    def _rest(self, member: _Member) -> None:
        with self._lock:
            self._resting.append(member)

    def _dismiss(self, member: _Member) -> None:
        with self._lock:
            self._members = [one for one in self._members if one is not member]
        member.worker.end()


def _follow(member: _Member, tell: Tell) -> dict[str, Any]:
    """Listen until a job has ended, and tell each task's result."""
    tasks: list[dict[str, Any]] = []
    while True:
        try:
            heard = member.heard.get(timeout=TICK_SECONDS)
        except queue.Empty:
            if member.worker.late():
                return _lost(LATE, tasks)
            continue
        if heard.kind == GONE:
            return _lost(member.worker.last_words(), tasks)
        if heard.kind == "broken":
            return _lost(heard.facts["reason"], tasks)
        if heard.kind in {"waits", "measures"}:
            member.worker.wait_for_turn(heard.kind == "waits")
            continue
        if heard.kind != "task":
            return {"say": heard.kind, "tasks": tasks, **heard.facts}
        tell(len(tasks), heard.facts["result"])
        tasks.append(heard.facts["result"])


def _lost(reason: str, tasks: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"say": LOST, "reason": reason, "tasks": tasks}
