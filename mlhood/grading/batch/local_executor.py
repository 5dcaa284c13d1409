"""Run jobs in worker processes on this machine."""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from collections.abc import Iterable, Iterator

from mlhood.grading.batch.executor import (
    START_SECONDS,
    TICK_SECONDS,
    TIMED_OUT,
    Course,
    Event,
    Job,
    Lost,
    Started,
    TaskFinished,
    no_worker,
    read_finished,
    read_task_result,
)
from mlhood.grading.batch.worker_process import EXITED, Worker, WorkerMessage

MAX_STARTUP_FAILURES = 3  # in a row


class LocalExecutor:
    """Runs jobs in worker processes, which are started as needed.

    Args:
        grader: `module:function` that makes a worker's grader (see `grader.Grader`).
        seed: Inputs of the checks are drawn from it.
        max_workers: Jobs to run at once.
    """

    def __init__(self, grader: str, seed: int, max_workers: int) -> None:
        self.grader = grader
        self.seed = seed
        self.max_workers = max_workers
        self._messages: queue.Queue[WorkerMessage] = queue.Queue()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._waiting: deque[Job] = deque()
        self._startup_failures = 0

    def start(self) -> Course:
        """Start one worker; it describes the course."""
        self._start_worker()
        try:
            message = self._messages.get(timeout=START_SECONDS)
        except queue.Empty:
            raise no_worker("it does not answer") from None
        if message.kind != "ready":
            raise no_worker(message.facts.get("reason") or message.worker.exit_reason())
        self._set_idle(message.worker)
        return Course.from_facts(message.facts)

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs."""
        self._waiting.extend(jobs)

    def poll(self) -> Iterator[Event]:
        """Give queued jobs to idle workers, start more workers if needed, and yield what has happened."""
        while self._waiting and self._idle:
            worker, job = self._idle.pop(), self._waiting.popleft()
            yield Started(job)
            worker.run(job)
        starting = sum(worker.job is None for worker in self._workers)
        for _ in range(min(self.max_workers - len(self._workers), len(self._waiting) - starting)):
            self._start_worker()
        with contextlib.suppress(queue.Empty):
            yield from self._handle(self._messages.get(timeout=TICK_SECONDS))
        for worker in [worker for worker in self._workers if worker.timed_out()]:
            yield from self._replace(worker, TIMED_OUT)

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def _start_worker(self) -> None:
        self._workers.add(Worker(self.grader, self.seed, self._messages, START_SECONDS))

    def _set_idle(self, worker: Worker) -> None:
        worker.set_idle()
        self._idle.append(worker)

    def _handle(self, message: WorkerMessage) -> Iterator[Event]:
        worker, job, facts = message.worker, message.worker.job, message.facts
        if worker not in self._workers:
            return
        if message.kind == EXITED:
            yield from self._replace(worker, worker.exit_reason())
        elif message.kind == "error":
            yield from self._replace(worker, facts["reason"])
        elif message.kind == "ready":
            self._startup_failures = 0
            self._set_idle(worker)
        elif message.kind in {"waiting", "resumed"}:
            worker.set_waiting(message.kind == "waiting")
        elif job and message.kind == "task":
            worker.tasks_finished += 1
            yield TaskFinished(job, worker.tasks_finished - 1, read_task_result(facts["result"]))
        elif job:
            self._set_idle(worker)
            yield read_finished(job, facts)

    def _replace(self, worker: Worker, reason: str) -> Iterator[Event]:
        worker.kill()
        self._workers.discard(worker)
        self._idle = [other for other in self._idle if other is not worker]
        if worker.job:
            yield Lost(worker.job, reason)
            return
        self._startup_failures += 1
        if self._startup_failures > MAX_STARTUP_FAILURES:
            raise no_worker(reason)
