"""The written questions of the notebooks, with the rubrics by which they are marked."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_markdown_cell

from mlhood.grading.notebooks.questions import (
    QuestionText,
    RubricRow,
    dump_questions,
    source_questions,
    synced_questions,
)
from mlhood.grading.projects import PROJECTS
from tests.grading import synthetic_course

ABOVE = """## Two questions

<a id="t9-4"></a>
**T9.4 · Why two?** Say it with `double`,
in *one* sentence.
"""
ANSWER = """Because two is even.

| rubric | points |
|---|---|
| it is even | 1 |
| a|b, or `c` | 1.5 |
"""
PARSED = QuestionText(
    "Say it with `double`, in *one* sentence.", (RubricRow("it is even", 1), RubricRow("a|b, or `c`", 1.5))
)


@pytest.mark.parametrize(
    ("above", "answer", "expected"),
    [
        (ABOVE, ANSWER, {"T9.4": PARSED}),
        ("**T9.4 · Why two?** Because.", "No table.", {"T9.4": QuestionText("Because.")}),
        ("**T9.5 · Another one**", ANSWER, {}),
    ],
)
def test_a_question_is_found_above_the_answer_and_its_rubric_below(above, answer, expected):
    book = synthetic_course.notebook()
    book.cells.insert(-1, new_markdown_cell(above))
    book.cells[-1].source = answer
    assert source_questions(book) == expected


def test_they_are_read_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr("mlhood.grading.notebooks.questions.PROJECTS_FOLDER", tmp_path)
    assert synced_questions("T9") == {}
    (tmp_path / "t9").mkdir()
    (tmp_path / "t9" / "questions.json").write_text(dump_questions({"T9.4": PARSED}), encoding="utf-8")
    assert synced_questions("T9") == {"T9.4": PARSED}


@pytest.mark.parametrize("project", PROJECTS.values(), ids=lambda project: project.id)
def test_every_question_of_the_course_has_a_rubric_of_all_its_points(project):
    texts = synced_questions(project.id)
    assert list(texts) == [question.id for question in project.questions]
    for question in project.questions:
        assert texts[question.id].text
        assert sum(row.points for row in texts[question.id].rubric) == question.bonus
