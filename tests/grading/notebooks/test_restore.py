"""Whatever becomes of the course's own cells in a submission, what is run are the master's."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.execution import grade_notebook as grading
from mlhood.grading.execution.grade_notebook import grade
from mlhood.grading.execution.kernel import Outcome
from mlhood.grading.notebooks.master import as_cells, as_text, cells_of, master_cells
from mlhood.grading.notebooks.restore import FOR_THE_STUDENT, fingerprint, judging_points, rebuild
from mlhood.grading.rpc import server
from tests.grading import given_course
from tests.grading.given_course import GIVEN, LOOK, add, by_id
from tests.grading.synthetic_course import SYNTHETIC

ROOT = Path(__file__).parents[3]
MASTERS = sorted(ROOT.glob("P[1-9].ipynb"))
OWN = {"given": "T9-2-given", "check": "T9-2-check", "result": "T9-2-result"}


@pytest.fixture(autouse=True)
def carries(course, tmp_path, monkeypatch):
    given_course.carry(tmp_path / "carried", monkeypatch)


def own(book) -> list[str]:
    """The course's own cells in the order in which they run, with the solutions among them."""
    parts = rebuild(book, SYNTHETIC).parts
    return [part.cell.source for part in parts if (part.own and part.last) or part.role == "solution"]


def changed(book) -> list[tuple[str, str]]:
    return [(one.cell.name, one.kind) for one in rebuild(book, SYNTHETIC).changes]


def as_given() -> list[str]:
    book = given_course.notebook()
    return [cell.source for cell in book.cells if "mlhood" in cell.metadata and cell.cell_type == "code"]


def test_the_package_carries_the_cells_of_the_master():
    assert as_cells(as_text(cells_of(SYNTHETIC))) == cells_of(SYNTHETIC) == master_cells(given_course.notebook())


# -- one cell of the course


@pytest.mark.parametrize("name", OWN.values(), ids=OWN)
def test_a_deleted_cell_is_put_in(name):
    book = given_course.notebook()
    book.cells.remove(by_id(book, name))
    assert own(book) == as_given()
    assert changed(book) == [(name, "missing")]


@pytest.mark.parametrize("name", OWN.values(), ids=OWN)
def test_an_edited_cell_is_the_students_and_the_courses_own_follows(name):
    book = given_course.notebook()
    by_id(book, name).source = "double = 3"
    found = rebuild(book, SYNTHETIC)
    assert own(book) == as_given()
    assert changed(book) == [(name, "changed")]
    at = next(at for at, part in enumerate(found.parts) if part.cell.source == "double = 3")
    assert not found.parts[at].own
    assert not found.parts[at].role
    assert found.parts[at + 1].own


@pytest.mark.parametrize("name", OWN.values(), ids=OWN)
def test_a_comment_or_an_empty_line_is_no_edit(name):
    book = given_course.notebook()
    source = by_id(book, name).source
    by_id(book, name).source = "# what is this?\n\n" + source.replace("\n", "\n\n") + "   "
    assert own(book) == as_given()
    assert changed(book) == []
    assert len(rebuild(book, SYNTHETIC).parts) == len(book.cells)


@pytest.mark.parametrize("relabelled", [True, False], ids=["labelled as given", "without a label"])
def test_a_result_cell_of_an_earlier_edition_is_recognised_by_its_source(relabelled):
    book = given_course.notebook()
    cell = by_id(book, "T9-2-result")
    cell.id = "T9-2-given-7" if relabelled else "given-7"
    cell.metadata = copy.deepcopy(by_id(book, "T9-2-given").metadata) if relabelled else {}
    if relabelled:
        cell.metadata["nbgrader"]["grade_id"] = cell.id
    (part,) = [part for part in rebuild(book, SYNTHETIC).parts if part.cell is cell]
    assert (part.own, part.role, part.last) == (True, "result", True)
    assert own(book) == as_given()
    assert changed(book) == []


@pytest.mark.parametrize("name", OWN.values(), ids=OWN)
@pytest.mark.parametrize("where", [0, 5, -1])
def test_a_copy_counts_for_nothing(name, where):
    book = given_course.notebook()
    twin = copy.deepcopy(by_id(book, name))
    twin.id = "twin"
    book.cells.insert(where if where >= 0 else len(book.cells), twin)
    assert own(book) == as_given()
    assert (name, "doubled") in changed(book)


@pytest.mark.parametrize("name", OWN.values(), ids=OWN)
def test_an_edited_copy_is_a_cell_of_the_students(name):
    book = given_course.notebook()
    twin = copy.deepcopy(by_id(book, name))
    twin.id, twin.source = "twin", "mine = 1"
    add(book, "T9-3-solution", twin)
    (part,) = [part for part in rebuild(book, SYNTHETIC).parts if part.cell is twin]
    assert (part.own, part.role, part.last) == (False, "", False)
    assert own(book) == as_given()
    assert changed(book) == [(name, "doubled")]


@pytest.mark.parametrize("name", OWN.values(), ids=OWN)
@pytest.mark.parametrize("where", [0, 3, -1])
def test_a_moved_cell_runs_in_its_own_place(name, where):
    book = given_course.notebook()
    cell = by_id(book, name)
    book.cells.remove(cell)
    book.cells.insert(where if where >= 0 else len(book.cells), cell)
    assert own(book) == as_given()
    assert changed(book) == [(name, "moved")]


@pytest.mark.parametrize("name", OWN.values(), ids=OWN)
def test_a_cell_that_has_become_text_is_put_in(name):
    book = given_course.notebook()
    by_id(book, name).cell_type = "markdown"
    assert own(book) == as_given()
    assert changed(book) == [(name, "turned")]


@pytest.mark.parametrize("seed", range(8))
def test_in_any_order_the_courses_own_keep_theirs_after_the_solutions_before_them(seed):
    book = given_course.notebook()
    random.Random(seed).shuffle(book.cells)
    order = own(book)
    assert sorted(order) == sorted(as_given())
    names = [source for source in as_given() if source not in given_course.SOLUTIONS.values()]
    assert [source for source in order if source in names] == names
    assert order.index(given_course.SOLUTIONS["T9.2"]) < order.index(GIVEN)
    students = [cell for cell in book.cells if cell.source not in names]
    assert [part.cell for part in rebuild(book, SYNTHETIC).parts if not part.own] == students


def test_cells_of_the_student_stay_beside_their_neighbours():
    book = given_course.notebook()
    extra = [new_code_cell(f"extra = {number}") for number in range(3)]
    for after, cell in zip(["T9-2-solution", "T9-2-given", "T9-2-check"], extra, strict=True):
        add(book, after, cell)
    found = rebuild(book, SYNTHETIC)
    assert [part.cell for part in found.parts] == book.cells
    assert found.changes == ()


def test_what_is_put_in_comes_after_a_solution_in_an_added_cell():
    book = given_course.notebook()
    by_id(book, "T9-2-solution").source = ""
    add(book, "T9-2-solution", new_code_cell("def text(number): return str(number)"))
    book.cells.remove(by_id(book, "T9-2-given"))
    sources = [part.cell.source for part in rebuild(book, SYNTHETIC).parts]
    assert sources.index("def text(number): return str(number)") < sources.index(GIVEN)


# -- labels


@pytest.mark.parametrize("role", ["given", "check", "result"])
def test_a_label_makes_no_cell_the_courses(role):
    book = given_course.notebook()
    cell = by_id(book, "T9-1-solution")
    cell.id = f"T9-2-{role}"
    cell.metadata["mlhood"] = {"task": "T9.2", "role": role}
    cell.metadata["nbgrader"]["grade_id"] = f"T9-2-{role}"
    (part,) = [part for part in rebuild(book, SYNTHETIC).parts if part.cell is cell]
    assert not part.own
    assert own(book)[:1] == ['mlhood.check("T9.1")']
    assert ("T9-1-solution", "missing") in changed(book)


def test_labels_that_contradict_each_other_are_no_matter():
    book = given_course.notebook()
    cell = by_id(book, "T9-1-solution")
    cell.metadata["mlhood"] = {"task": "T9.2", "role": "given"}
    (part,) = [part for part in rebuild(book, SYNTHETIC).parts if part.cell is cell]
    assert (part.own, part.task, part.role) == (False, "T9.1", "solution")


def bare_ids(book):
    for number, cell in enumerate(book.cells):
        cell.id = str(number)


def no_nbgrader(book):
    for cell in book.cells:
        cell.metadata.pop("nbgrader", None)


def no_mlhood(book):
    for cell in book.cells:
        cell.metadata.pop("mlhood", None)


@pytest.mark.parametrize(
    "lost", [[bare_ids], [no_nbgrader], [no_mlhood], [bare_ids, no_nbgrader], [no_nbgrader, no_mlhood]]
)
def test_one_home_of_the_names_is_enough(lost):
    book = given_course.notebook()
    for lose in lost:
        lose(book)
    found = rebuild(book, SYNTHETIC)
    assert [part.cell for part in found.parts] == book.cells
    assert own(book) == as_given()
    assert found.changes == ()


def test_copies_of_a_solution_all_run_and_the_first_says_where():
    book = given_course.notebook()
    twin = copy.deepcopy(by_id(book, "T9-1-solution"))
    twin.id = "twin"
    book.cells.append(twin)
    found = rebuild(book, SYNTHETIC)
    assert [part.cell for part in found.parts] == book.cells
    assert list(judging_points(found.parts, SYNTHETIC)) == [5, 10, 13]
    assert changed(book) == [("T9-1-solution", "doubled")]


# -- through the marking


class AtOnce:
    """A kernel without a process, since here it matters only what is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = self.scratch = folder
        self.names: dict = {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def run(self, cell, seconds):
        try:
            exec(cell.source, self.names)
        except Exception as error:
            return Outcome(str(error))
        return Outcome()

    def ask(self, request, seconds):
        return server.answer(request, self.names)

    def fetch(self, path):
        pass


@pytest.fixture
def at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grading, "Kernel", AtOnce)


def deleted(book):
    for name in OWN.values():
        book.cells.remove(by_id(book, name))


def edited(book):
    by_id(book, OWN["given"]).source = "from pathlib import Path\nPath('answer.txt').write_text('13')"
    by_id(book, OWN["check"]).source = "earned = 100"
    by_id(book, OWN["result"]).source = "print('edited')"


def doubled(book):
    for name in [*OWN.values(), "T9-1-solution", "T9-2-solution"]:
        twin = copy.deepcopy(by_id(book, name))
        twin.id = f"{name}-twin"
        add(book, name, twin)


def turned_round(book):
    book.cells[2:] = reversed(book.cells[2:])


def stripped(book):
    book.cells = [new_code_cell(cell.source) for cell in book.cells if cell.cell_type == "code"]


def relabelled(book):
    labels = [copy.deepcopy((cell.id, cell.metadata)) for cell in book.cells[3:]]
    for cell, (name, metadata) in zip(book.cells[3:], [*labels[2:], *labels[:2]], strict=True):
        cell.id, cell.metadata = name, metadata


@pytest.mark.parametrize("spoil", [deleted, edited, doubled, turned_round, stripped, relabelled])
@pytest.mark.parametrize("solved", [True, False])
def test_marks_are_those_of_the_solutions(spoil, solved, at_once, tmp_path):
    wrong = {"T9.1": "def double(x):\n    return 3", "T9.2": "def text(number):\n    return 'no'", "T9.3": ""}
    book = given_course.notebook(given_course.SOLUTIONS if solved else wrong)
    spoil(book)
    marks = grade(book, SYNTHETIC, tmp_path, seed=3)
    assert [task.earned for task in marks.tasks] == ([40, 20, 20] if solved else [0, 0, 0])
    assert not (tmp_path / "looked").exists()


def test_a_weaker_given_cell_saves_nobody(tmp_path):
    book = given_course.notebook(given_course.SOLUTIONS | {"T9.2": "def text(number):\n    return 'wrong'"})
    by_id(book, OWN["given"]).source = "open('answer.txt', 'w').write('42')"
    marks = grade(book, SYNTHETIC, tmp_path)
    assert [task.earned for task in marks.tasks] == [40, 0, 20]
    note = "the given cell of T9.2 was changed: your version runs first, then the cell as it was given"
    assert note in marks.tasks[1].notes


def test_what_a_notebook_shows_its_author_is_as_it_stands(at_once, tmp_path):
    book = given_course.notebook()
    by_id(book, OWN["given"]).source = "from pathlib import Path\nPath('answer.txt').write_text('13')"
    marks = grade(book, SYNTHETIC, tmp_path, run_check_cells=True)
    assert [task.earned for task in marks.tasks] == [40, 0, 20]
    assert (tmp_path / "looked").exists()


# -- content


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("x = 1", "x=1  # one", True),
        ("f( 1,\n   2)", "f(1, 2)", True),
        ("x = 1", "x = 2", False),
        ("x = '# 1'", "x = '# 2'", False),
        ("%time f()", "%time f()  ", True),
        ("%time f()", "%time g()", False),
        ("x = '\\d'", 'x = "\\d"', True),
        ("(" * 5000, "(" * 5001, False),
        ("x = 1\n" * 9000, "x = 1\n" * 9000, True),
    ],
)
def test_fingerprint(left, right, same):
    assert (fingerprint(left) == fingerprint(right)) is same


def test_only_so_much_code_is_read_and_the_courses_own_runs_all_the_same(monkeypatch):
    book = given_course.notebook()
    book.cells[:0] = [new_code_cell(f"x = {at}") for at in range(100)]
    read_sources = []
    monkeypatch.setattr("mlhood.grading.notebooks.restore.MAX_SOURCE", 100)
    monkeypatch.setattr(
        "mlhood.grading.notebooks.restore.fingerprint", lambda source: read_sources.append(source) or source
    )
    assert own(book) == as_given()
    assert "x = 1" in read_sources
    assert "x = 99" not in read_sources


def test_what_the_marking_leaves_out_is_for_the_student():
    book = given_course.notebook()
    roles = {part.role for part in rebuild(book, SYNTHETIC).parts if part.own}
    assert roles == {"given", *FOR_THE_STUDENT}
    assert LOOK in own(book)
