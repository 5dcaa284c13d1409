"""Run jobs on a Dask cluster: one future for each submission. Needs `distributed`.

The scheduler gives the submission of a worker that dies to another one; the marks are those of a batch on one machine.
"""

from __future__ import annotations

import contextlib
import json
import queue
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future
from distributed.client import FutureCancelledError

from mlhood.errors import GradingError
from mlhood.grading.batch.cluster_worker import LOST, Request, WorkerPool, process
from mlhood.grading.batch.executor import (
    START_SECONDS,
    TICK_SECONDS,
    CourseDescription,
    Event,
    Job,
    Lost,
    Started,
    TaskFinished,
    no_worker,
    read_finished,
    read_task_result,
)

TIMED = "timed"
RETRIES = 2  # after an error of the machine, such as a full disk; the scheduler itself retries after a worker's death
JOBS_PER_THREAD = 2  # submitted ahead, so that no worker waits for its next job
CONNECT_SECONDS = 30
CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class PendingJob:
    """A job on the cluster."""

    job: Job
    future: Future


class ClusterExecutor:
    """Runs jobs on the cluster of a Dask scheduler; the cluster determines how many at once.

    A submission of a project that measures time takes one unit of the resource `timed` of its worker while it is
    processed: a worker processes as many of those at once as it declares (`--resources timed=1`).

    Args:
        address: Of the scheduler, such as `tcp://10.0.0.1:8786`.
        sandbox: Whether notebooks run in sandboxes.
        seed: Of the course.
        name: The same for every call for one gradebook: a call after a `kill -9` replaces what the last one left.
    """

    def __init__(self, address: str, sandbox: bool, seed: int, name: str) -> None:
        self.address = address
        self.sandbox = sandbox
        self.seed = seed
        self.name = name
        self._client: Client | None = None
        self._environment = ""
        self._waiting: deque[Job] = deque()
        self._pending: dict[str, PendingJob] = {}
        # futures that are done, and results of tasks of pending jobs as JSON
        self._completed: queue.Queue[Future | str] = queue.Queue()
        self._max_in_flight = 1
        self._had_timed = False
        self._last_check = self._last_usable = time.monotonic()

    @property
    def client(self) -> Client:
        """The connection to the scheduler."""
        if self._client is None:
            raise self._unusable("no connection")
        return self._client

    def start(self) -> CourseDescription:
        """Connect; all workers describe the course and their environment.

        Raises:
            GradingError: There is no scheduler or no worker, or the workers differ.
        """
        try:
            self._client = Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
            self.client.wait_for_workers(1, timeout=START_SECONDS)
        except (OSError, ValueError) as error:
            raise self._unusable(f"{type(error).__name__}: {error}") from None
        self.client.subscribe_topic(self.name, lambda event: self._completed.put(str(event[1])))
        self.client.register_plugin(WorkerPool(self.sandbox, self.seed), name=self.name)
        descriptions = self._describe()
        environments = {facts["environment"] for facts in descriptions.values()}
        if len(environments) > 1:
            raise self._unusable(f"workers with {len(environments)} different environments: {', '.join(descriptions)}")
        course = CourseDescription.from_facts(next(iter(descriptions.values())))
        self._environment = course.environment
        self._check()
        return course

    def _describe(self) -> dict[str, dict[str, Any]]:
        """Return the description that each worker gives, by address."""
        request = Request(self.name, "describe")
        futures = {
            address: self.client.submit(process, request, workers=[address], pure=False)
            for address in self._cluster_workers()
        }
        deadline = time.monotonic() + START_SECONDS
        while not all(future.done() for future in futures.values()) and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        finished = {address: future for address, future in futures.items() if future.status == "finished"}
        answers = {address: json.loads(str(future.result())) for address, future in finished.items()}
        ready = {address: facts for address, facts in answers.items() if facts["kind"] == "ready"}
        if not ready:
            reasons = [facts["reason"] for facts in answers.values()]
            reasons += [str(future.exception()) for future in futures.values() if future.status == "error"]
            raise no_worker("; ".join(dict.fromkeys(reasons)) or "none of the cluster's workers answers")
        return ready

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs."""
        self._waiting.extend(jobs)
        self._check(now=True)

    def poll(self) -> Iterator[Event]:
        """Submit queued jobs while the cluster takes more, and yield what has happened."""
        self._check()
        while self._waiting and len(self._pending) < self._max_in_flight:
            job = self._waiting.popleft()
            yield Started(job)
            self._submit(job)
        with contextlib.suppress(queue.Empty):
            item = self._completed.get(timeout=TICK_SECONDS)
            yield from self._task_finished(item) if isinstance(item, str) else self._finished(item)

    def close(self) -> None:
        """Cancel all jobs, and end the processes on the cluster."""
        if self._client is None:
            return
        with contextlib.suppress(Exception):  # of a cluster that is gone there is nothing to clean up
            self._client.cancel([pending.future for pending in self._pending.values()])
            self._client.unregister_worker_plugin(self.name)
        self._client.close()
        self._pending.clear()

    def _submit(self, job: Job) -> None:
        content = job.submission.path.read_bytes() if job.submission.path else b""
        file = job.submission
        about = (file.sha256, content, job.seconds, self._environment, file.student, file.version)
        request = Request(self.name, job.kind, *about)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a notebook may contain large pictures
            future = self.client.submit(
                process, request, pure=False, retries=RETRIES, resources={TIMED: 1} if job.timed else None
            )
        self._pending[str(future.key)] = PendingJob(job, future)
        future.add_done_callback(self._completed.put)

    def _task_finished(self, text: str) -> Iterator[Event]:
        """Handle a task's result. It may come late, twice or never: the answer of the job decides."""
        facts = json.loads(text)
        pending = self._pending.get(facts["key"])
        if pending is not None:
            yield TaskFinished(pending.job, read_task_result(facts["result"]))

    def _finished(self, future: Future) -> Iterator[Event]:
        pending = self._pending.pop(str(future.key), None)
        if pending is None:
            return
        answer: dict[str, Any]
        try:
            answer = json.loads(str(future.result()))
        except FutureCancelledError:
            self._check(now=True)  # a scheduler that has gone away cancels all
            answer = {"kind": LOST, "reason": "the cluster has cancelled it"}
        except Exception as error:  # whatever happened on a machine of the cluster, after all retries
            answer = {"kind": LOST, "reason": f"{type(error).__name__}: {error}"}
        for result in answer.get("tasks", []):
            yield TaskFinished(pending.job, read_task_result(result))
        yield (Lost(pending.job, answer["reason"]) if answer["kind"] == LOST else read_finished(pending.job, answer))

    # -- the cluster

    def _cluster_workers(self) -> dict[str, dict[str, Any]]:
        try:
            return dict(self.client.scheduler_info()["workers"])
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self._unusable(f"{type(error).__name__}: {error}") from None

    def _check(self, *, now: bool = False) -> None:
        """Verify from time to time that there are workers, with the resource `timed` if a job needs it."""
        if not now and self._max_in_flight > 1 and time.monotonic() < self._last_check + CHECK_SECONDS:
            return
        if self.client.status != "running":
            raise self._unusable("the connection to the scheduler is lost")
        self._last_check = time.monotonic()
        workers = self._cluster_workers()
        threads = sum(worker["nthreads"] for worker in workers.values())
        self._max_in_flight = max(JOBS_PER_THREAD * threads, 2)
        has_timed = any(worker.get("resources", {}).get(TIMED) for worker in workers.values())
        self._had_timed = self._had_timed or has_timed
        jobs = [*self._waiting, *(pending.job for pending in self._pending.values())]
        if workers and (has_timed or not any(job.timed for job in jobs)):
            self._last_usable = self._last_check
            return
        # a worker that died may be replaced; a resource that no worker ever had will not appear
        patience = START_SECONDS if not workers or self._had_timed else 0
        if self._last_check > self._last_usable + patience:
            raise self._unusable("no workers are left" if not workers else f"no worker has the resource `{TIMED}`")

    def _unusable(self, got: str) -> GradingError:
        return GradingError(
            "the cluster cannot grade",
            where=self.address,
            expected="a Dask scheduler with workers of one kind, some of them with the resource `timed`",
            got=got,
            todo="start workers: dask worker ADDRESS --nthreads 1 --resources timed=1; finished results are kept",
        )
