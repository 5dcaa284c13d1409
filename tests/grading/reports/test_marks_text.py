from __future__ import annotations

import re
from dataclasses import replace

import pytest

import mlhood
from mlhood.errors import GradingError, MlhoodError
from mlhood.grading.checks.expect import CheckFailed, CheckSkipped
from mlhood.grading.checks.marks import CheckResult, ManualMark, Marks, TaskResult, grade_task, unsolved
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task, points
from mlhood.grading.reports import marks_text, render
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.grading.student import check

EVIL = "<img src=x onerror=alert(1)>`<b>`"
RESULT = TaskResult(
    "T9.1",
    "Layers & <shapes>",
    (
        CheckResult("a", "first", 6, "passed"),
        CheckResult("b", "second", 2.5, "failed", f"wrong: {EVIL}", {"got": EVIL, "hint": "look at `stride`"}),
        CheckResult("c", "third", 1.5, "skipped", "no browser"),
    ),
    (f"the cell `{EVIL}` stopped",),
)


def test_text_does_not_depend_on_colour():
    text = marks_text.task_text(RESULT)
    assert text.splitlines()[0] == "T9.1 Layers & <shapes>: 6 of 8.5 points"
    assert "✓ first (passed, 6)" in text
    assert "✗ second (failed, 2.5)" in text
    assert "– third (skipped, 1.5)" in text
    assert "hint: look at `stride`" in text
    assert "\x1b" not in text


def test_an_undecided_check_has_no_points_and_a_reason():
    passed, second, _ = RESULT.checks
    undecided = replace(RESULT, checks=(passed, replace(second, status="undecided", what=f"noise: {EVIL}", parts={})))
    lines = marks_text.task_text(undecided).splitlines()
    assert lines[0] == "T9.1 Layers & <shapes>: 6 of 8.5 points"
    assert lines[-2:] == ["  ? second (undecided, 2.5)", f"      noise: {EVIL}"]
    assert f"T9.1 is undecided: noise: {EVIL}" in marks_text.summary_text(Marks("T9", "T9", (undecided,)))
    html = render.task_html(undecided)
    assert "<img" not in html
    assert html.startswith("<p><b>? T9.1")
    assert "0&nbsp;/&nbsp;2.5" in html


def test_html_escapes_what_students_wrote():
    html = render.task_html(RESULT)
    tags = set(re.findall(r"</?([a-z]+)", html))
    assert tags <= {"p", "b", "i", "table", "tr", "td", "br", "code"}
    assert "<img" not in html
    assert "failed" in html
    assert "✗" in html


def test_bars_and_summary():
    assert marks_text.points_bar(5, 10) == "█████░░░░░"
    assert marks_text.points_bar(0, 0) == "░" * 10
    marks = Marks("T9", "T9", (RESULT,))
    assert (marks.earned, marks.points, marks.skipped) == (6, 8.5, 1.5)
    assert "not asked on this machine: T9.1, 1.5 points: no browser" in marks_text.summary_text(marks)
    assert marks_text.full_text(marks).endswith(marks_text.summary_text(marks))


def test_what_could_not_be_asked_is_said_in_words_and_has_no_bar():
    skipped = [CheckResult(f"c{i}", "draws", i, "skipped", f"no {what}") for i, what in enumerate("xyx", start=1)]
    unasked, partly = TaskResult("T9.2", "Draw", tuple(skipped)), replace(RESULT, checks=(*RESULT.checks, skipped[0]))
    assert (unasked.asked, unasked.skipped, partly.asked, partly.points) == (False, 6, True, 8.5)
    assert marks_text.score_line(unasked) == "T9.2 Draw: not asked"
    assert replace(unasked, decision=ManualMark(2)).asked
    summary = marks_text.summary_text(Marks("T9", "T9", (partly, unasked)))
    row = next(line for line in summary.splitlines() if line.startswith("T9.2"))
    assert row.endswith("not asked")
    assert "░" not in row
    assert "not asked on this machine: T9.1, T9.2, 5 points: no x" in summary
    assert "not asked on this machine: T9.2, 2 points: no y" in summary


def test_marks_as_plain_data():
    plain = Marks("T9", "T9", (RESULT,)).as_dict()
    assert (plain["earned"], plain["points"], plain["tasks"][0]["earned"]) == (6, 8.5, 6)
    assert plain["tasks"][0]["checks"][1]["parts"]["hint"] == "look at `stride`"


def raising(error):
    @points(5)
    def check(submission):
        """It holds."""
        raise error

    return check


@pytest.mark.parametrize(
    ("error", "status", "what"),
    [
        (CheckFailed("wrong", expected=1, got=2), "failed", "wrong"),
        (CheckSkipped("no browser"), "skipped", "no browser"),
        (MlhoodError("no model", got="a poem"), "failed", "no model"),
        (ZeroDivisionError("x"), "failed", "the check cannot make sense of what your code returned"),
        (RecursionError("x"), "failed", "the check cannot make sense of what your code returned"),
    ],
)
def test_whatever_a_check_raises_becomes_a_result(error, status, what, tmp_path):
    task = Task("T9.1", "One", (raising(error),))
    session = Session(LocalTransport({}), tmp_path, tmp_path)
    (check,) = grade_task(task, session, 0).checks
    assert (check.status, check.what, check.earned) == (status, what, 0)


def test_every_check_draws_from_its_own_stream(tmp_path):
    drawn = []

    @points(1)
    def first(submission):
        drawn.append(submission.rng.integers(1 << 40))

    @points(1)
    def second(submission):
        drawn.append(submission.rng.integers(1 << 40))

    session = Session(LocalTransport({}), tmp_path, tmp_path)
    for checks in ((first, second), (second, first)):
        grade_task(Task("T9.1", "", checks), session, 7)
    grade_task(Task("T9.1", "", (first,)), session, 8)
    assert drawn[0] == drawn[3]
    assert drawn[1] == drawn[2]
    assert len(set(drawn)) == 3


def test_unsolved_task(course):
    result = unsolved(course.SYNTHETIC.tasks[0], "no time")
    assert (result.earned, result.points, result.full) == (0, 40, False)
    assert Marks(course.SYNTHETIC.id, course.SYNTHETIC.title, (result,)).earned == 0


@pytest.fixture
def notebook_of_student(course, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "_results", {})
    return course


def test_check_in_a_notebook(notebook_of_student, capsys):
    score = mlhood.check("T9.1", {"double": lambda x: 2 * x})
    assert (score, repr(score)) == (40.0, "40")
    assert "doubles arrays (passed" in capsys.readouterr().out
    assert "<table>" in score._repr_html_()


HINT = "two times the number"


def printed_check(capsys, function) -> str:
    mlhood.check("T9.1", {"double": function})
    return capsys.readouterr().out


def test_a_check_says_what_is_wrong_and_at_the_second_failure_how_to_go_on(notebook_of_student, capsys):
    first, second = (printed_check(capsys, lambda x: 3 * x) for _ in range(2))
    assert "`double` is wrong" in first
    assert "expected: " in first
    assert HINT not in first
    assert 'mlhood.hint("T9.1")' in first
    assert f"hint: {HINT}" in second
    assert "mlhood.hint" not in second


def test_what_was_right_before_fails_without_a_hint_at_first(notebook_of_student, capsys):
    assert HINT not in printed_check(capsys, lambda x: 2 * x)
    assert HINT not in printed_check(capsys, lambda x: 3 * x)
    assert HINT in printed_check(capsys, lambda x: 3 * x)


def test_a_hint_is_given_on_request(notebook_of_student, capsys):
    with pytest.raises(GradingError, match="there is no hint before the first check"):
        mlhood.hint("T9.1")
    printed_check(capsys, lambda x: 3 * x)
    hints = mlhood.hint("T9.1")
    assert HINT in repr(hints)
    assert HINT in hints._repr_html_()
    printed_check(capsys, lambda x: 2 * x)
    assert "all checks pass" in repr(mlhood.hint("T9.1"))
    assert "all checks pass" in mlhood.hint("T9.1")._repr_html_()


def test_a_function_that_is_not_written_yet_says_so_at_once(notebook_of_student, capsys):
    def double(x):
        raise NotImplementedError

    assert "replace `raise NotImplementedError()`" in printed_check(capsys, double)


def test_progress(notebook_of_student):
    mlhood.check("T9.1", {"double": lambda x: 2 * x})
    text = repr(mlhood.progress())
    assert "40 of 40" in text
    assert "not checked yet" in text
    assert "40 of 100" in text.splitlines()[-1]
    assert "<table>" in mlhood.progress("T9")._repr_html_()


def test_wrong_names(notebook_of_student):
    with pytest.raises(GradingError, match="no such task") as caught:
        mlhood.check("T9.77", {})
    assert "T9.1, T9.2, T9.3" in str(caught.value)
    with pytest.raises(GradingError, match="no such project"):
        mlhood.progress("Q1")
    with pytest.raises(GradingError, match="no notebook to check"):
        mlhood.check("T9.1")


def test_progress_counts_what_could_be_asked(course):
    unasked = TaskResult("T9.2", "A file", (CheckResult("d", "draws", 40, "skipped", "no browser"),))
    rows = check.Progress({"T9.1": RESULT, "T9.2": unasked}, "T9")._rows()
    assert rows[0][2:] == (marks_text.points_bar(6, 8.5), "6 of 8.5")
    assert rows[1][2:] == ("", "cannot be asked on this machine")
    assert rows[-1][-1] == "6 of 58.5"
