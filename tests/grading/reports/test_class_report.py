from __future__ import annotations

import re
from dataclasses import replace

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.notebooks.master import MasterCell
from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.reports.class_report import class_report
from mlhood.grading.similarity.class_similarity import Likeness, answers, likeness, work_of
from mlhood.grading.similarity.compare import Pair, Passage
from mlhood.grading.similarity.package_source import own_source
from tests.grading.exporters.test_formats import BOMB, record, task
from tests.grading.test_class_commands import call

HOSTILE = "<script>alert(1)</script>"
ORIGINAL = '''
def double(x):
    """Windows as columns."""
    channels, height, width = x.shape
    rows = []
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                window = x[c, i::height, j::width]  # every position
                rows.append(window[: height // 2, : width // 2].ravel())
    return np.stack(rows) if rows else np.zeros((0, 1))
'''
DISGUISED = """
def double(image):
    out = []
    a, b, d = image.shape

    for q in range(a):
        for r in range(b):
            # my own idea
            for s in range(d):
                view = image[q, r::b, s::d]
                out.append(view[: b // 5, : d // 7].ravel())
    return np.stack(out) if out else np.zeros((5, 9))
"""
OTHER = """
def double(x):
    view = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(1, 2))[:, ::2, ::2]
    c, oh, ow, kh, kw = view.shape
    while False:
        raise ValueError("never")
    return view.transpose(0, 3, 4, 1, 2).reshape(c * kh * kw, oh * ow).astype(np.float32, copy=False)
"""
PAIR = Pair(
    ("ada", "bob"),
    40,
    0.9,
    (Passage(("P1.1", "P1.2"), ("x = f(y)\nz = 1", "a = f(b)"), (frozenset({1}), frozenset({1})), 40),),
)


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("<body>")[2]))


def test_it_tells_points_hardest_checks_reasons_and_who_was_late():
    good = record("bob", tasks=(task(1), task(2), task(3)), late=Lateness())
    text = text_of(class_report([record(), good], {}))
    assert "2 students, 2 submissions, 2 of them graded" in text
    assert "P1.2 Task 2 7.0 / 10 7 0 0 1 0 1" in text
    assert "P1.2 It is 2nd 1 of 2 =HYPERLINK" in text
    assert "1 checks failed for 1 reasons" in text
    assert "ada 1 −2.6" in text
    assert "1 late" in text


def test_alike_work_stands_side_by_side():
    page = class_report([record()], {"P1": Likeness(pairs=[PAIR], unread=[("eve", "P1.3")])})
    text = text_of(page)
    assert "ada bob 90% 40" in text
    assert "ada, P1.1 x = f ( y ) z = 1 bob, P1.2 a = f ( b )" in text
    assert page.count("<mark>") == 2
    assert "Not compared, since it is no Python that can be read: eve, P1.3" in text


def test_copies_of_the_package_are_named():
    copy = replace(PAIR, names=("ada", "mlhood/kernels/loops.py: gemm_naive"))
    text = text_of(class_report([record()], {"P1": Likeness(copies=[copy])}))
    assert "Copies of the package's source Who Of" in text.replace("&#x27;", "'")
    assert "ada mlhood/kernels/loops.py: gemm_naive 90% 40" in text


def test_nothing_of_a_student_is_markup():
    names = (HOSTILE, f"{HOSTILE}2")
    passage = replace(PAIR.passages[0], places=(HOSTILE, HOSTILE), sources=(HOSTILE, f"'{HOSTILE}'"))
    page = class_report(
        [
            record(HOSTILE, tasks=(task(1, "failed", HOSTILE), task(2, "failed", BOMB), task(3))),
            record("b", status="refused", reason=HOSTILE),
        ],
        {"P1": Likeness([replace(PAIR, names=names, passages=(passage,))], [], [(HOSTILE, HOSTILE)])},
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert") > 8
    assert "default-src 'none'" in page


def test_what_is_left_out_is_told():
    page = class_report([record()], {"P1": Likeness(pairs=[PAIR] * 60, unread=[("eve", "P1.3")] * 30)})
    assert "10 more are not listed" in page
    assert "and 10 more" in page
    assert page.count('<div class="pair">') == 15


def test_it_says_when_there_is_nothing_to_say():
    page = class_report([replace(record(), tasks=(task(1), task(2), task(3)), late=Lateness())], {})
    assert "No check has failed" in page
    assert "No two submissions" in page
    assert "<h3>Late</h3>" not in page


# -- from notebooks


def handed_in(store, course, texts: dict[str, str]):
    """Records whose notebooks, with this text as first task, lie in the store."""
    for student, text in texts.items():
        write(course.notebook(course.SOLUTIONS | {"T9.1": text}), store / f"{student}.ipynb")
    known = record().handed
    return [record(student, handed=replace(known, student=student, sha256=student)) for student in texts]


@pytest.mark.parametrize("with_given", [False, True])
def test_a_copy_in_disguise_is_found(course, tmp_path, with_given):
    found = handed_in(tmp_path, course, {"ada": ORIGINAL, "bob": DISGUISED, "eve": OTHER})
    write(course.notebook(course.EMPTY), tmp_path / "given.ipynb")
    alike = likeness(found, tmp_path, [tmp_path / "given.ipynb"] if with_given else [])["P1"]
    assert [(pair.names, pair.share) for pair in alike.pairs] == [(("ada", "bob"), 1.0)]
    assert alike.pairs[0].passages[0].places == ("T9.1", "T9.1")
    assert (alike.copies, alike.unread) == ([], [])


def test_a_copy_under_a_forged_label_is_found(course, tmp_path):
    found = handed_in(tmp_path, course, {"ada": ORIGINAL, "bob": DISGUISED})
    book = read(tmp_path / "bob.ipynb")
    cell = next(cell for cell in book.cells if cell.source == DISGUISED)
    cell.metadata["mlhood"]["role"] = "given"
    write(book, tmp_path / "bob.ipynb")
    assert len(likeness(found, tmp_path, [])["P1"].pairs) == 1


@pytest.mark.parametrize("where", ["in the package", "in a notebook", "nowhere"])
def test_what_was_given_is_no_copy(course, tmp_path, monkeypatch, where):
    found = handed_in(tmp_path, course, {"ada": OTHER, "eve": "def double(x):\n    return x + x"})
    for student in ("ada", "eve"):
        book = read(tmp_path / f"{student}.ipynb")
        book.cells.append(course.labelled(new_code_cell(ORIGINAL), "T9.2", "given"))
        write(book, tmp_path / f"{student}.ipynb")
    given = course.notebook(course.EMPTY)
    if where == "in a notebook":
        given.cells.append(new_code_cell(ORIGINAL))
    if where == "in the package":
        carried = (MasterCell("T9-2-given", "T9.2", "given", ORIGINAL),)
        monkeypatch.setattr("mlhood.grading.similarity.class_similarity.carried_cells", {"P1": carried}.__getitem__)
    write(given, tmp_path / "given.ipynb")
    pairs = likeness(found, tmp_path, [tmp_path / "given.ipynb"])["P1"].pairs
    assert len(pairs) == (1 if where == "nowhere" else 0)  # somebody has written it, under a forged label


def test_a_copy_of_the_package_is_found(course, tmp_path):
    original = next(one for one in own_source() if one.name.endswith("loops.py: gemm_blocked"))
    found = handed_in(tmp_path, course, {"ada": original.sources[original.name].replace("block", "step")})
    copies = likeness(found, tmp_path, [])["P1"].copies
    assert [pair.names for pair in copies] == [("ada", "mlhood/kernels/loops.py: gemm_blocked")]


def test_code_is_told_by_its_task_or_its_place(course):
    work = work_of(course.notebook(), "ada")
    assert {"T9.1", "T9.2", "T9.3", "cell 2", "cell 3"} <= set(work.sources)


def test_a_notebook_that_cannot_be_read_is_alike_with_nobody(course, tmp_path):
    found = handed_in(tmp_path, course, {"ada": ORIGINAL, "bob": DISGUISED})
    assert likeness(found, tmp_path, [])["P1"].pairs
    (tmp_path / "bob.ipynb").write_text("{")
    assert likeness(found, tmp_path, [])["P1"].pairs == []


def test_the_command_writes_the_page(room, course, tmp_path):
    room.hand_in(ada="P1", bob="P1")
    texts = {"ada": ORIGINAL, "bob": DISGUISED}
    for one in room.grade().records:
        book = course.notebook(course.SOLUTIONS | {"T9.1": texts[one.student]})
        write(book, room.out / "submissions" / f"{one.handed.sha256}.ipynb")
    result = call("class-report", room.out, "--to", tmp_path / "class.html")
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith("2 results, 1 pairs that are alike, 0 copies")
    text = text_of((tmp_path / "class.html").read_text())
    assert "ada bob 100%" in text
    assert "ada, T9.1" in text


def test_the_answers_to_questions_are_found(course, tmp_path):
    write(course.notebook(), tmp_path / "ada.ipynb")
    assert answers(tmp_path / "ada.ipynb") == {"T9.4": "Because."}
    assert answers(tmp_path / "absent.ipynb") == {}
