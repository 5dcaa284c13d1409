"""The same batch over a Dask cluster, of which a worker dies in the middle."""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import re
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.main import get_command

from mlhood import cli
from mlhood.errors import GradingError
from mlhood.grading.batch import batch, grade_class
from mlhood.grading.batch.batch import Options
from mlhood.grading.gradebook.gradebook import Gradebook

distributed = pytest.importorskip("distributed")
dask_worker = pytest.importorskip("distributed.cli.dask_worker")
cluster = pytest.importorskip("mlhood.grading.batch.cluster")


@pytest.fixture
def start(room):
    """Start a cluster whose workers find the fake marker of `room`, and log what they do."""
    clusters = []

    def started(**options):
        defaults = {
            "processes": True,
            "threads_per_worker": 1,
            "dashboard_address": "127.0.0.1:0",  # any free port: where its own is taken, a socket stays open
            "silence_logs": logging.CRITICAL,
        }
        clusters.append(distributed.LocalCluster(**{**defaults, "resources": {"timed": 1}, **options}))
        return clusters[-1].scheduler_address

    yield started
    for cluster in clusters:
        cluster.close()


def ended(process):
    limit = time.monotonic() + 20
    while psutil.pid_exists(process) and time.monotonic() < limit:
        time.sleep(0.02)
    return not psutil.pid_exists(process)


def marks(graded):
    return [
        (one.student, one.plan.id, one.status, one.reason, [(task.id, task.earned, task.checks) for task in one.tasks])
        for one in graded.records
    ]


def in_the_middle(room):
    """A submission that is in work and will be for a while."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        told = [one["sha256"] for one in room.events("task")]
        for one in reversed(room.events("begin")):
            if told.count(one["sha256"]) < 2 and one["sha256"] in room.slow:
                return one
        time.sleep(0.005)
    raise TimeoutError("nothing is in work")


def kill_when_first_graded(room, killed):
    """SIGKILL the Dask worker that is in the middle of a submission when another one has just been graded."""

    def graded(handed, state, reason):
        room.told.ended.append((handed.source, state))
        if killed:
            return
        one = in_the_middle(room)
        psutil.Process(one["process"]).parent().kill()
        killed.append(one)

    return graded


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")
def test_a_worker_is_killed_and_the_marks_are_the_same(room, start, tmp_path, monkeypatch):
    room.hand_in(**{f"s{n}": f"P{n % 2 + 1} slow lose-P1.{n % 3 + 1}" for n in range(10)})
    room.hand_in(carl="P1 refuse", eve="nonsense", dora="P1 break")
    room.slow = {hashlib.sha256(path.read_bytes()).hexdigest() for path in room.folder.glob("s*.ipynb")}
    (tmp_path / "seed").write_text("one")
    local = room.grade(seed_file=tmp_path / "seed")
    room.log.unlink()
    room.out = tmp_path / "out of the cluster"
    killed = []
    monkeypatch.setattr(type(room.told), "graded", lambda self, *told: kill_when_first_graded(room, killed)(*told))
    remote = room.grade(seed_file=tmp_path / "seed", scheduler=start(n_workers=2))
    assert marks(remote) == marks(local)
    assert [one.source for one in remote.strays] == ["eve.ipynb"]
    begun = [one["sha256"] for one in room.events("begin")]
    assert begun.count(killed[0]["sha256"]) == 2
    assert all(ended(one["process"]) for one in room.events("begin"))


def test_as_many_timed_submissions_at_once_as_the_worker_has_declared(room, start):
    room.hand_in(**{f"s{n}": "P2 slow" for n in range(4)})
    room.grade(scheduler=start(n_workers=1, threads_per_worker=3))
    order = [one["event"] for one in room.events("begin", "task")]
    assert order == ["begin", "task", "task", "task"] * 4


def test_two_workers_of_one_machine_that_both_declare_timed_measure_one_after_the_other(room, start):
    room.hand_in(**dict.fromkeys("abcdef", "P2 timed"))
    room.grade(scheduler=start(n_workers=2, threads_per_worker=2, resources={"timed": 2}))
    assert len({one["process"] for one in room.events("begin")}) > 1
    order = [one["event"] for one in room.events("timed-begin", "timed-end")]
    assert order == ["timed-begin", "timed-end"] * 6


def test_a_second_call_grades_only_what_is_new_and_nothing_is_left(room, start):
    address = start(n_workers=1)
    room.hand_in(ada="P1")
    room.grade(scheduler=address)
    assert room.grade(scheduler=address).whole
    assert room.told.begun == [(0, 1)]
    assert all(ended(one["process"]) for one in room.events("begin"))


def test_a_submission_that_hangs_or_dies_has_failed_and_the_others_have_not(room, start):
    room.hand_in(ada="P1", emil="P1 hang", fred="P1 die-after-P1.2")
    graded = room.grade(scheduler=start(n_workers=1, threads_per_worker=2), seconds=1.0)
    found = {one.student: one for one in graded.records}
    assert {who: one.status for who, one in found.items()} == {"ada": "done", "emil": "failed", "fred": "failed"}
    assert "time limit" in found["emil"].reason
    assert "killed by signal 9" in found["fred"].reason
    assert found["fred"].earned == 20
    assert len(room.told.losses) == 2 * batch.MAX_ATTEMPTS


def test_a_tasks_result_is_stored_while_its_submission_is_still_in_work(room, start, monkeypatch):
    room.hand_in(ada="P1 hold-after-P1.1")
    put, stored = Gradebook.put_task, []

    def put_and_let_go(self, key, position, result):
        put(self, key, position, result)
        stored.append((result.id, len(room.events("task"))))
        Path(f"{room.log}.go").touch()

    monkeypatch.setattr(Gradebook, "put_task", put_and_let_go)
    (found,) = room.grade(scheduler=start(n_workers=1)).records
    assert stored[0] == ("P1.1", 1)
    assert (found.status, [task.id for task in found.tasks]) == ("done", ["P1.1", "P1.2", "P1.3"])
    assert room.told.losses == []


def test_a_result_of_a_job_that_nobody_waits_for_is_not_stored(room):
    with Gradebook(room.folder.with_name("book.sqlite")) as book:
        batch = cluster.ClusterBatch(book, Options(1, 1), room.told, "tcp://x:1")
        batch._store(json.dumps({"key": "gone", "position": 0, "result": {}}))


def test_workers_without_the_resource_are_told_of(room, start):
    room.hand_in(ada="P2")
    with pytest.raises(GradingError, match="cluster cannot grade") as caught:
        room.grade(scheduler=start(n_workers=1, resources={}))
    assert "no worker has the resource" in str(caught.value)


def test_a_course_that_does_not_load_there_is_told_of(room, start):
    room.hand_in(ada="P1")
    with pytest.raises(GradingError, match="no worker") as caught:
        room.grade(scheduler=start(n_workers=1), marker="tests.grading.batch.fake_grader:broken")
    assert "the course cannot be loaded" in str(caught.value)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_a_scheduler_that_is_not_there_is_told_of(room, address, monkeypatch):
    monkeypatch.setattr("mlhood.grading.batch.cluster.CONNECT_SECONDS", 1)
    room.hand_in(ada="P1")
    with pytest.raises(GradingError, match="cluster cannot grade"):
        room.grade(scheduler=address)


def test_without_dask_the_way_to_it_is_told(room, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "mlhood.grading.batch.cluster", raising=False)
    monkeypatch.delitem(sys.modules, "mlhood.grading.batch.cluster_worker", raising=False)
    room.hand_in(ada="P1")
    with pytest.raises(GradingError, match="not installed"):
        grade_class.grade_class([room.folder], room.out, grade_class.Wishes(scheduler="tcp://x:1"), room.told)


def snippets(language):
    text = (Path(cluster.__file__).parents[1] / "INSTRUCTORS.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_commands_of_the_readme_are_ours_and_dasks():
    lines = [line for block in snippets("sh") for line in block.splitlines()]
    (grade,) = [line for line in lines if "--scheduler" in line]
    (worker,) = [line.split() for line in lines if line.startswith("dask worker")]
    known = get_command(cli.app).commands["grade"]
    found = known.make_context("grade", grade.split()[2:], resilient_parsing=True)
    assert found.params["scheduler"] == "tcp://10.0.0.1:8786"
    assert worker[-2:] == ["--resources", f"{cluster.TIMED}=1"]
    options = {name for one in dask_worker.main.params for name in one.opts}
    assert {word for word in worker if word.startswith("--")} <= options


def test_the_cluster_of_the_readme_for_slurm_declares_what_it_may_time(tmp_path):
    jobqueue = pytest.importorskip("dask_jobqueue")
    (call,) = [node for node in ast.walk(ast.parse(snippets("python")[0])) if is_call_of(node, "SLURMCluster")]
    options = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    with jobqueue.SLURMCluster(**options, log_directory=tmp_path, scheduler_options={"dashboard": False}) as slurm:
        script = slurm.job_script()
    assert "--resources timed=1" in script
    assert "#SBATCH --exclusive" in script


def test_the_cluster_of_the_readme_for_kubernetes_declares_what_it_may_time():
    (call,) = [node for node in ast.walk(ast.parse(snippets("python")[1])) if is_call_of(node, "KubeCluster")]
    options = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    assert options["worker_command"][-2:] == ["--resources", f"{cluster.TIMED}=1"]
    assert options["resources"]["requests"] == options["resources"]["limits"]


def is_call_of(node, name):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
