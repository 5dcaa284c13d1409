"""What a batch stores for the events of an executor, without any worker."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict

import pytest

from mlhood.grading.batch.batch import Batch
from mlhood.grading.batch.executor import Event
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.records import records
from mlhood.grading.intake.collect import SubmittedFile
from tests.grading.batch.fake_grader import PROJECTS, result
from tests.grading.fake_class import RecordingObserver

ADA = SubmittedFile("ada", source="ada.ipynb", sha256="a" * 64)


class ScriptedExecutor:
    """Identifies every notebook as P1, and yields scripted events for the attempts at grading it."""

    def __init__(self, *attempts) -> None:
        self.attempts = list(attempts)
        self.waiting = []
        self.closed = False

    def start(self):
        return {"projects": [project.as_dict() for project in PROJECTS], "environment": "environment"}

    def submit(self, jobs):
        self.waiting.extend(jobs)

    def poll(self):
        job = self.waiting.pop(0)
        yield Event("started", job)
        if job.kind == "identify":
            yield Event("identified", job, {"project": "P1"})
            return
        for event in self.attempts.pop(0):
            if event is KeyboardInterrupt:
                raise KeyboardInterrupt
            yield event(job)

    def close(self):
        self.closed = True


def task(number: int, *requests: str):
    spec = PROJECTS[0].tasks[number - 1]
    return lambda job: Event("task", job, {"result": asdict(result(spec, requests))})


def lost(reason: str):
    return lambda job: Event("lost", job, {"reason": reason})


def done(job):
    return Event("done", job, {"seconds": 2.0})


def run(path, *attempts):
    executor, observer = ScriptedExecutor(*attempts), RecordingObserver()
    with Gradebook(path) as book:
        book.add_submissions([ADA])
        try:
            Batch(book, executor, observer).run([ADA])
        finally:
            assert executor.closed
            (record,) = records(book)
    return record, observer


def outcomes(path) -> list[str]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT outcome FROM attempts WHERE job NOT LIKE 'look:%' ORDER BY id").fetchall()
    connection.close()
    return [outcome for (outcome,) in rows]


def test_a_lost_job_is_tried_again_and_its_results_replaced(tmp_path):
    record, observer = run(tmp_path / "g", [task(1, "lose-P1.1"), lost("no memory")], [task(1), task(2), task(3), done])
    assert (record.status, record.earned, record.seconds) == ("done", 30, 2.0)
    assert observer.losses == ["no memory"]
    assert observer.ended == [("ada.ipynb", "done")]
    assert outcomes(tmp_path / "g") == ["died", "done"]


def test_a_job_that_is_lost_repeatedly_has_failed(tmp_path):
    record, observer = run(tmp_path / "g", [lost("first")], [task(1), lost("second")])
    assert (record.status, record.reason, record.earned) == ("failed", "second", 10)
    assert observer.ended == [("ada.ipynb", "failed")]
    assert outcomes(tmp_path / "g") == ["died", "died"]


def test_an_interrupted_attempt_does_not_count_and_is_repeated(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "g", [task(1), KeyboardInterrupt])
    assert outcomes(tmp_path / "g") == ["stopped"]
    record, observer = run(tmp_path / "g", [lost("first")], [task(1), task(2), task(3), done])
    assert (record.status, observer.begun) == ("done", [(1, 0)])
    assert outcomes(tmp_path / "g") == ["stopped", "died", "done"]


NOISY = [task(1, "open-P1.1"), task(2, "open-P1.2"), task(3), done]
QUIET = [task(1), task(2, "open-P1.2"), task(3, "lose-P1.3"), done]


def statuses(record) -> list[str]:
    return [each.checks[1].status for each in record.tasks]


def test_a_second_grading_decides_only_what_is_undecided(tmp_path):
    for attempts in ([NOISY, QUIET], []):  # a second call has nothing to do
        record, observer = run(tmp_path / "g", *attempts)
        assert (record.status, statuses(record)) == ("done", ["passed", "undecided", "passed"])
        assert outcomes(tmp_path / "g") == ["done", "done"]
        assert sum("measuring again" in stage for stage in observer.stages) == bool(attempts)


@pytest.mark.parametrize("moment", range(len(QUIET)))
def test_an_interrupted_second_grading_is_repeated(tmp_path, moment):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "g", NOISY, [*QUIET[:moment], KeyboardInterrupt])
    record, observer = run(tmp_path / "g", QUIET)
    assert (observer.begun, statuses(record)) == ([(0, 1)], ["passed", "undecided", "passed"])
    assert outcomes(tmp_path / "g") == ["done", "stopped", "done"]


def refused(job):
    return Event("refused", job, {"reason": "damaged"})


@pytest.mark.parametrize("attempts", [[[refused]], [[lost("first")], [lost("second")]]], ids=["refused", "lost"])
def test_a_second_grading_that_fails_takes_nothing_and_is_not_repeated(tmp_path, attempts):
    for again in (attempts, []):
        record, _ = run(tmp_path / "g", *([NOISY, *again] if again else []))
        assert (record.status, record.reason) == ("done", "")
        assert statuses(record) == ["undecided", "undecided", "passed"]
