from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from markupsafe import Markup
from nbformat.v4 import new_code_cell, new_output

from mlhood.errors import GradingError
from mlhood.grading.checks.marks import CheckResult, ManualMark, TaskResult
from mlhood.grading.gradebook.gradebook import Gradebook, MarkedItem
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.gradebook.project_spec import ProjectSpec, QuestionSpec
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.reports import feedback as feedback_module
from mlhood.grading.reports.feedback import feedback_page, student_page, write_feedback
from mlhood.grading.reports.sanitize import MAX_CODE, highlight_python, plain
from tests.grading.exporters.test_formats import record, task
from tests.grading.test_class_commands import call

FAILED = CheckResult("b", "second", 5, "failed", "`double` is wrong", {"expected": "4", "got": "5", "hint": "twice"})
TASKS = (
    TaskResult("T9.1", "Double", (CheckResult("a", "first", 3, "passed"), FAILED), ("a fallback solution was used",)),
    TaskResult("T9.2", "A file", (CheckResult("c", "third", 2, "skipped", "no unicorn here"),)),
)
QUESTIONS = (QuestionSpec("T9.4", "Why two?", 5), QuestionSpec("T9.5", "Why not?", 5))
RECORD = record(
    project=ProjectSpec("T9", "A project for tests", (), QUESTIONS, ""),
    tasks=TASKS,
    manual_marks={"T9.4": ManualMark(4.5, "Well said.")},
    late=Lateness(days=1, penalty=1 / 6),
)


@pytest.fixture
def page(course):
    notebook = course.notebook(answer="Because <two> is even.")
    solution = next(cell for cell in notebook.cells if cell.id == "T9-1-solution")
    solution.outputs = [new_output("stream", name="stdout", text="printed by the student")]
    check = next(cell for cell in notebook.cells if cell.id == "T9-1-check")
    check.outputs = [new_output("stream", name="stdout", text="the student's own check")]
    return feedback_page(RECORD, notebook)


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html.partition("<body>")[2]))


def test_the_sum_includes_points_given_by_hand_and_the_late_penalty(page):
    text = text_of(page)
    assert "T9 A project for tests: 6.25 of 8 points" in text
    assert "Written questions, by hand +4.5" in text
    assert "Late −1.25" in text
    assert "2 points could not be checked" in text


def test_every_check_has_a_sign_a_word_and_a_reason(page):
    text = text_of(page)
    assert "✓ passed first 3 of 3" in text
    assert "✗ failed second double is wrong expected 4 got 5 hint twice 0 of 5" in text
    assert "– skipped third Not asked on the machine that graded this: no unicorn here not counted" in text
    assert "T9.2 A file: not asked" in text
    assert "T9.2 A file not asked" in text  # in the overview, where an empty bar would look like lost points
    assert "Note: a fallback solution was used" in text


def test_the_students_own_work_is_beside_the_checks(page):
    text = text_of(page)
    assert "def double ( x ):" in text
    assert "printed by the student" in text
    assert "the student's own check" not in text
    assert "Because &lt;two&gt; is even." in text
    assert "Why two?: 4.5 of 5 points" in text
    assert "Why not?: not marked yet" in text


def test_diagrams_before_the_first_solution_are_left_out(course):
    notebook = course.notebook()
    at = next(index for index, cell in enumerate(notebook.cells) if cell.id == "T9-1-solution")
    for where, text in ((at, "explains the task"), (at + 2, "shows the result")):
        cell = course.labelled(new_code_cell("plot()"), "T9.1", "result", locked=True)
        cell.outputs = [new_output("stream", name="stdout", text=text)]
        notebook.cells.insert(where, cell)
    text = text_of(feedback_page(RECORD, notebook))
    assert "shows the result" in text
    assert "explains the task" not in text


def test_it_is_one_file(page):
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:)", page)
    assert "<script" not in page
    assert "url(" not in page


def test_there_is_a_page_without_a_notebook():
    text = text_of(feedback_page(RECORD, None, ["The notebook could not be read."]))
    assert "6.25 of 8 points" in text
    assert "The notebook could not be read." in text


def test_a_huge_notebook_makes_a_small_page(course):
    notebook = course.notebook()
    cell = next(cell for cell in notebook.cells if cell.id == "T9-1-solution")
    cell.source = "x = 1\n" * 100_000
    cell.outputs = [new_output("stream", name="stdout", text="<&>" * 400_000)] * 50
    notebook.cells += [cell] * 300
    page = feedback_page(RECORD, notebook)
    assert len(page) < 8_000_000
    assert "more cells are not shown" in page
    assert "more outputs are not shown" in page


@pytest.mark.parametrize(
    "source", ["f'{" * 5_000, "(" * 20_000, "'" * 20_000, "\\" * 20_000, "0_" * 10_000, None, ["a"]]
)
def test_code_that_is_not_python_is_shown(source):
    html = highlight_python(source)
    assert isinstance(html, Markup)
    shown = unescape(re.sub(r"<[^>]+>", "", html))
    assert shown.rstrip("\n") == plain(source, MAX_CODE)


def test_code_keeps_its_lines_and_emphasises_some():
    html = highlight_python("a = 1\n\nb = '<'\n", marked={3})
    assert html.count("<mark>") == 1
    assert re.sub(r"<[^>]+>", "", html.partition("<mark>")[0]) == "a = 1\n\n"
    assert "&lt;" in html


def test_an_undecided_task_is_not_final_until_the_instructor_decides(tmp_path):
    undecided = task(2, "undecided", "within the <noise>")
    text = text_of(student_page(record(tasks=(task(1), undecided)), tmp_path))
    assert "P1.2 Task 2: 4 of 10 points" in text
    assert "? undecided It is 2nd within the &lt;noise&gt; 0 of 6" in text
    assert "Not final: P1.2. Your instructor decides" in text
    decided = replace(undecided, decision=ManualMark(7, "It reads <no> file."))
    text = text_of(student_page(record(tasks=(task(1), decided)), tmp_path))
    assert "P1.2 Task 2: 7 of 10 points" in text
    assert "7 of 10 points given by the instructor: It reads &lt;no&gt; file." in text
    assert "passed It is first not counted" in text
    assert "Not final" not in text


@pytest.fixture
def graded(fake_class):
    fake_class.submit(ada="P1", bob="P1 lose-P1.2").grade()
    return fake_class


def test_every_student_gets_a_page(graded, tmp_path):
    with Gradebook(graded.gradebook) as book:
        book.put_manual_marks({MarkedItem("ada", "P1.4"): ManualMark(2.0, "Well said.")})
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
    assert "def double ( x ): return 'mine'" in unescape(text_of(student_page(result, tmp_path)))
    (tmp_path / "abc.ipynb").write_text("{")
    assert "def double" not in text_of(student_page(result, tmp_path))


def test_the_score_is_that_of_the_gradebook(tmp_path):
    text = text_of(student_page(record(), tmp_path))
    assert "23.4 of 30" in text
    assert "Submitted on day 1 after the due date: 10% less." in text
    assert "Ada Love (ada)" in text


def test_the_reason_of_a_refused_notebook_does_not_contain_its_path(tmp_path):
    reason = f"the file is not JSON (in {tmp_path / 'abc.ipynb'})"
    refused = record(status="refused", reason=reason, tasks=(task(1, "failed", reason),), late=Lateness())
    refused = replace(refused, submission=replace(refused.submission, sha256="abc"))
    page = student_page(refused, tmp_path)
    assert "could not be graded: the file is not JSON (in your notebook)" in page
    assert str(tmp_path) not in page


def test_a_notebook_that_cannot_be_shown_stops_no_page(graded, course, tmp_path, monkeypatch):
    for path in (graded.out / "submissions").iterdir():
        write(course.notebook(), path)
    original = feedback_module.feedback_page
    monkeypatch.setattr(feedback_module, "feedback_page", lambda *page: 1 / 0 if page[1] else original(*page))
    assert write_feedback(graded.gradebook, tmp_path).startswith("2 pages")
    for page in tmp_path.rglob("*.html"):
        assert "cannot be shown here" in page.read_text()


def test_it_tells_how_far_it_is(graded, tmp_path):
    shown: list[tuple[str, int, int]] = []
    write_feedback(graded.gradebook, tmp_path, notify=lambda *progress: shown.append(progress))
    assert [(done, total) for _, done, total in shown] == [(0, 2), (1, 2)]


def test_what_is_not_graded_gets_no_page(fake_class, tmp_path):
    fake_class.submit(ada="P1").grade()
    book = fake_class.gradebook
    with Gradebook(book) as opened:
        for entry in opened.entries():
            opened.close_grading(entry.key, "failed", "the machine was on fire")
    with pytest.raises(GradingError, match="nothing to give feedback on"):
        write_feedback(book, tmp_path)
    assert list(tmp_path.rglob("*.html")) == []
