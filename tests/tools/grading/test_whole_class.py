"""A class whose grader is killed has every mark once; what is lost, duplicated or wrong is found."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlhood.errors import GradingError
from mlhood.grading.sandbox.bubblewrap import problem
from tests.grading.fake_class import FAKE_GRADER
from tests.tools.grading import __main__ as commands
from tests.tools.grading import calls
from tests.tools.grading.__main__ import app
from tests.tools.grading.audit import audit, differences
from tests.tools.grading.fakes import some, use_grader
from tests.tools.grading.whole_class import ClassRun, Setting, grade_class

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")
PROBLEM = problem()
needs_bubblewrap = pytest.mark.skipif(bool(PROBLEM), reason=f"no sandbox: {PROBLEM}")


TWICE = (
    "INSERT INTO handed (student, slot, name, assignment, source, sha256, late, problem, collected, project)"
    " VALUES ('s0001', 'twice', '', '', 'twice', '', 0, '', '', 'P1')"
)


def graded(submissions, folder: Path, **setting) -> ClassRun:
    run = ClassRun(submissions, Setting(**setting))
    folder.mkdir()
    grade_class(run, folder, lambda line: None)
    return run


def book_of(folder: Path) -> Path:
    return folder / "graded" / "gradebook.sqlite"


def test_a_class_killed_twice_has_every_mark_once(fake, tmp_path):
    run = graded(some(14), tmp_path / "class", kills=2)
    assert [call.killed for call in run.calls] == [True, True, False]
    assert run.audit.complete == 14
    assert run.audit.sound
    assert run.audit.resumed >= 1
    assert sum(call.graded for call in run.calls) <= 14
    assert 0 < run.peaks.grader < run.peaks.together
    assert run.peaks.worker > 0


def test_nothing_is_killed_unless_asked(fake, tmp_path):
    run = graded(some(3, ""), tmp_path / "class", kills=0)
    assert [call.code for call in run.calls] == [0]
    assert run.held


def tampered(book: Path, statement: str) -> None:
    with sqlite3.connect(book) as connection:
        connection.execute(statement)
    connection.close()


@pytest.fixture(scope="module")
def graded_once(tmp_path_factory):
    """Return the gradebook of a class of four without faults, to be copied."""
    folder = tmp_path_factory.mktemp("once") / "class"
    with pytest.MonkeyPatch.context() as patch:
        use_grader(patch, FAKE_GRADER)
        graded(some(4, ""), folder, kills=0)
    return book_of(folder)


@pytest.fixture
def book(graded_once, tmp_path):
    return Path(shutil.copy(graded_once, tmp_path / "gradebook.sqlite"))


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("DELETE FROM check_results WHERE rowid = 1", "lost", "not one result each"),
        ("DELETE FROM task_results WHERE task = 'P1.3'", "lost", "P1.3"),
        ("DELETE FROM handed WHERE student = 's0002'", "lost", "not in the gradebook"),
        ("UPDATE gradings SET state = 'open'", "lost", "open"),
        (TWICE, "doubled", "s0001: submitted 2 times"),
        ("INSERT INTO attempts (job, began, outcome) SELECT job, began, outcome FROM attempts", "doubled", "2 times"),
        ("UPDATE check_results SET status = 'failed'", "wrong", "has failed"),
        ("UPDATE check_results SET status = 'passed'", "wrong", "has passed"),
    ],
)
def test_what_is_not_as_expected_is_found(book, statement, kind, message):
    submissions = some(4, "")
    assert audit(book, submissions).sound
    tampered(book, statement)
    findings = audit(book, submissions)
    assert not findings.sound
    assert message in getattr(findings, kind)[0]
    assert f"{kind}: {len(getattr(findings, kind))}" in findings.text()


def test_two_gradebooks_are_compared_check_by_check(book, tmp_path):
    other = Path(shutil.copy(book, tmp_path / "other.sqlite"))
    assert differences(book, other) == []
    tampered(other, "UPDATE check_results SET status = 'skipped' WHERE task = 'P1.3' AND status = 'passed'")
    findings = differences(book, other)
    assert len(findings) == 8
    assert findings[0] == "s0000 P1.3 first: passed and skipped"


def test_a_call_that_cannot_work_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(calls, "GRADE", (sys.executable, "-c", "import sys; print('no', file=sys.stderr); sys.exit(2)"))
    with pytest.raises(GradingError, match="could not start its work") as caught:
        graded(some(2), tmp_path / "class")
    assert "got: no" in str(caught.value)


@pytest.fixture
def bench(fake, monkeypatch, tmp_path):
    monkeypatch.setattr(commands, "_make_class", lambda *arguments, **options: ("P1", some(6)))

    def run(*arguments: object):
        words = ["class", *arguments, "--json", tmp_path / "class.json"]
        return CliRunner().invoke(app, list(map(str, words)))

    return run


@needs_bubblewrap
def test_the_command_prints_text_and_writes_json(bench, tmp_path):
    result = bench("--kills", 1, "--out", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    assert "6 of 6 have every task once" in result.stdout
    assert "submissions per minute" in result.stdout
    assert "lost: none" in result.stdout
    assert "called again" in result.stderr
    written = json.loads((tmp_path / "class.json").read_text())
    assert (written["bench"], written["finished"], written["held"]) == ("grading class", True, True)
    assert len(written["calls"]) == 2
    assert book_of(tmp_path / "kept").is_file()


@needs_bubblewrap
def test_after_ctrl_c_the_measurements_are_kept(bench, tmp_path, monkeypatch):
    def interrupt(line):
        if line.startswith("[2/"):
            raise KeyboardInterrupt

    monkeypatch.setattr(commands, "_log", interrupt)
    result = bench("--kills", 0)
    assert result.exit_code == 130
    assert "exit code 130" in result.stdout
    written = json.loads((tmp_path / "class.json").read_text())
    assert not written["finished"]
    assert 2 <= written["audit"]["complete"] < 6


@needs_bubblewrap
def test_a_folder_that_is_not_empty_is_refused(bench, tmp_path):
    (tmp_path / "file").touch()
    result = bench("--out", tmp_path)
    assert result.exit_code == 1
    assert "not empty" in str(result.exception)


def test_every_part_has_an_example():
    for part in ("checks", "variants", "class", "nbgrader", "dask", "term"):
        result = CliRunner().invoke(app, [part, "--help"])
        assert f"Example: python -m tests.tools.grading {part}" in result.stdout
