from __future__ import annotations

import os
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

from mlhood.errors import GradingError, OutputError
from mlhood.files.locks import claim
from mlhood.grading.batch import batch

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")


def by_student(graded):
    return {one.student: one for one in graded.records}


def test_a_class_is_graded(room):
    room.hand_in(ada="P1", bob="P1 lose-P1.2", eve="P2")
    graded = room.grade(jobs=2)
    assert {who: (one.plan.id, one.earned, one.possible) for who, one in by_student(graded).items()} == {
        "ada": ("P1", 30, 30),
        "bob": ("P1", 24, 30),
        "eve": ("P2", 30, 30),
    }
    assert graded.whole
    assert room.told.begun == [(3, 0)]


def test_a_second_call_grades_only_what_is_new(room):
    room.hand_in(ada="P1", bob="P1")
    room.grade()
    room.hand_in(bob="P1 lose-P1.1", eve="P1")
    graded = room.grade()
    assert room.told.begun == [(2, 1)]
    assert len(room.events("begin")) == 4
    assert {who: one.earned for who, one in by_student(graded).items()} == {"ada": 30, "bob": 24, "eve": 30}


@pytest.mark.parametrize("change", ["seed", "checks"])
def test_another_environment_or_other_checks_are_new(room, change, tmp_path, monkeypatch):
    room.hand_in(ada="P1")
    (tmp_path / "seed").write_text("one")
    room.grade(seed_file=tmp_path / "seed")
    if change == "seed":
        (tmp_path / "seed").write_text("two")
    else:
        (tmp_path / "other.py").write_text(
            "from tests.grading.batch import fake_grader as fake\n"
            "fake.PLANS[:] = [fake.plan('P1', '2'), fake.plan('P2')]\n"
            "make = fake.make\n"
        )
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    room.grade(
        seed_file=tmp_path / "seed",
        marker="other:make" if change == "checks" else "tests.grading.batch.fake_grader:make",
    )
    assert room.told.begun == [(1, 0)]


def test_the_seed_of_a_gradebook_stays_its_own(room):
    room.hand_in(ada="P1")
    room.grade()
    room.grade()
    assert room.told.begun == [(0, 1)]


def test_the_same_file_of_two_students_is_graded_once(room):
    for name in ("ada", "bob"):
        (room.folder / f"{name}.ipynb").write_text("P1")
    graded = room.grade(jobs=2)
    assert len(room.events("begin")) == 1
    assert [one.earned for one in graded.records] == [30, 30]


def test_what_is_wrong_with_one_submission_stops_no_other(room):
    room.hand_in(ada="P1", bob="nonsense", carl="P1 refuse", dora="P1 break", emil="P1 hang", fred="P1 die-after-P1.2")
    room.hand_in(gina="P1 die-looking", hans="P1 die-once")
    graded = room.grade(jobs=3, seconds=2.0)
    found = by_student(graded)
    assert {who: one.status for who, one in found.items()} == {
        "ada": "done", "carl": "refused", "dora": "failed", "emil": "failed", "fred": "failed", "hans": "done",
    }  # fmt: skip
    assert found["carl"].reason == "the notebook's structure is damaged; what to do: open it in Jupyter"
    assert "no memory" in found["dora"].reason
    assert "time limit" in found["emil"].reason
    assert "killed by signal 9" in found["fred"].reason
    assert found["fred"].earned == 20
    assert [check.what for check in found["fred"].tasks[2].checks] == [found["fred"].reason] * 2
    assert {one.source: one.problem.split(":")[0] for one in graded.strays} == {
        "bob.ipynb": "the file is not JSON, so it is not a notebook; got",
        "gina.ipynb": "it could not be read",
    }
    assert len(room.told.losses) == 1 + batch.MAX_ATTEMPTS * 4
    assert not graded.whole


def test_what_failed_is_tried_again_only_on_request(room):
    room.hand_in(dora="P1 break", carl="P1 refuse")
    room.grade()
    room.grade()
    assert room.told.losses == []
    room.grade(again=True)
    assert len(room.told.losses) == batch.MAX_ATTEMPTS


def test_a_notebook_of_another_project_is_refused(room):
    room.hand_in(ada_P2="P1", bob_P1="P1")
    graded = room.grade()
    assert by_student(graded)["ada"].reason == "it was handed in for P2, but its cells are those of P1"
    assert by_student(graded)["bob"].earned == 30


def test_timed_tasks_run_one_at_a_time(room):
    room.hand_in(**dict.fromkeys("abcdef", "P1 timed"))
    room.grade(jobs=3)
    order = [one["event"] for one in room.events("timed-begin", "timed-end")]
    assert order == ["timed-begin", "timed-end"] * 6


def test_two_calls_with_two_gradebooks_take_turns_too(room):
    room.hand_in(**dict.fromkeys("abcdef", "P1 timed"))
    calls = [start(room, room.out.with_name(name)) for name in ("one", "other")]
    assert [call.wait(60) for call in calls] == [0, 0]
    events = room.events("timed-begin", "timed-end")
    assert [one["event"] for one in events] == ["timed-begin", "timed-end"] * 12
    assert len({one["process"] for one in events}) > 1


@pytest.mark.parametrize(
    ("marker", "reason"),
    [
        ("tests.grading.batch.fake_grader:broken", "the course cannot be loaded"),
        ("tests.grading.batch.fake_grader:dies", "exit code 9"),
        ("no:module", "no"),
    ],
)
def test_workers_that_cannot_start_are_told_of(room, marker, reason):
    room.hand_in(ada="P1")
    with pytest.raises(GradingError, match="no worker") as caught:
        room.grade(marker=marker)
    assert reason in str(caught.value)


def test_a_second_call_at_the_same_time_is_refused(room):
    room.hand_in(ada="P1")
    room.grade()
    with claim(room.out / ".lock"), pytest.raises(OutputError, match="another call"):
        room.grade()


def test_a_students_file_is_no_module_of_a_worker(room, monkeypatch):
    room.hand_in(ada="P1")
    (room.folder / "numpy.py").write_text("raise SystemExit('taken over')")
    (room.folder / "tests.py").write_text("raise SystemExit('taken over')")
    monkeypatch.chdir(room.folder)
    assert room.grade().whole


@POSIX
def test_no_process_and_no_folder_is_left(room, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    room.hand_in(ada="P1", emil="P1 hang", fred="P1 orphan")
    before = psutil.Process().children(recursive=True)
    room.grade(jobs=2, seconds=1.0)
    assert list((tmp_path / "tmp").iterdir()) == []
    children = [one["child"] for one in room.events("child")]
    assert len(children) == batch.MAX_ATTEMPTS
    assert not any(map(alive, children))
    left = [one for one in psutil.Process().children(recursive=True) if one not in before]
    assert [one for one in left if one.status() != "zombie"] == []


RUN = """
import sys
from pathlib import Path
from mlhood.grading.batch.grade_class import Wishes, grade_class
from tests.grading.fake_class import Told
wishes = Wishes(jobs=2, marker="tests.grading.batch.fake_grader:make")
grade_class([Path(sys.argv[1])], Path(sys.argv[2]), wishes, Told())
"""


def start(room, out: Path | None = None) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", RUN, str(room.folder), str(out or room.out)])


@POSIX
def test_nothing_is_lost_or_doubled_when_it_is_killed_again_and_again(room):
    names = [f"s{n}" for n in range(16)]
    room.hand_in(**dict.fromkeys(names, "P1 slow lose-P1.3"))
    chance = random.Random(7)
    kills = 0
    for _ in range(4):
        process = start(room)
        before = len(room.events("task"))
        while process.poll() is None and len(room.events("task")) < before + chance.randint(2, 6):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.05))
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills == 4
    wait_for_workers_to_end(room)
    finished = finished_keys(room)
    begun = len(room.events("begin"))
    assert finished
    graded = room.grade(jobs=2)
    assert room.told.begun == [(len(names) - len(finished), len(finished))]
    assert len(room.events("begin")) == begun + len(names) - len(finished)
    assert {one.student: one.earned for one in graded.records} == dict.fromkeys(names, 24)
    assert whole_rows(room) == [(len(names) * 3, len(names) * 6)]


def finished_keys(room) -> set[str]:
    base = sqlite3.connect(room.out / "gradebook.sqlite")
    try:
        return {key for (key,) in base.execute("SELECT key FROM gradings WHERE state = 'done'")}
    finally:
        base.close()


def whole_rows(room) -> list[tuple[int, int]]:
    base = sqlite3.connect(room.out / "gradebook.sqlite")
    try:
        return base.execute(
            "SELECT (SELECT count(*) FROM task_results), (SELECT count(*) FROM check_results)"
        ).fetchall()
    finally:
        base.close()


def wait_for_workers_to_end(room):
    workers = {one["process"] for one in room.events("begin")}
    limit = time.monotonic() + 20
    while any(map(alive, workers)) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not any(map(alive, workers))


def alive(process: int) -> bool:
    try:
        return psutil.Process(process).status() != "zombie"
    except psutil.NoSuchProcess:
        return False


@POSIX
def test_ctrl_c_keeps_what_was_finished(room):
    room.hand_in(**{f"s{n}": "P1 slow" for n in range(12)})
    process = start(room)
    while len(room.events("task")) < 9:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    wait_for_workers_to_end(room)
    kept = len(finished_keys(room))
    assert kept
    room.grade(jobs=2)
    assert room.told.begun == [(12 - kept, kept)]


def test_the_batch_itself_stays_slim(room):
    room.hand_in(ada="P1")
    heavy = "print([m for m in ('torch', 'jax', 'onnx', 'numba', 'nbformat', 'pandas') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{RUN}\n{heavy}", str(room.folder), str(room.out)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
    assert Path(room.out / "gradebook.sqlite").exists()
