from __future__ import annotations

import re
from dataclasses import replace

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.submission import Reached
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.gradebook.records import Record
from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.notebooks.source_notebook import SourceCell
from mlhood.grading.progress import ignore
from mlhood.grading.reports.class_report import class_report
from mlhood.grading.similarity import Passage, SimilarCode, Similarity, compare_class, document_of, package_functions
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
PAIR = SimilarCode(
    ("ada", "bob"),
    40,
    0.9,
    (Passage(("P1.1", "P1.2"), ("x = f(y)\nz = 1", "a = f(b)"), (frozenset({1}), frozenset({1}))),),
)


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("<body>")[2]))


def test_it_shows_points_hardest_checks_and_late_submissions():
    good = record("bob", tasks=(task(1), task(2), task(3)), late=Lateness())
    text = text_of(class_report([record(), good], {}))
    assert "2 students, 2 submissions, 2 of them graded" in text
    assert "P1.2 Task 2 7.0 / 10 7 0 0 1 0 1" in text
    assert "P1.2 It is 2nd 1 of 2 =HYPERLINK" in text
    assert "ada 1 −2.6" in text
    assert "1 late" in text


def reached(student: str, value: float, **changes) -> Record:
    figure = Reached(value, 1000.0, smaller_is_better=True, figure="cycles")
    return record(student, tasks=(task(1), replace(task(2), reached=figure, **changes), task(3)))


def test_open_tasks_have_a_ranking_without_names():
    class_ = [reached("ada", 1200), reached("bob", 900), reached("cleo", 1200)]
    page = class_report(class_, {})
    ranking = page.partition("Ranking of P1.2")[2].partition("</table>")[0]
    assert "1 900 1 – 1,000 the course's own 2 1,200 2" in text_of(f"<body>{ranking}")
    assert not any(name in ranking for name in ("ada", "bob", "cleo"))
    assert "Ranking" not in class_report([record()], {})


def test_it_lists_what_the_instructor_has_to_decide():
    undecided = record("eve", tasks=(task(1), task(2, "undecided", f"noise {HOSTILE}"), task(3)))
    page = class_report([record(), undecided], {})
    assert "1 tasks have checks that you decide on" in text_of(page)
    assert "eve P1.2 noise &lt;script&gt;alert(1)&lt;/script&gt; 4 of 10" in text_of(page)
    assert HOSTILE not in page
    assert "Undecided" not in text_of(class_report([record()], {}))


def test_it_says_what_was_assumed_about_lateness():
    unknown = [record(student, late=Lateness(note="the time is unknown")) for student in ("ada", "bob")]
    assert "2 submissions: the time is unknown." in text_of(class_report(unknown, {}))


def test_similar_code_is_shown_side_by_side():
    page = class_report([record()], {"P1": Similarity(similar=[PAIR], incomplete=[("eve", "P1.3")])})
    text = text_of(page)
    assert "ada, bob 90% 40" in text
    assert "ada, P1.1 x = f ( y ) z = 1 bob, P1.2 a = f ( b )" in text
    assert page.count("<mark>") == 2
    assert "the code cannot be parsed or is too long: eve, P1.3" in text


def test_copies_of_the_package_are_listed():
    copy = replace(PAIR, names=("ada", "mlhood/kernels/loops.py: gemm_naive"))
    text = text_of(class_report([record()], {"P1": Similarity(copies=[copy])}))
    assert "Copies of the package's source and of the course's solutions Who" in text.replace("&#39;", "'")
    assert "ada, mlhood/kernels/loops.py: gemm_naive 90% 40" in text


def test_no_text_of_a_student_is_markup():
    names = (HOSTILE, f"{HOSTILE}2")
    passage = replace(PAIR.passages[0], places=(HOSTILE, HOSTILE), sources=(HOSTILE, f"'{HOSTILE}'"))
    page = class_report(
        [
            record(HOSTILE, tasks=(task(1, "failed", HOSTILE), task(2, "failed", BOMB), task(3))),
            record("b", status="refused", reason=HOSTILE),
        ],
        {"P1": Similarity([replace(PAIR, names=names, passages=(passage,))], [], [(HOSTILE, HOSTILE)])},
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert") > 8
    assert "default-src 'none'" in page


def test_the_page_says_what_it_leaves_out():
    page = class_report([record()], {"P1": Similarity(similar=[PAIR] * 60, incomplete=[("eve", "P1.3")] * 30)})
    assert "10 more are not listed" in page
    assert "and 10 more" in page
    assert page.count('<div class="pair">') == 15


def test_there_is_a_page_if_nothing_was_found():
    page = class_report([replace(record(), tasks=(task(1), task(2), task(3)), late=Lateness())], {})
    assert "No check has failed" in page
    assert "No two submissions" in page
    assert "<h3>Late</h3>" not in page


# -- from notebooks


def stored(store, course, texts: dict[str, str]):
    """Return records whose notebooks, with this solution of the first task, are in the store."""
    for student, text in texts.items():
        write(course.notebook(course.SOLUTIONS | {"T9.1": text}), store / f"{student}.ipynb")
    submission = record().submission
    return [record(student, submission=replace(submission, student=student, sha256=student)) for student in texts]


@pytest.mark.parametrize("with_given", [False, True])
def test_a_disguised_copy_is_found(course, tmp_path, with_given):
    results = stored(tmp_path, course, {"ada": ORIGINAL, "bob": DISGUISED, "eve": OTHER})
    write(course.notebook(course.EMPTY), tmp_path / "given.ipynb")
    similarity = compare_class(results, tmp_path, [tmp_path / "given.ipynb"] if with_given else [], ignore)["P1"]
    assert [(pair.names, pair.share) for pair in similarity.similar] == [(("ada", "bob"), 1.0)]
    assert similarity.similar[0].passages[0].places == ("T9.1", "T9.1")
    assert (similarity.copies, similarity.incomplete) == ([], [])


def test_a_copy_under_a_forged_label_is_found(course, tmp_path):
    results = stored(tmp_path, course, {"ada": ORIGINAL, "bob": DISGUISED})
    book = read(tmp_path / "bob.ipynb")
    cell = next(cell for cell in book.cells if cell.source == DISGUISED)
    cell.metadata["mlhood"]["role"] = "given"
    write(book, tmp_path / "bob.ipynb")
    assert len(compare_class(results, tmp_path, [], ignore)["P1"].similar) == 1


@pytest.mark.parametrize("where", ["in the package", "in a notebook", "nowhere"])
def test_base_code_is_no_copy(course, tmp_path, monkeypatch, where):
    results = stored(tmp_path, course, {"ada": OTHER, "eve": "def double(x):\n    return x + x"})
    for student in ("ada", "eve"):
        book = read(tmp_path / f"{student}.ipynb")
        book.cells.append(course.labelled(new_code_cell(ORIGINAL), "T9.2", "given"))
        write(book, tmp_path / f"{student}.ipynb")
    given = course.notebook(course.EMPTY)
    if where == "in a notebook":
        given.cells.append(new_code_cell(ORIGINAL))
    if where == "in the package":
        carried = (SourceCell("T9-2-given", "T9.2", "given", ORIGINAL),)
        monkeypatch.setattr("mlhood.grading.similarity.synced_cells", {"P1": carried}.__getitem__)
    write(given, tmp_path / "given.ipynb")
    pairs = compare_class(results, tmp_path, [tmp_path / "given.ipynb"], ignore)["P1"].similar
    assert len(pairs) == (1 if where == "nowhere" else 0)  # then a student has written it, under a forged label


def test_a_copy_of_the_package_is_found(course, tmp_path):
    original = next(document for document in package_functions() if document.name.endswith("loops.py: gemm_packed"))
    results = stored(tmp_path, course, {"ada": original.sources[original.name].replace("panel", "part")})
    copies = compare_class(results, tmp_path, [], ignore)["P1"].copies
    assert [pair.names for pair in copies] == [("ada", "mlhood/kernels/loops.py: gemm_packed")]


def test_code_is_grouped_by_task_or_cell(course):
    document = document_of(course.notebook(), "ada")
    assert {"T9.1", "T9.2", "T9.3", "cell 2", "cell 3"} <= set(document.sources)


def test_a_notebook_that_cannot_be_read_is_similar_to_none(course, tmp_path):
    results = stored(tmp_path, course, {"ada": ORIGINAL, "bob": DISGUISED})
    assert compare_class(results, tmp_path, [], ignore)["P1"].similar
    (tmp_path / "bob.ipynb").write_text("{")
    assert compare_class(results, tmp_path, [], ignore)["P1"].similar == []


def test_the_command_writes_the_page(fake_class, course, tmp_path):
    fake_class.submit(ada="P1", bob="P1")
    texts = {"ada": ORIGINAL, "bob": DISGUISED}
    for graded in fake_class.grade().records:
        book = course.notebook(course.SOLUTIONS | {"T9.1": texts[graded.student]})
        write(book, fake_class.out / "submissions" / f"{graded.submission.sha256}.ipynb")
    result = call("class-report", fake_class.out, "--to", tmp_path / "class.html")
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith(
        f"{tmp_path / 'class.html'}: results 2, groups with similar code 1, copies of the course's own source 0"
    )
    text = text_of((tmp_path / "class.html").read_text())
    assert "ada, bob 100%" in text
    assert "ada, T9.1" in text
