"""A batch on a Dask cluster gives the marks of a batch on this machine, although a worker dies."""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import re
import sys
import threading
from pathlib import Path

import psutil
import pytest
from typer.main import get_command

from mlhood import cli
from mlhood.errors import GradingError
from mlhood.grading.batch import batch
from mlhood.grading.gradebook.gradebook import Gradebook
from tests.grading.fake_class import FAKE
from tests.waiting import wait_until

distributed = pytest.importorskip("distributed")
dask_worker = pytest.importorskip("distributed.cli.dask_worker")
cluster_executor = pytest.importorskip("mlhood.grading.batch.cluster_executor")


@pytest.fixture
def start(fake_class):
    """Start a cluster whose workers can import the fake grader, and log what they do."""
    clusters = []

    def started(**options):
        defaults = {
            "processes": True,
            "threads_per_worker": 1,
            "dashboard_address": "127.0.0.1:0",  # any free port: if the default one is taken, a socket is leaked
            "silence_logs": logging.CRITICAL,
            **({"preload": [FAKE]} if options.get("processes", True) else {}),
        }
        clusters.append(distributed.LocalCluster(**{**defaults, "resources": {"timed": 1}, **options}))
        return clusters[-1].scheduler_address

    yield started
    for cluster in clusters:
        cluster.close()


def ended(process):
    return wait_until(lambda: not psutil.pid_exists(process))


def marks(graded):
    return [
        (
            record.student,
            record.project.id,
            record.status,
            record.reason,
            [(task.id, task.earned, task.checks) for task in record.tasks],
        )
        for record in graded.records
    ]


def kill_when_one_is_graded(fake_class, held):
    """SIGKILL the Dask worker that is grading the submission `held` when another one has all its tasks."""

    def tasks_of_held():
        tasks = fake_class.events("task")
        own = [event for event in tasks if event["sha256"] == held]
        return own if len(tasks) > 3 else []

    psutil.Process(wait_until(tasks_of_held)[0]["process"]).parent().kill()
    go_on(fake_class).touch()


def go_on(fake_class):
    """Return the file that ends the wait of submissions with `hold-after`."""
    return Path(f"{fake_class.log}.go")


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")
def test_a_worker_is_killed_and_the_marks_are_the_same(fake_class, start, tmp_path):
    fake_class.submit(**{f"s{n}": f"P{n % 2 + 1} lose-P1.{n % 3 + 1}" for n in range(10)})
    fake_class.submit(carl="P1 refuse", eve="nonsense", dora="P1 break", held="P1 hold-after-P1.1")
    held = hashlib.sha256((fake_class.folder / "held.ipynb").read_bytes()).hexdigest()
    (tmp_path / "seed").write_text("one")
    go_on(fake_class).touch()
    local = fake_class.grade(seed_file=tmp_path / "seed")
    go_on(fake_class).unlink()
    fake_class.log.unlink()
    fake_class.out = tmp_path / "out of the cluster"
    killing = threading.Thread(target=kill_when_one_is_graded, args=(fake_class, held))
    killing.start()
    remote = fake_class.grade(seed_file=tmp_path / "seed", scheduler=start(n_workers=2))
    killing.join()
    assert marks(remote) == marks(local)
    assert [file.source for file in remote.unassigned] == ["eve.ipynb"]
    assert [event["sha256"] for event in fake_class.events("begin")].count(held) == 2
    assert all(ended(event["process"]) for event in fake_class.events("begin"))


def test_a_worker_grades_as_many_timed_submissions_at_once_as_it_declares(fake_class, start):
    fake_class.submit(**{f"s{n}": "P2 slow" for n in range(4)})
    fake_class.grade(scheduler=start(n_workers=1, threads_per_worker=3))
    order = [event["event"] for event in fake_class.events("begin", "task")]
    assert order == ["begin", "task", "task", "task"] * 4


def test_timed_tasks_exclude_each_other_even_if_two_workers_of_a_machine_declare_timed(fake_class, start):
    fake_class.submit(**dict.fromkeys("abcdef", "P2 timed"))
    fake_class.grade(scheduler=start(n_workers=2, threads_per_worker=2, resources={"timed": 2}))
    assert len({event["process"] for event in fake_class.events("begin")}) > 1
    order = [event["event"] for event in fake_class.events("timed-begin", "timed-end")]
    assert order == ["timed-begin", "timed-end"] * 6


def test_a_submission_that_hangs_or_dies_has_failed_and_the_others_have_not(fake_class, start, monkeypatch):
    fake_class.skip_hangs(monkeypatch)
    fake_class.submit(ada="P1", emil="P1 hang", fred="P1 die-after-P1.2")
    graded = fake_class.grade(scheduler=start(n_workers=1, processes=False), seconds=600.0)
    records = {record.student: record for record in graded.records}
    assert {student: record.status for student, record in records.items()} == {
        "ada": "done",
        "emil": "failed",
        "fred": "failed",
    }
    assert "time limit" in records["emil"].reason
    assert "killed by signal 9" in records["fred"].reason
    assert records["fred"].earned == 20
    assert len(fake_class.observer.losses) == 2 * batch.MAX_ATTEMPTS


def test_a_tasks_result_is_stored_while_its_submission_is_still_being_graded(fake_class, start, monkeypatch):
    fake_class.submit(ada="P1 hold-after-P1.1")
    put, stored = Gradebook.put_task, []

    def put_and_continue(self, key, result):
        put(self, key, result)
        assert wait_until(lambda: fake_class.events("task"))  # logged after the result has been sent
        stored.append((result.id, len(fake_class.events("task"))))
        go_on(fake_class).touch()

    monkeypatch.setattr(Gradebook, "put_task", put_and_continue)
    (record,) = fake_class.grade(scheduler=start(n_workers=1)).records
    assert stored[0] == ("P1.1", 1)
    assert (record.status, [task.id for task in record.tasks]) == ("done", ["P1.1", "P1.2", "P1.3"])
    assert fake_class.observer.losses == []


def test_a_result_of_a_job_that_is_not_pending_is_ignored():
    executor = cluster_executor.ClusterExecutor("tcp://x:1", False, 1, "name")
    assert list(executor._task_finished(json.dumps({"key": "gone", "result": {}}))) == []


def test_workers_without_the_resource_are_reported(fake_class, start):
    fake_class.submit(ada="P2")
    with pytest.raises(GradingError, match="cluster cannot grade") as caught:
        fake_class.grade(scheduler=start(n_workers=1, resources={}))
    assert "no worker has the resource" in str(caught.value)


def test_a_course_that_does_not_load_there_is_reported(fake_class, start):
    fake_class.submit(ada="P1")
    broken = fake_class.worker("broken", "main(lambda *settings: 1 / 0)")
    with pytest.raises(GradingError, match="no worker") as caught:
        fake_class.grade(broken, scheduler=start(n_workers=1, processes=False))
    assert "ZeroDivisionError" in str(caught.value)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_an_unreachable_scheduler_is_reported(fake_class, address, monkeypatch):
    monkeypatch.setattr("mlhood.grading.batch.cluster_executor.CONNECT_SECONDS", 1)
    fake_class.submit(ada="P1")
    with pytest.raises(GradingError, match="cluster cannot grade"):
        fake_class.grade(scheduler=address)


def test_without_dask_the_error_says_how_to_install_it(fake_class, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "mlhood.grading.batch.cluster_executor", raising=False)
    fake_class.submit(ada="P1")
    with pytest.raises(GradingError, match="not installed"):
        fake_class.grade(scheduler="tcp://x:1")


def snippets(language):
    text = (Path(cluster_executor.__file__).parents[1] / "INSTRUCTORS.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_commands_of_the_instructors_page_exist():
    lines = [line for block in snippets("sh") for line in block.splitlines()]
    (grade,) = [line for line in lines if "--scheduler" in line]
    (worker,) = [line.split() for line in lines if line.startswith("dask worker")]
    command = get_command(cli.app).commands["grade"]
    context = command.make_context("grade", grade.split()[2:], resilient_parsing=True)
    assert context.params["scheduler"] == "tcp://10.0.0.1:8786"
    assert worker[-2:] == ["--resources", f"{cluster_executor.TIMED}=1"]
    options = {name for param in dask_worker.main.params for name in param.opts}
    assert {word for word in worker if word.startswith("--")} <= options


def test_the_cluster_of_the_instructors_page_for_slurm_declares_timed(tmp_path):
    jobqueue = pytest.importorskip("dask_jobqueue")
    (call,) = [node for node in ast.walk(ast.parse(snippets("python")[0])) if is_call_of(node, "SLURMCluster")]
    options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    with jobqueue.SLURMCluster(**options, log_directory=tmp_path, scheduler_options={"dashboard": False}) as slurm:
        script = slurm.job_script()
    assert "--resources timed=1" in script
    assert "#SBATCH --exclusive" in script


def test_the_cluster_of_the_instructors_page_for_kubernetes_declares_timed():
    (call,) = [node for node in ast.walk(ast.parse(snippets("python")[1])) if is_call_of(node, "KubeCluster")]
    options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert options["worker_command"][-2:] == ["--resources", f"{cluster_executor.TIMED}=1"]
    assert options["resources"]["requests"] == options["resources"]["limits"]


def is_call_of(node, name):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
