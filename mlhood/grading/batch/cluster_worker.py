"""What runs on the workers of a Dask cluster: jobs of a batch, run by a `LocalExecutor` beside the Dask worker.

So crashes, timeouts and refusals are handled as on a single machine. The processes end when the Dask worker does,
however that ends.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from distributed import WorkerPlugin, get_worker

from mlhood.errors import GradingError
from mlhood.grading.batch.executor import CourseDescription, Finished, Job, Lost, TaskFinished
from mlhood.grading.batch.local_executor import LocalExecutor
from mlhood.grading.intake.collect import SubmittedFile

LOST = "lost"
Facts = dict[str, Any]
ReportTask = Callable[[Facts], None]


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
