from __future__ import annotations

from dataclasses import replace

import pytest
from test_class_commands import call
from test_exports import BOMB, record, task
from test_likeness import DISGUISED, ORIGINAL, OTHER

from mlhood.grading.classroom.class_report import class_report
from mlhood.grading.classroom.likeness import Pair
from mlhood.grading.classroom.sources import answers, own_cells
from mlhood.grading.notebook import write

HOSTILE = "<script>alert(1)</script>"


def test_it_tells_points_hardest_checks_and_pairs():
    good = record("bob", tasks=(task(1), task(2), task(3)))
    page = class_report([record(), good], {"P1": [Pair("ada", "bob", 40, 0.9)]})
    assert "2 students, 2 submissions, 2 of them graded" in page
    assert '<td class="points">8.0 / 10</td><td class="points">7</td>' not in page
    assert '<td class="points">7.0 / 10</td><td class="points">7</td>' in page
    assert '<td class="points">1 of 2</td>' in page
    assert "<td>ada</td><td>bob</td>" in page
    assert "90%" in page


def test_nothing_of_a_student_is_markup():
    page = class_report(
        [
            record(HOSTILE, tasks=(task(1, "failed", HOSTILE), task(2, "failed", BOMB), task(3))),
            record("b", status="refused", reason=HOSTILE),
        ],
        {"P1": [Pair(HOSTILE, "bob", 40, 0.9)]},
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert") == 3
    assert "default-src 'none'" in page


def test_it_says_when_there_is_nothing_to_say():
    page = class_report([replace(record(), tasks=(task(1), task(2), task(3)))], {})
    assert "No check has failed" in page
    assert "No two submissions" in page


@pytest.fixture
def alike_class(room, course):
    """Notebooks of the synthetic project in the store of a class that the fake marker has graded."""
    texts = {"ada": ORIGINAL, "bob": DISGUISED, "eve": OTHER}
    room.hand_in(**dict.fromkeys(texts, "P1"))
    for one in room.grade().records:
        book = course.notebook(course.SOLUTIONS | {"T9.1": texts[one.student]})
        write(book, room.out / "submissions" / f"{one.handed.sha256}.ipynb")
    write(course.notebook(course.EMPTY), room.out / "given.ipynb")
    return room


def test_the_command_finds_the_copy(alike_class, tmp_path):
    out = alike_class.out
    result = call("class-report", out, "--to", tmp_path / "class.html", "--given", out / "given.ipynb")
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith("3 results, 1 pairs")
    assert "<td>ada</td><td>bob</td>" in (tmp_path / "class.html").read_text()


def test_only_what_the_student_wrote_is_compared(alike_class, course):
    cells = own_cells(alike_class.out / "given.ipynb")
    assert [cell for cell in cells if "mlhood.check" in cell] == []
    assert set(course.EMPTY.values()) <= set(cells)
    (alike_class.out / "broken.ipynb").write_text("{")
    assert own_cells(alike_class.out / "broken.ipynb") == []


def test_the_answers_to_questions_are_found(alike_class):
    assert answers(alike_class.out / "given.ipynb") == {"T9.4": "Because."}
    assert answers(alike_class.out / "absent.ipynb") == {}
