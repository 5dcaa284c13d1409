from __future__ import annotations

from dataclasses import replace
from html import unescape

import pytest

from mlhood.errors import GradingError
from mlhood.grading.gradebook.gradebook import Gradebook, HandMark
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.reports import feedback_pages
from mlhood.grading.reports.feedback_page import feedback_page
from mlhood.grading.reports.feedback_pages import feedback_of, feedback_to
from tests.grading.exporters.test_formats import record, task
from tests.grading.reports.test_class_report import text_of
from tests.grading.test_class_commands import call


@pytest.fixture
def graded(room):
    room.hand_in(ada="P1", bob="P1 lose-P1.2").grade()
    return room


def test_every_student_gets_a_page(graded, tmp_path):
    with Gradebook(graded.out / "gradebook.sqlite") as book:
        book.put_hand_marks([HandMark("ada", "P1.4", 2.0, "Well said.")])
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
    with Gradebook(graded.out / "gradebook.sqlite") as book:
        assert book.fact("seed") not in ada + bob
    assert call("feedback", graded.out, "--to", tmp_path / "none", "--project", "P2").exit_code != 0
    assert not (tmp_path / "none").exists()


def test_the_page_shows_the_notebook_of_the_store(course, tmp_path):
    write(course.notebook(course.SOLUTIONS | {"T9.1": "def double(x):\n    return 'mine'"}), tmp_path / "abc.ipynb")
    known = record()
    one = replace(known, handed=replace(known.handed, sha256="abc"), tasks=(replace(task(1), id="T9.1"),))
    assert "def double ( x ): return 'mine'" in unescape(text_of(feedback_page(feedback_of(one, tmp_path))))
    (tmp_path / "abc.ipynb").write_text("{")
    assert feedback_of(one, tmp_path).notebook is None


def test_sums_are_those_of_the_gradebook(tmp_path):
    one = record()
    feedback = feedback_of(one, tmp_path)
    assert feedback.score == pytest.approx(one.score)
    text = text_of(feedback_page(feedback))
    assert "23.4 of 30" in text
    assert "Handed in late: 1 day begun after the due date, 10% less." in text
    assert "Ada Love (ada)" in text


def test_a_refused_notebook_says_why_without_where_it_lies(tmp_path):
    reason = f"the file is not JSON (in {tmp_path / 'abc.ipynb'})"
    known = record(status="refused", reason=reason, tasks=(task(1, "failed", reason),), late=Lateness())
    one = replace(known, handed=replace(known.handed, sha256="abc"))
    page = feedback_page(feedback_of(one, tmp_path))
    assert "could not be marked: the file is not JSON (in your notebook)" in page
    assert str(tmp_path) not in page


def test_a_notebook_that_cannot_be_shown_stops_nobodys_page(graded, course, tmp_path, monkeypatch):
    for path in (graded.out / "submissions").iterdir():
        write(course.notebook(), path)
    shown = feedback_pages.feedback_page
    monkeypatch.setattr(feedback_pages, "feedback_page", lambda one: shown(one) if one.notebook is None else 1 / 0)
    assert feedback_to(graded.out / "gradebook.sqlite", tmp_path).startswith("2 pages")
    for page in tmp_path.rglob("*.html"):
        assert "cannot be shown here" in page.read_text()


def test_what_is_not_graded_gets_no_page(room, tmp_path):
    room.hand_in(ada="P1").grade()
    book = room.out / "gradebook.sqlite"
    with Gradebook(book) as opened:
        for entry in opened.handed():
            opened.close_grading(entry.key, "failed", "the machine was on fire")
    with pytest.raises(GradingError, match="nothing to give feedback on"):
        feedback_to(book, tmp_path)
    assert list(tmp_path.rglob("*.html")) == []


def test_help_has_an_example():
    assert "Example: mlhood feedback" in call("feedback", "--help").stdout
