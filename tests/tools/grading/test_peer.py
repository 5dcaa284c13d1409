"""nbgrader and `mlhood grade` grade the same notebooks alternately, and give the same points."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mlhood.errors import GradingError
from mlhood.grading.notebooks.notebook import write
from tests.tools.grading import peer
from tests.tools.grading.__main__ import app
from tests.tools.grading.peer import NbgraderComparison, Setting, compare
from tests.tools.grading.variants import SOLVED, solved, variants

SIDES = ("nbgrader", "mlhood --jobs 1")


def comparison(ours: list[float], theirs: list[float]) -> NbgraderComparison:
    return NbgraderComparison(SIDES, [10] * len(theirs), {SIDES[1]: ours, SIDES[0]: theirs})


def test_the_ratio_is_of_all_parts_together():
    ratio = comparison([2.0, 6.0], [10.0, 10.0]).ratio(SIDES[1])
    assert (ratio.value, ratio.low, ratio.high) == (0.4, 0.2, 0.6)


@pytest.mark.parametrize(("ours", "held"), [([5.0, 7.0], True), ([5.0, 7.1], False)])
def test_ours_takes_at_most_a_fraction_of_the_time(ours, held):
    outcome = comparison(ours, [10.0, 10.0])
    assert outcome.held == held
    assert ("held" if held else "MISSED") in outcome.text()


def test_points_that_differ_are_not_held():
    outcome = comparison([1.0], [10.0])
    outcome.differing.append("part-1, s0000: 100 by nbgrader, 90 by mlhood --jobs 1")
    assert not outcome.held
    assert "points that differ: 1" in outcome.text()


def test_a_side_that_was_not_timed_is_not_held():
    outcome = NbgraderComparison(SIDES, [10], {SIDES[0]: [10.0]})
    assert not outcome.held
    assert "nbgrader" in outcome.text()


def test_without_nbgrader_the_error_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GradingError, match="nbgrader is not installed"):
        peer.require_nbgrader()


def test_a_failure_of_nbgrader_is_reported(monkeypatch, tmp_path):
    def run(command, **options):
        return subprocess.CompletedProcess(command, 1, stderr=f"no course in {options['cwd'].name}")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(GradingError, match=r"`nbgrader autograde` has failed") as caught:
        peer.autograde(peer.Course(tmp_path, "P1"))
    assert f"1: no course in {tmp_path.name}" in str(caught.value)


def test_the_graders_alternate_in_order(monkeypatch, tmp_path):
    points = {"s0000": 80.0, "s0001": 40.0}
    monkeypatch.setattr(peer, "make_course", lambda folder, master, submissions: peer.Course(folder, "T9"))
    monkeypatch.setattr(peer, "autograde", lambda course: 10.0)
    monkeypatch.setattr(peer, "_grade", lambda jobs, course, out, log: 8.0 / jobs)
    monkeypatch.setattr(peer, "their_scores", lambda course: points)
    monkeypatch.setattr(
        peer, "our_scores", lambda book: {**points, "s0001": 40.0 if book.parent.name.endswith("-graded-1") else 30.0}
    )
    setting, log = Setting(tmp_path / "T9.ipynb", (1, 2)), []
    outcome = NbgraderComparison(setting.names)
    compare(outcome, setting, [["a"], ["b", "c"]], tmp_path, log.append)
    order = [*setting.names, *reversed(setting.names)]
    assert [line.split(": ")[1] for line in log] == order
    assert outcome.sizes == [1, 2]
    assert outcome.seconds == {setting.names[0]: [10.0] * 2, setting.names[1]: [8.0] * 2, setting.names[2]: [4.0] * 2}
    assert len(outcome.differing) == 2
    assert outcome.differing[0] == "part-1, s0001: 40 by nbgrader, 30.0 by mlhood --jobs 2"


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "win32", reason="the path of the tests' course")
def test_both_give_the_same_points(course, graded_by, tmp_path):
    pytest.importorskip("nbgrader")
    graded_by("tests.grading.batch.synthetic_grader:make")
    master = tmp_path / "T9.ipynb"
    write(course.notebook(), master)
    submissions = variants(solved(course.notebook(), master), [SOLVED], 1)
    setting = Setting(master, (1,))
    outcome = NbgraderComparison(setting.names)
    compare(outcome, setting, [submissions], tmp_path / "folder", print)
    assert outcome.differing == []
    assert {side: len(seconds) for side, seconds in outcome.seconds.items()} == dict.fromkeys(SIDES, 1)
    (book,) = (tmp_path / "folder").glob("part-1-graded-1/gradebook.sqlite")
    assert peer.our_scores(book) == {"s0000": 80}


def test_the_command_asks_for_nbgrader_before_it_begins(monkeypatch):
    monkeypatch.setattr("mlhood.grading.sandbox.bubblewrap.require", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["nbgrader", "nothing.ipynb"])
    assert "nbgrader is not installed" in str(result.exception)
