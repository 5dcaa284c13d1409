"""Grade a class on a Dask cluster: one future a submission, and every result into the gradebook by this process alone.

Needs `distributed`. A worker that dies gives its submission to another; the marks are those of a batch on one machine.
"""

from __future__ import annotations

import contextlib
import json
import queue
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future
from distributed.client import FutureCancelledError

from mlhood.errors import GradingError
from mlhood.grading.batch.batch import LOOK_SECONDS, START_SECONDS, TICK_SECONDS, Batch, Options, Watch, read_result
from mlhood.grading.batch.cluster_worker import LOST, Crew, Order, carry_out
from mlhood.grading.batch.result_keys import digest_of
from mlhood.grading.batch.worker_process import Job
from mlhood.grading.gradebook.gradebook import Gradebook

TIMED = "timed"
RETRIES = 2  # after an error of the machine, such as a full disk; a worker that dies is the scheduler's business
AHEAD = 2  # submissions a thread that the scheduler has, so that no worker waits for the next
CONNECT_SECONDS = 30
CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class Flight:
    """A job on the cluster."""

    job: Job
    attempt: int
    future: Future


class ClusterBatch(Batch):
    """Grades what was handed in on the cluster of a Dask scheduler. Call `run` once.

    A submission of a project that measures time takes one of the resource `timed` of its worker, for as long as it is
    in work: so many of those are graded there at once as the worker has declared (`--resources timed=1`).

    Args:
        gradebook: Where results go.
        options: How to grade; the cluster says how many side by side.
        watch: Is told how it goes.
        address: Of the scheduler, such as `tcp://10.0.0.1:8786`.
    """

    def __init__(self, gradebook: Gradebook, options: Options, watch: Watch, address: str) -> None:
        super().__init__(gradebook, options, watch)
        self.address = address
        # of the gradebook, so that a call after a `kill -9` replaces the processes that the last has left there
        self.crew = f"mlhood-{digest_of([str(gradebook.path.resolve())])[:16]}"
        self._client: Client | None = None
        # a job that has ended, or the result of a task of one that is in work
        self._landed: queue.Queue[Future | str] = queue.Queue()
        self._flights: dict[str, Flight] = {}
        self._seen = self._checked = time.monotonic()
        self._room = 1

    @property
    def client(self) -> Client:
        """The connection to the scheduler."""
        if self._client is None:
            raise self._no_cluster("no connection")
        return self._client

    def _start_first(self) -> None:
        """Connect, and learn from all workers what the course asks for."""
        try:
            self._client = Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
            self.client.wait_for_workers(1, timeout=START_SECONDS)
        except (OSError, ValueError) as error:
            raise self._no_cluster(f"{type(error).__name__}: {error}") from None
        self.client.subscribe_topic(self.crew, lambda event: self._landed.put(str(event[1])))
        self.client.register_plugin(Crew(self.options.marker, self.options.seed, START_SECONDS), name=self.crew)
        told = self._describe()
        environments = {facts["environment"] for facts in told.values()}
        if len(environments) > 1:
            raise self._no_cluster(f"workers with {len(environments)} different environments: {', '.join(told)}")
        self._meet(next(iter(told.values())))
        self._check()

    def _describe(self) -> dict[str, dict[str, Any]]:
        """What each worker says of the course and of itself, by their addresses."""
        order = Order(self.crew, "describe")
        futures = {
            address: self.client.submit(carry_out, order, workers=[address], pure=False)
            for address in self._workers_there()
        }
        limit = time.monotonic() + START_SECONDS
        while not all(future.done() for future in futures.values()) and time.monotonic() < limit:
            time.sleep(TICK_SECONDS)
        done = {address: future for address, future in futures.items() if future.status == "finished"}
        told = {address: json.loads(str(future.result())) for address, future in done.items()}
        ready = {address: facts for address, facts in told.items() if facts["say"] == "ready"}
        if not ready:
            reasons = [facts["reason"] for facts in told.values()]
            reasons += [str(future.exception()) for future in futures.values() if future.status == "error"]
            raise self._no_worker("; ".join(dict.fromkeys(reasons)) or "none of the cluster's workers answers")
        return ready

    def _do(self, jobs: Iterable[Job]) -> None:
        """Do these jobs, as many at once as the cluster takes."""
        self._jobs.extend(jobs)
        self._check(now=True)
        while self._jobs or self._flights:
            self._check()
            while self._jobs and len(self._flights) < self._room:
                self._submit(self._jobs.popleft())
            with contextlib.suppress(queue.Empty):
                landed = self._landed.get(timeout=TICK_SECONDS)
                self._store(landed) if isinstance(landed, str) else self._land(landed)

    def _submit(self, job: Job) -> None:
        limit = LOOK_SECONDS if job.do == "look" else self.options.seconds
        content = job.handed.path.read_bytes() if job.handed.path else b""
        order = Order(self.crew, job.do, job.handed.sha256, content, limit, self.environment)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # a notebook may have large pictures
            future = self.client.submit(
                carry_out, order, pure=False, retries=RETRIES, resources={TIMED: 1} if self._timed(job) else None
            )
        self._flights[str(future.key)] = Flight(job, self.gradebook.begin_attempt(job.name), future)
        future.add_done_callback(self._landed.put)

    def _timed(self, job: Job) -> bool:
        if job.do == "look":
            return False
        project = self.gradebook.project(job.handed.sha256, self.course)
        return bool(project and self.plans[project[0]].timed)

    def _store(self, told: str) -> None:
        """Store a task's result. It may come late, twice or never: what counts is what the job comes to."""
        plain = json.loads(told)
        flight = self._flights.get(plain["key"])
        if flight is not None:
            self.gradebook.put_task(flight.job.key, plain["position"], read_result(plain["result"]))

    def _land(self, future: Future) -> None:
        """Take over what a job has come to."""
        flight = self._flights.pop(str(future.key), None)
        if flight is None:
            return
        job = flight.job
        answer: dict[str, Any]
        try:
            answer = json.loads(str(future.result()))
        except FutureCancelledError:
            self._check(now=True)  # a scheduler that has gone cancels all
            answer = {"say": LOST, "reason": "the cluster has cancelled it"}
        except Exception as error:  # whatever a machine of the cluster has met, retries included
            answer = {"say": LOST, "reason": f"{type(error).__name__}: {error}"}
        for position, plain in enumerate(answer.get("tasks", [])):
            self.gradebook.put_task(job.key, position, read_result(plain))
        if answer["say"] == LOST:
            self._lose_attempt(job, flight.attempt, answer["reason"])
            return
        self._finish(job, answer["say"], answer)
        self.gradebook.end_attempt(flight.attempt, "done")

    # -- the cluster

    def _workers_there(self) -> dict[str, dict[str, Any]]:
        try:
            return dict(self.client.scheduler_info()["workers"])
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self._no_cluster(f"{type(error).__name__}: {error}") from None

    def _check(self, *, now: bool = False) -> None:
        """See from time to time that there are workers, for timed projects, too."""
        if not now and self._room > 1 and time.monotonic() < self._checked + CHECK_SECONDS:
            return
        if self.client.status != "running":
            raise self._no_cluster("the connection to the scheduler is lost")
        self._checked = time.monotonic()
        workers = self._workers_there()
        threads = sum(worker["nthreads"] for worker in workers.values())
        self._room = max(AHEAD * threads, 2)
        measuring = any(worker.get("resources", {}).get(TIMED) for worker in workers.values())
        wanted = any(self._timed(job) for job in [*self._jobs, *(flight.job for flight in self._flights.values())])
        if workers and (measuring or not wanted):
            self._seen = self._checked
        elif self._checked > self._seen + (START_SECONDS if not workers or self._flights else 0):
            raise self._no_cluster("no workers any more" if not workers else f"no worker has the resource `{TIMED}`")

    def _no_cluster(self, got: str) -> GradingError:
        return GradingError(
            "the cluster cannot grade",
            where=self.address,
            expected="a Dask scheduler with workers of one kind, some of them with the resource `timed`",
            got=got,
            todo="start workers: dask worker ADDRESS --nthreads 1 --resources timed=1; what was finished is kept",
        )

    def _end(self) -> None:
        for flight in self._flights.values():
            self.gradebook.end_attempt(flight.attempt, "stopped")
        if self._client is None:
            return
        with contextlib.suppress(Exception):  # of a cluster that has gone there is nothing to tidy
            self._client.cancel([flight.future for flight in self._flights.values()])
            self._client.unregister_worker_plugin(self.crew)
        self._client.close()
        self._flights.clear()
