"""Run jobs on a Dask cluster: one future for each submission. Needs `distributed`.

On the workers, a `LocalExecutor` beside the Dask worker runs the jobs, so crashes, timeouts and refusals are handled as
on a single machine; its processes end when the Dask worker does, however that ends. The scheduler gives the submission
of a worker that dies to another one; the marks are those of a batch on one machine.
"""

from __future__ import annotations

import contextlib
import json
import queue
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from distributed import Client, Future, WorkerPlugin, get_worker
from distributed.client import FutureCancelledError

from mlhood.errors import GradingError
from mlhood.grading.batch.executor import (
    START_SECONDS,
    TICK_SECONDS,
    CourseDescription,
    Event,
    Finished,
    Job,
    Lost,
    Started,
    TaskFinished,
    no_worker,
    read_finished,
    read_task_result,
)
from mlhood.grading.batch.local_executor import LocalExecutor
from mlhood.grading.intake.collect import SubmittedFile

LOST = "lost"
Facts = dict[str, Any]
ReportTask = Callable[[Facts], None]
TIMED = "timed"
RETRIES = 2  # after an error of the machine, such as a full disk; the scheduler itself retries after a worker's death
JOBS_PER_THREAD = 2  # submitted ahead, so that no worker waits for its next job
CONNECT_SECONDS = 30
CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class Request:
    """A job for a cluster, with everything that it needs there.

    Args:
        pool: Name of the plugin that processes it.
        kind: That of the job; `describe` asks for the description of the course and of the environment.
        content: The notebook; `sha256` is its hash.
        environment: Of the worker, as the batch expects it.
        student: Whose notebook it is.
        version: Name of the variant that it is graded as.
    """

    pool: str
    kind: Literal["identify", "grade", "regrade", "describe"]
    sha256: str = ""
    content: bytes = b""
    seconds: float = 60.0
    environment: str = ""
    student: str = ""
    version: str = ""


def process(request: Request) -> str:
    """Process a request on the Dask worker that calls this; return the answer as JSON.

    Plain text on purpose: the batch parses what comes back, and never unpickles objects that a cluster chose. Each
    task's result is also published at once, under the pool's name as topic; the answer repeats them all.
    """
    worker = get_worker()
    pool, key = worker.plugins.get(request.pool), worker.get_current_task()
    if not isinstance(pool, WorkerPool):
        raise RuntimeError("the batch has ended")

    def report_task(result: Facts) -> None:
        worker.log_event(request.pool, json.dumps({"key": str(key), "result": result}))

    return json.dumps(pool.process(request, report_task))


class WorkerPool(WorkerPlugin):
    """Executors of one worker process each, beside a Dask worker: as many as it has jobs at once, reused."""

    def __init__(self, sandbox: bool, seed: int) -> None:
        self.sandbox, self.seed = sandbox, seed

    def setup(self, worker: Any) -> None:
        """Start no process yet: the first job does."""
        self._folder = worker.local_directory  # Dask removes it, also after a crash
        self._lock = threading.Lock()
        self._executors: list[LocalExecutor] = []
        self._idle: list[tuple[LocalExecutor, CourseDescription]] = []
        self._closed = False

    def teardown(self, worker: object) -> None:
        """Kill all processes, and with them the jobs that are running."""
        with self._lock:
            self._closed = True
            for executor in self._executors:
                executor.close()

    def process(self, request: Request, report_task: ReportTask) -> Facts:
        """Process a request; return the last message with the results of all tasks, or why the job is lost."""
        try:
            executor, course = self._acquire()
            try:
                return self._answer(executor, course, request, report_task)
            finally:
                self._idle.append((executor, course))
        except GradingError as error:  # no process starts
            return {"kind": LOST, "reason": error.parts.get("got", error.what)}

    def _acquire(self) -> tuple[LocalExecutor, CourseDescription]:
        with self._lock:
            if self._closed:
                raise RuntimeError("the batch has ended")
            if self._idle:
                return self._idle.pop()
            # The scheduler counts the resource `timed`. Where it was declared twice for one machine, the exclusive
            # lock of the processes still keeps timed tasks from running at the same time.
            executor = LocalExecutor(self.sandbox, self.seed, max_workers=1)
            self._executors.append(executor)
        return executor, executor.start()

    def _answer(
        self, executor: LocalExecutor, course: CourseDescription, request: Request, report_task: ReportTask
    ) -> Facts:
        if request.kind == "describe":
            projects = [project.as_dict() for project in course.projects]
            return {"kind": "ready", "projects": projects, "environment": course.environment}
        if course.environment != request.environment:
            reason = "a machine of the cluster has other versions of Python or of libraries than the others"
            return {"kind": LOST, "reason": reason}
        tasks: list[Facts] = []
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as folder:
            path = Path(folder, f"{request.sha256}.ipynb")
            path.write_bytes(request.content)
            file = SubmittedFile(request.student, path=path, sha256=request.sha256, version=request.version)
            executor.submit([Job(request.kind, file, request.seconds)])
            while not self._closed:
                for event in executor.poll():
                    match event:
                        case TaskFinished(_, result):
                            tasks.append(asdict(result))
                            report_task(tasks[-1])
                        case Finished(_, outcome, project, reason, seconds, version):
                            facts = {"project": project, "version": version, "reason": reason, "seconds": seconds}
                            return {"kind": outcome, "tasks": tasks, **facts}
                        case Lost(_, reason):
                            return {"kind": LOST, "tasks": tasks, "reason": reason}
        raise RuntimeError("the batch has ended")


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
