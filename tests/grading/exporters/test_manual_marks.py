from __future__ import annotations

from mlhood.grading.exporters.manual_marks import written_answers


def test_the_answers_to_questions_are_found(course):
    assert written_answers(course.notebook()) == {"T9.4": "Because."}
    assert written_answers(None) == {}
