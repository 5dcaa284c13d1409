from __future__ import annotations

from dataclasses import replace
from html import unescape

import pytest

from mlhood.errors import GradingError
from mlhood.grading.gradebook.gradebook import Gradebook, ManualMark
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.reports import feedback_pages
from mlhood.grading.reports.feedback_page import feedback_page
from mlhood.grading.reports.feedback_pages import feedback_of, write_feedback
from tests.grading.exporters.test_formats import record, task
from tests.grading.reports.test_class_report import text_of
from tests.grading.test_class_commands import call


@pytest.fixture
def graded(fake_class):
    fake_class.submit(ada="P1", bob="P1 lose-P1.2").grade()
    return fake_class


def test_every_student_gets_a_page(graded, tmp_path):
    with Gradebook(graded.gradebook) as book:
        book.put_manual_marks([ManualMark("ada", "P1.4", 2.0, "Well said.")])
    result = call("feedback", graded.out, "--to", tmp_path / "back")
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith("2 pages below")
    pages = sorted(path.relative_to(tmp_path / "back").as_posix() for path in (tmp_path / "back").rglob("*.html"))
    assert pages == ["ada/P1/P1.html", "bob/P1/P1.html"]
    ada, bob = ((tmp_path / "back" / page).read_text() for page in pages)
    assert "Well said." in ada
    assert "Well said." not in bob
    assert "not marked yet" in bob
    assert "✗ failed" in bob
    assert "✗ failed" not in ada
    with Gradebook(graded.gradebook) as book:
        assert book.metadata("seed") not in ada + bob
    assert call("feedback", graded.out, "--to", tmp_path / "none", "--project", "P2").exit_code != 0
    assert not (tmp_path / "none").exists()


def test_the_page_shows_the_notebook_of_the_store(course, tmp_path):
    write(course.notebook(course.SOLUTIONS | {"T9.1": "def double(x):\n    return 'mine'"}), tmp_path / "abc.ipynb")
    submission = replace(record().submission, sha256="abc")
    result = record(submission=submission, tasks=(replace(task(1), id="T9.1"),))
    assert "def double ( x ): return 'mine'" in unescape(text_of(feedback_page(feedback_of(result, tmp_path))))
    (tmp_path / "abc.ipynb").write_text("{")
    assert feedback_of(result, tmp_path).notebook is None


def test_the_score_is_that_of_the_gradebook(tmp_path):
    feedback = feedback_of(record(), tmp_path)
    assert feedback.score == pytest.approx(record().score)
    text = text_of(feedback_page(feedback))
    assert "23.4 of 30" in text
    assert "Submitted on day 1 after the due date: 10% less." in text
    assert "Ada Love (ada)" in text


def test_the_reason_of_a_refused_notebook_does_not_contain_its_path(tmp_path):
    reason = f"the file is not JSON (in {tmp_path / 'abc.ipynb'})"
    refused = record(status="refused", reason=reason, tasks=(task(1, "failed", reason),), late=Lateness())
    refused = replace(refused, submission=replace(refused.submission, sha256="abc"))
    page = feedback_page(feedback_of(refused, tmp_path))
    assert "could not be graded: the file is not JSON (in your notebook)" in page
    assert str(tmp_path) not in page


def test_a_notebook_that_cannot_be_shown_stops_no_page(graded, course, tmp_path, monkeypatch):
    for path in (graded.out / "submissions").iterdir():
        write(course.notebook(), path)
    original = feedback_pages.feedback_page
    monkeypatch.setattr(feedback_pages, "feedback_page", lambda page: 1 / 0 if page.notebook else original(page))
    assert write_feedback(graded.gradebook, tmp_path).startswith("2 pages")
    for page in tmp_path.rglob("*.html"):
        assert "cannot be shown here" in page.read_text()


def test_what_is_not_graded_gets_no_page(fake_class, tmp_path):
    fake_class.submit(ada="P1").grade()
    book = fake_class.gradebook
    with Gradebook(book) as opened:
        for entry in opened.entries():
            opened.close_grading(entry.key, "failed", "the machine was on fire")
    with pytest.raises(GradingError, match="nothing to give feedback on"):
        write_feedback(book, tmp_path)
    assert list(tmp_path.rglob("*.html")) == []


def test_help_has_an_example():
    assert "Example: mlhood feedback" in call("feedback", "--help").stdout
