from __future__ import annotations

import json

import pytest

from mlhood.errors import NotebookError
from mlhood.grading import gradescope
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.notebooks.restore import UNTOUCHED
from mlhood.grading.projects import PROJECTS
from tests.grading import synthetic_course


@pytest.fixture
def course(monkeypatch):
    monkeypatch.setitem(PROJECTS, "T9", synthetic_course.SYNTHETIC)
    return synthetic_course


@pytest.fixture
def submission(tmp_path):
    (tmp_path / "submission").mkdir()
    return tmp_path / "submission"


def other_project(course, path):
    book = course.notebook()
    book.metadata["mlhood"]["project"] = "P1"
    write(book, path)


def test_the_notebook_of_the_titles_project_is_chosen(submission, course):
    write(course.notebook(), submission / "a.ipynb")
    other_project(course, submission / "b.ipynb")
    (submission / "c.ipynb").write_text("{")
    assert gradescope.choose_notebook(submission, "T9").name == "a.ipynb"
    with pytest.raises(NotebookError) as caught:
        gradescope.choose_notebook(submission)
    assert "a.ipynb (T9); b.ipynb (P1); c.ipynb: " in str(caught.value)


def test_a_link_is_not_followed(submission, course, tmp_path):
    write(course.notebook(), tmp_path / "a.ipynb")
    try:
        (submission / "a.ipynb").symlink_to(tmp_path / "a.ipynb")
    except OSError:
        pytest.skip("links need rights here")
    with pytest.raises(NotebookError, match="not exactly one"):
        gradescope.choose_notebook(submission)


@pytest.mark.parametrize(
    ("title", "project"), [("P1", "P1"), ("Lab P2 (kernels)", "P2"), ("P1 or P2", ""), ("HP11", "")]
)
def test_the_title_names_the_project(title, project):
    assert gradescope._titled_project({"assignment": {"title": title}}) == project


def test_an_empty_submission_has_a_result(submission, tmp_path):
    results = gradescope.results(tmp_path)
    assert (results["score"], results["tests"]) == (0, [])
    assert "no notebook" in results["output"]
    assert str(tmp_path) not in results["output"]


def test_hostile_metadata_costs_no_points(submission, course, tmp_path, monkeypatch):
    from tests.grading import given_course

    given_course.sync(tmp_path / "synced", monkeypatch, course.notebook())
    write(course.notebook(course.EMPTY, "YOUR ANSWER HERE"), submission / "a.ipynb")
    for metadata in ("[]", "{", '{"users": [7], "assignment": 7, "created_at": {}}'):
        (tmp_path / "submission_metadata.json").write_text(metadata)
        results = gradescope.results(tmp_path)
        assert (results["score"], len(results["tests"])) == (0, 5)
        assert UNTOUCHED in results["output"]


def test_an_internal_error_is_reported_without_its_traceback(submission, course, tmp_path, monkeypatch, capsys):
    def fails(submission, path, kernels):
        raise RuntimeError("internal detail")

    monkeypatch.setattr(gradescope, "grade_one", fails)
    write(course.notebook(), submission / "a.ipynb")
    results = gradescope.results(tmp_path)
    assert "internal detail" not in json.dumps(results)
    assert "internal detail" in capsys.readouterr().err
