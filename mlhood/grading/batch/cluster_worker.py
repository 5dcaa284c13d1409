"""What runs on the workers of a Dask cluster: jobs of a batch, each processed by a worker process of ours.

That process is the same that a batch starts on its own machine, so crashes, timeouts and refusals are reported in the
same way. It ends when the Dask worker does, however that ends.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from distributed import WorkerPlugin, get_worker

from mlhood.grading.batch.executor import TICK_SECONDS, TIMED_OUT, Job
from mlhood.grading.batch.worker_process import EXITED, Worker, WorkerMessage
from mlhood.grading.intake.submitted_file import SubmittedFile

LOST = "lost"
Facts = dict[str, Any]
ReportTask = Callable[[int, Facts], None]


@dataclass(frozen=True)
class Request:
    """A job for a cluster, with everything that it needs there.

    Args:
        pool: Name of the plugin that processes it.
        kind: `identify` or `grade`; `describe` asks for the description of the course and of the environment.
        sha256: Hash of the content.
        content: The notebook.
        seconds: Time limit.
        environment: Of the worker, as the batch expects it.
    """

    pool: str
    kind: Literal["identify", "grade", "describe"]
    sha256: str = ""
    content: bytes = b""
    seconds: float = 60.0
    environment: str = ""


def process(request: Request) -> str:
    """Process a request on the Dask worker that calls this; return the answer as JSON.

    Plain text on purpose: the batch parses what comes back, and never unpickles objects that a cluster chose. Each
    task's result is also published at once, under the pool's name as topic; the answer repeats them all.
    """
    worker = get_worker()
    pool, key = worker.plugins.get(request.pool), worker.get_current_task()
    if not isinstance(pool, WorkerPool):
        raise RuntimeError("the batch has ended")

    def report_task(position: int, result: Facts) -> None:
        worker.log_event(request.pool, json.dumps({"key": str(key), "position": position, "result": result}))

    return json.dumps(pool.process(request, report_task))


@dataclass
class _PooledWorker:
    worker: Worker
    messages: queue.Queue[WorkerMessage]
    description: Facts = field(default_factory=dict)


class WorkerPool(WorkerPlugin):
    """Worker processes beside a Dask worker: as many as it has jobs at once, reused, and killed with it.

    Args:
        grader: `module:function` that makes their graders.
        seed: Inputs of the checks are drawn from it.
        seconds: Time limit for the start of a process.
    """

    def __init__(self, grader: str, seed: int, seconds: float) -> None:
        self.grader, self.seed, self.seconds = grader, seed, seconds

    def setup(self, worker: object) -> None:
        """Start no process yet: the first job does."""
        self._lock = threading.Lock()
        self._workers: list[_PooledWorker] = []
        self._idle: list[_PooledWorker] = []
        self._closed = False

    def teardown(self, worker: object) -> None:
        """Kill all processes, and with them the jobs that are running."""
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, []
        for pooled in workers:
            pooled.worker.kill()

    def process(self, request: Request, report_task: ReportTask) -> Facts:
        """Process a request; return the last message with the results of all tasks, or why the job is lost."""
        pooled = self._acquire()
        answer: Facts = {}
        try:
            answer = _answer(pooled, request, report_task)
        finally:
            self._release(pooled, healthy=answer.get("kind", LOST) != LOST)
        return answer

    def _acquire(self) -> _PooledWorker:
        with self._lock:
            if self._closed:
                raise RuntimeError("the batch has ended")
            if self._idle:
                return self._idle.pop()
            messages: queue.Queue[WorkerMessage] = queue.Queue()
            # The scheduler counts the resource `timed`. Where it was declared twice for one machine, the exclusive
            # lock of the processes still keeps timed tasks from running at the same time.
            pooled = _PooledWorker(Worker(self.grader, self.seed, messages, self.seconds), messages)
            self._workers.append(pooled)
            return pooled

    def _release(self, pooled: _PooledWorker, *, healthy: bool) -> None:
        with self._lock:
            if healthy:
                self._idle.append(pooled)
                return
            self._workers = [other for other in self._workers if other is not pooled]
        pooled.worker.kill()


def _answer(pooled: _PooledWorker, request: Request, report_task: ReportTask) -> Facts:
    worker = pooled.worker
    if not pooled.description:
        started = _follow(pooled, report_task)
        if started["kind"] != "ready":
            return started
        pooled.description = started
        worker.set_idle()
    if request.kind == "describe":
        return pooled.description
    if pooled.description["environment"] != request.environment:
        return _lost("a machine of the cluster has other versions of Python or of libraries than the others")
    path = worker.folder / f"{request.sha256}.ipynb"
    path.write_bytes(request.content)
    worker.run(Job(request.kind, SubmittedFile("", path=path, sha256=request.sha256), request.seconds))
    answer = _follow(pooled, report_task)
    worker.set_idle()
    path.unlink(missing_ok=True)
    return answer


def _follow(pooled: _PooledWorker, report_task: ReportTask) -> Facts:
    """Receive messages until a job has ended, and report each task's result."""
    tasks: list[Facts] = []
    while True:
        try:
            message = pooled.messages.get(timeout=TICK_SECONDS)
        except queue.Empty:
            if pooled.worker.timed_out():
                return _lost(TIMED_OUT, tasks)
            continue
        if message.kind == EXITED:
            return _lost(pooled.worker.exit_reason(), tasks)
        if message.kind == "error":
            return _lost(message.facts["reason"], tasks)
        if message.kind in {"waiting", "resumed"}:
            pooled.worker.set_waiting(message.kind == "waiting")
            continue
        if message.kind != "task":
            return {**message.facts, "tasks": tasks}
        report_task(len(tasks), message.facts["result"])
        tasks.append(message.facts["result"])


def _lost(reason: str, tasks: Sequence[Facts] = ()) -> Facts:
    return {"kind": LOST, "reason": reason, "tasks": tasks}
