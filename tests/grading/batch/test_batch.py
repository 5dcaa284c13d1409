from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from mlhood.errors import GradingError, OutputError
from mlhood.grading.batch import batch
from mlhood.grading.gradebook.gradebook import Gradebook
from tests.grading.fake_class import FAKE
from tests.waiting import PATIENCE, wait_until

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")


def by_student(graded):
    return {record.student: record for record in graded.records}


def test_a_class_is_graded(fake_class):
    fake_class.submit(ada="P1", bob="P1 lose-P1.2", eve="P2")
    graded = fake_class.grade(jobs=2)
    assert {
        student: (record.project.id, record.earned, record.possible) for student, record in by_student(graded).items()
    } == {
        "ada": ("P1", 30, 30),
        "bob": ("P1", 24, 30),
        "eve": ("P2", 30, 30),
    }
    assert graded.complete
    assert fake_class.observer.begun == [(3, 0)]


def test_a_second_call_grades_only_what_is_new(fake_class):
    fake_class.submit(ada="P1", bob="P1")
    fake_class.grade()
    fake_class.submit(bob="P1 lose-P1.1", eve="P1")
    graded = fake_class.grade()
    assert fake_class.observer.begun == [(2, 1)]
    assert len(fake_class.events("begin")) == 4
    assert {student: record.earned for student, record in by_student(graded).items()} == {
        "ada": 30,
        "bob": 24,
        "eve": 30,
    }


@pytest.mark.parametrize("change", ["seed", "checks"])
def test_another_environment_or_other_checks_are_new(fake_class, change, tmp_path):
    fake_class.submit(ada="P1")
    (tmp_path / "seed").write_text("one")
    fake_class.grade(seed_file=tmp_path / "seed")
    worker = FAKE
    if change == "seed":
        (tmp_path / "seed").write_text("two")
    else:
        worker = fake_class.worker("other", "PROJECTS[:] = [project('P1', '2'), project('P2')]\nmain(FakeGrader)")
    fake_class.grade(worker, seed_file=tmp_path / "seed")
    assert fake_class.observer.begun == [(1, 0)]


def test_a_submission_that_is_refused_now_keeps_its_earlier_marks(fake_class):
    texts = {"ada": "P1 lose-P1.2", "bob": "P1 lose-P1.2", "eve": "P1 refuse"}
    for student, text in texts.items():  # ada and bob hand in the same file
        (fake_class.folder / f"{student}.ipynb").write_text(text)
    fake_class.grade()
    with Gradebook(fake_class.gradebook) as book:
        own = {entry.submission.student: entry.key for entry in book.entries() if entry.submission.student != "eve"}
    stricter = fake_class.worker(
        "stricter",
        "PROJECTS[:] = [project('P1', '2'), project('P2')]\n"
        "class Grader(FakeGrader):\n"
        "    def grade(self, submission, on_result):\n"
        "        raise NotebookError('the notebook was made from another version of the course')\n"
        "main(Grader)",
    )
    for new in (3, 0):  # refusals are stored, too, so the third call grades nothing
        graded = fake_class.grade(stricter)
        assert fake_class.observer.begun == [(new, 3 - new)]
        records = by_student(graded)
        assert {name: (record.status, record.earned) for name, record in records.items()} == {
            "ada": ("done", 24),
            "bob": ("done", 24),
            "eve": ("refused", 0),
        }
        assert not graded.complete
        with Gradebook(fake_class.gradebook) as book:
            assert own == {entry.submission.student: entry.key for entry in book.entries() if entry.key in own.values()}
        kept = [line for line in graded.text().splitlines() if "those of an earlier grading" in line]
        assert [line.split(":")[0] for line in kept] == ["ada P1 (ada.ipynb)", "bob P1 (bob.ipynb)"]
        assert all(line.endswith("another version of the course") for line in kept)


def test_unknown_times_are_said_where_something_is_due(fake_class, tmp_path):
    fake_class.submit(ada="P1", bob="P1", eve="P2")
    (tmp_path / "late.toml").write_text("penalty_per_day = 10\n[P1]\ndue = 2026-10-12T23:59:00\n")
    lines = fake_class.grade(late_file=tmp_path / "late.toml").text().splitlines()
    unknown = "P1: 2 submissions: the time of submission is unknown, so it counts as in time"
    (line,) = (line for line in lines if "time of submission" in line)
    assert line == f"{unknown}; enter times in [P1.submitted] of the late policy"


def test_what_canvas_marks_as_late_is_late(tmp_path, fake_class):
    (tmp_path / "late.toml").write_text("penalty_per_day = 10\n[P1]\ndue = 2026-10-12T23:59:00\n")
    for name in ("loveada_11_501_P1.ipynb", "rossbob_LATE_12_502_P1.ipynb"):
        (fake_class.folder / name).write_text("P1")
    graded = fake_class.grade(late_file=tmp_path / "late.toml")
    assert {student: (record.late.days, record.score) for student, record in by_student(graded).items()} == {
        "11": (0, 30),
        "12": (1, 27),
    }


def test_the_seed_of_a_gradebook_stays_its_own(fake_class):
    fake_class.submit(ada="P1")
    fake_class.grade()
    fake_class.grade()
    assert fake_class.observer.begun == [(0, 1)]


def test_the_same_file_of_two_students_is_graded_for_each(fake_class):
    """On other inputs; handed in again by the same student, it is not graded again."""
    for name in ("ada", "bob"):
        (fake_class.folder / f"{name}.ipynb").write_text("P1")
    graded = fake_class.grade(jobs=2)
    assert {event["student"] for event in fake_class.events("begin")} == {"ada", "bob"}
    assert [record.earned for record in graded.records] == [30, 30]
    fake_class.submit(ada="P1 lose-P1.2")
    fake_class.grade()
    (fake_class.folder / "ada.ipynb").write_text("P1")
    assert [record.earned for record in fake_class.grade().records] == [30, 30]
    assert [event["student"] for event in fake_class.events("begin")][2:] == ["ada"]


def test_a_problem_with_one_submission_does_not_affect_the_others(fake_class, monkeypatch):
    fake_class.skip_hangs(monkeypatch)
    fake_class.submit(
        ada="P1", bob="nonsense", carl="P1 refuse", dora="P1 break", emil="P1 hang", fred="P1 die-after-P1.2"
    )
    fake_class.submit(gina="P1 die-identifying", hans="P1 die-once")
    graded = fake_class.grade(jobs=1, seconds=600.0)
    records = by_student(graded)
    assert {student: record.status for student, record in records.items()} == {
        "ada": "done",
        "carl": "refused",
        "dora": "failed",
        "emil": "failed",
        "fred": "failed",
        "hans": "done",
    }
    assert records["carl"].reason == "the notebook's structure is damaged; what to do: open it in Jupyter"
    assert "no memory" in records["dora"].reason
    assert "time limit" in records["emil"].reason
    assert "killed by signal 9" in records["fred"].reason
    assert records["fred"].earned == 20
    assert [check.what for check in records["fred"].tasks[2].checks] == [records["fred"].reason] * 2
    assert {file.source: file.problem.split(":")[0] for file in graded.unassigned} == {
        "bob.ipynb": "the file is not JSON, so it is not a notebook; got",
        "gina.ipynb": "it could not be read",
    }
    assert len(fake_class.observer.losses) == 1 + batch.MAX_ATTEMPTS * 4
    assert not graded.complete


@pytest.mark.parametrize("fault", ["break", "die-after-P1.2"])
def test_what_failed_is_tried_again_only_on_request(fake_class, fault):
    fake_class.submit(dora=f"P1 {fault}", carl="P1 refuse", ada="P1")
    statuses = {student: record.status for student, record in by_student(fake_class.grade()).items()}
    assert statuses == {"ada": "done", "carl": "refused", "dora": "failed"}
    fake_class.grade()
    assert fake_class.observer.losses == []
    fake_class.grade(again=True)
    assert len(fake_class.observer.losses) == batch.MAX_ATTEMPTS


def test_a_notebook_of_another_project_is_refused(fake_class):
    fake_class.submit(ada_P2="P1", bob_P1="P1")
    graded = fake_class.grade()
    assert by_student(graded)["ada"].reason == "it was submitted for P2, but its cells are those of P1"
    assert by_student(graded)["bob"].earned == 30


def test_timed_tasks_run_one_at_a_time(fake_class):
    fake_class.submit(**dict.fromkeys("abcdef", "P1 timed"))
    fake_class.grade(jobs=3)
    order = [event["event"] for event in fake_class.events("timed-begin", "timed-end")]
    assert order == ["timed-begin", "timed-end"] * 6


def test_timed_tasks_of_two_calls_exclude_each_other(fake_class):
    fake_class.submit(**dict.fromkeys("abcdef", "P1 timed"))
    calls = [start(fake_class, fake_class.out.with_name(name)) for name in ("one", "other")]
    assert [call.wait(PATIENCE) for call in calls] == [0, 0]
    events = fake_class.events("timed-begin", "timed-end")
    assert [event["event"] for event in events] == ["timed-begin", "timed-end"] * 12
    assert len({event["process"] for event in events}) > 1


@pytest.mark.parametrize(
    ("source", "reason"), [("main(lambda *settings: 1 / 0)", "ZeroDivisionError"), ("os._exit(9)", "exit code 9")]
)
def test_workers_that_cannot_start_are_reported(fake_class, source, reason):
    fake_class.submit(ada="P1")
    with pytest.raises(GradingError, match="no worker") as caught:
        fake_class.grade(fake_class.worker("broken", source))
    assert reason in str(caught.value)


def test_a_concurrent_call_is_refused(fake_class):
    fake_class.submit(ada="P1")
    fake_class.grade()
    with FileLock(fake_class.out / ".lock"), pytest.raises(OutputError, match="another call"):
        fake_class.grade()


def test_a_worker_does_not_import_a_students_file(fake_class, monkeypatch):
    fake_class.submit(ada="P1")
    (fake_class.folder / "numpy.py").write_text("raise SystemExit('taken over')")
    (fake_class.folder / "tests.py").write_text("raise SystemExit('taken over')")
    monkeypatch.chdir(fake_class.folder)
    assert fake_class.grade().complete


@POSIX
def test_no_process_and_no_folder_is_left(fake_class, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    fake_class.submit(ada="P1", emil="P1 hang", fred="P1 child")
    before = psutil.Process().children(recursive=True)
    fake_class.skip_hangs(monkeypatch)
    fake_class.grade(jobs=1, seconds=600.0)
    assert list((tmp_path / "tmp").iterdir()) == []
    children = [event["child"] for event in fake_class.events("child")]
    assert len(children) == batch.MAX_ATTEMPTS
    assert wait_until(lambda: not any(map(alive, children)))
    left = [process.pid for process in psutil.Process().children(recursive=True) if process not in before]
    assert wait_until(lambda: not any(map(alive, left)))


RUN = """
import sys
from pathlib import Path
from mlhood.grading.batch import executor
from mlhood.grading.batch.grade_class import GradeOptions, grade_class
from tests.grading.fake_class import FAKE, RecordingObserver
executor.WORKER = FAKE
grade_class([Path(sys.argv[1])], Path(sys.argv[2]), GradeOptions(jobs=2, sandbox=False), RecordingObserver())
"""


def start(fake_class, out: Path | None = None) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", RUN, str(fake_class.folder), str(out or fake_class.out)])


@POSIX
def test_nothing_is_lost_or_duplicated_when_it_is_killed_repeatedly(fake_class):
    names = [f"s{n}" for n in range(20)]
    fake_class.submit(**dict.fromkeys(names, "P1 slow paced lose-P1.3"))
    rng = random.Random(7)
    kills = 0
    for _ in range(4):
        # Two workers and three tasks each: after seven tasks a worker is in its second notebook, so one is finished.
        enough = len(fake_class.events("task")) + rng.randint(7, 9)
        fake_class.pace(enough + 3)  # however late it is killed, it has not finished
        process = start(fake_class)
        while process.poll() is None and len(fake_class.events("task")) < enough:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.05))
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills == 4
    wait_for_workers_to_end(fake_class)
    finished = finished_keys(fake_class)
    begun = len(fake_class.events("begin"))
    assert finished
    fake_class.pace(1000)
    graded = fake_class.grade(jobs=2)
    assert fake_class.observer.begun == [(len(names) - len(finished), len(finished))]
    assert len(fake_class.events("begin")) == begun + len(names) - len(finished)
    assert {record.student: record.earned for record in graded.records} == dict.fromkeys(names, 24)
    assert result_rows(fake_class) == [(len(names) * 3, len(names) * 6)]


def finished_keys(fake_class) -> set[str]:
    connection = sqlite3.connect(fake_class.gradebook)
    try:
        return {key for (key,) in connection.execute("SELECT key FROM gradings WHERE state = 'done'")}
    finally:
        connection.close()


def result_rows(fake_class) -> list[tuple[int, int]]:
    connection = sqlite3.connect(fake_class.gradebook)
    try:
        return connection.execute(
            "SELECT count(*), sum(json_array_length(result, '$.checks')) FROM task_results"
        ).fetchall()
    finally:
        connection.close()


def wait_for_workers_to_end(fake_class):
    workers = {event["process"] for event in fake_class.events("begin")}
    assert wait_until(lambda: not any(map(alive, workers)))


def alive(process: int) -> bool:
    try:
        return psutil.Process(process).status() != "zombie"
    except psutil.NoSuchProcess:
        return False


@POSIX
def test_ctrl_c_keeps_what_was_finished(fake_class):
    fake_class.submit(**{f"s{n}": "P1 paced" for n in range(12)})
    fake_class.pace(18)
    process = start(fake_class)
    while len(fake_class.events("task")) < 9:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) != 0
    wait_for_workers_to_end(fake_class)
    kept = len(finished_keys(fake_class))
    assert kept
    fake_class.pace(1000)
    fake_class.grade(jobs=2)
    assert fake_class.observer.begun == [(12 - kept, kept)]


def test_the_batch_itself_does_not_load_the_course(fake_class):
    fake_class.submit(ada="P1")
    heavy = "print([m for m in ('torch', 'jax', 'onnx', 'numba', 'nbformat', 'pandas') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{RUN}\n{heavy}", str(fake_class.folder), str(fake_class.out)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
    assert fake_class.gradebook.exists()


def statuses(graded) -> dict[str, list[str]]:
    return {
        record.student: [check.status for task in record.tasks for check in task.checks] for record in graded.records
    }


ALL, SECOND_OPEN = ["passed"] * 6, ["passed"] * 3 + ["undecided"] + ["passed"] * 2


def test_what_is_undecided_is_graded_again_once_and_alone(fake_class):
    """A result that was decided stays, whatever the second grading finds."""
    fake_class.submit(ada="P1", bob="P1 noisy-P1.2 again-lose-P1.1", eve="P1 open-P1.2", fay="P1 lose-P1.2")
    graded = fake_class.grade(jobs=3)
    assert statuses(graded) == {
        "ada": ALL,
        "bob": ALL,
        "eve": SECOND_OPEN,
        "fay": ["passed"] * 3 + ["failed"] + ["passed"] * 2,
    }
    assert [task.id for record in graded.records for task in record.undecided] == ["P1.2"]
    order = fake_class.events("begin", "end")
    assert [event["event"] for event in order[8:]] == ["begin", "end"] * 2
    assert {event["student"] for event in order[8:] if event["event"] == "begin"} == {"bob", "eve"}
    assert sum("measuring again" in stage for stage in fake_class.observer.stages) == 2
    fake_class.grade(jobs=3)
    assert len(fake_class.events("begin")) == 6
