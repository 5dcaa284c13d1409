from __future__ import annotations

import json

import pytest

from mlhood.errors import NotebookError
from mlhood.grading.autograders import gradescope, single
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.projects import PROJECTS


@pytest.fixture
def course(monkeypatch):
    from tests.grading.batch import synthetic_grader

    course = synthetic_grader.synthetic_course
    monkeypatch.setitem(PROJECTS, "T9", course.SYNTHETIC)
    return course


@pytest.fixture
def submission(tmp_path):
    (tmp_path / "submission").mkdir()
    return tmp_path / "submission"


def other_project(course, path):
    book = course.notebook()
    book.metadata["mlhood"]["project"] = "P1"
    write(book, path)


def test_the_titles_project_is_chosen(submission, course):
    write(course.notebook(), submission / "a.ipynb")
    other_project(course, submission / "b.ipynb")
    (submission / "c.ipynb").write_text("{")
    assert gradescope.chosen(submission, "T9").name == "a.ipynb"
    with pytest.raises(NotebookError) as caught:
        gradescope.chosen(submission)
    assert "a.ipynb (T9); b.ipynb (P1); c.ipynb: " in str(caught.value)


def test_a_link_is_not_followed(submission, course, tmp_path):
    write(course.notebook(), tmp_path / "a.ipynb")
    try:
        (submission / "a.ipynb").symlink_to(tmp_path / "a.ipynb")
    except OSError:
        pytest.skip("links need rights here")
    with pytest.raises(NotebookError, match="not exactly one"):
        gradescope.chosen(submission)


@pytest.mark.parametrize(
    ("title", "wanted"), [("P1", "P1"), ("Lab P2 (kernels)", "P2"), ("P1 or P2", ""), ("HP11", "")]
)
def test_the_title_names_the_project(title, wanted):
    assert gradescope._wanted({"assignment": {"title": title}}) == wanted


def test_nothing_handed_in_is_a_result(submission, tmp_path):
    found = gradescope.results(tmp_path)
    assert (found["score"], found["tests"]) == (0, [])
    assert "no notebook" in found["output"]
    assert str(tmp_path) not in found["output"]


def test_hostile_metadata_costs_nothing(submission, course, tmp_path, monkeypatch):
    from tests.grading import given_course

    given_course.carry(tmp_path / "carried", monkeypatch, course.notebook())
    write(course.notebook(course.EMPTY, "YOUR ANSWER HERE"), submission / "a.ipynb")
    for metadata in ("[]", "{", '{"users": [7], "assignment": 7, "created_at": {}}'):
        (tmp_path / "submission_metadata.json").write_text(metadata)
        found = gradescope.results(tmp_path)
        assert (found["score"], len(found["tests"])) == (0, 5)
        assert single.UNTOUCHED in found["output"]


def test_a_failure_of_ours_is_told_without_its_traceback(submission, course, tmp_path, monkeypatch, capsys):
    def fails(handed, path, kernels):
        raise RuntimeError("inner words")

    monkeypatch.setattr(gradescope, "grade_one", fails)
    write(course.notebook(), submission / "a.ipynb")
    found = gradescope.results(tmp_path)
    assert "inner words" not in json.dumps(found)
    assert "inner words" in capsys.readouterr().err
