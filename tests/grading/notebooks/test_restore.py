"""Whatever a student does to the course's locked cells, the source notebook's run."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.execution.kernel import CellOutcome
from mlhood.grading.notebooks.restore import FEEDBACK_ROLES, fingerprint, grading_points, restore
from mlhood.grading.notebooks.source_notebook import dump_cells, parse_cells, project_cells, source_cells
from mlhood.grading.rpc import server
from tests.grading import given_course
from tests.grading.given_course import GIVEN, LOOK, add, by_id
from tests.grading.synthetic_course import SYNTHETIC

ROOT = Path(__file__).parents[3]
LOCKED = {"given": "T9-2-given", "check": "T9-2-check", "result": "T9-2-result"}


@pytest.fixture(autouse=True)
def synced(course, tmp_path, monkeypatch):
    given_course.sync(tmp_path / "synced", monkeypatch)


def running(book) -> list[str]:
    """The locked cells and the solutions in the order in which they run."""
    cells = restore(book, SYNTHETIC).cells
    return [cell.node.source for cell in cells if (cell.intact and cell.delays_grading) or cell.role == "solution"]


def restored_of(book, node):
    """The restored cell of a cell of the submission."""
    (cell,) = [cell for cell in restore(book, SYNTHETIC).cells if cell.node is node]
    return cell


def changes(book) -> list[tuple[str, str]]:
    return [(change.cell.name, change.kind) for change in restore(book, SYNTHETIC).changes]


def as_given() -> list[str]:
    book = given_course.notebook()
    return [cell.source for cell in book.cells if "mlhood" in cell.metadata and cell.cell_type == "code"]


def test_synced_cells_are_those_of_the_source():
    cells = project_cells(SYNTHETIC)
    assert parse_cells(dump_cells(cells)) == cells == source_cells(given_course.notebook())


# -- one cell of the course


@pytest.mark.parametrize("name", LOCKED.values(), ids=LOCKED)
def test_a_deleted_cell_is_inserted(name):
    book = given_course.notebook()
    book.cells.remove(by_id(book, name))
    assert running(book) == as_given()
    assert changes(book) == ([(name, "missing")] if name == LOCKED["given"] else [])


@pytest.mark.parametrize("name", LOCKED.values(), ids=LOCKED)
def test_an_edited_cell_is_the_students_and_the_original_follows(name):
    book = given_course.notebook()
    by_id(book, name).source = "double = 3"
    cells = restore(book, SYNTHETIC).cells
    assert running(book) == as_given()
    assert changes(book) == ([(name, "changed")] if name == LOCKED["given"] else [])
    edited = next(i for i, cell in enumerate(cells) if cell.node.source == "double = 3")
    assert not cells[edited].intact
    assert not cells[edited].role
    assert cells[edited + 1].intact


@pytest.mark.parametrize("name", LOCKED.values(), ids=LOCKED)
def test_a_comment_or_an_empty_line_is_no_edit(name):
    book = given_course.notebook()
    source = by_id(book, name).source
    by_id(book, name).source = "# what is this?\n\n" + source.replace("\n", "\n\n") + "   "
    assert running(book) == as_given()
    assert changes(book) == []
    assert len(restore(book, SYNTHETIC).cells) == len(book.cells)


@pytest.mark.parametrize("relabelled", [True, False], ids=["labelled as given", "without a label"])
def test_a_result_cell_of_an_earlier_version_is_recognised_by_its_source(relabelled):
    book = given_course.notebook()
    cell = by_id(book, "T9-2-result")
    cell.id = "T9-2-given-7" if relabelled else "given-7"
    cell.metadata = copy.deepcopy(by_id(book, "T9-2-given").metadata) if relabelled else {}
    if relabelled:
        cell.metadata["nbgrader"]["grade_id"] = cell.id
    restored = restored_of(book, cell)
    assert (restored.intact, restored.role, restored.delays_grading) == (True, "result", True)
    assert running(book) == as_given()
    assert changes(book) == []


@pytest.mark.parametrize("name", LOCKED.values(), ids=LOCKED)
@pytest.mark.parametrize("position", [0, 5, -1])
def test_a_copy_has_no_effect(name, position):
    book = given_course.notebook()
    duplicate = copy.deepcopy(by_id(book, name))
    duplicate.id = "duplicate"
    book.cells.insert(position if position >= 0 else len(book.cells), duplicate)
    assert running(book) == as_given()


@pytest.mark.parametrize("name", LOCKED.values(), ids=LOCKED)
def test_an_edited_copy_is_a_cell_of_the_students(name):
    book = given_course.notebook()
    copied = copy.deepcopy(by_id(book, name))
    copied.id, copied.source = "copy", "mine = 1"
    add(book, "T9-3-solution", copied)
    cell = restored_of(book, copied)
    assert (cell.intact, cell.role, cell.delays_grading) == (False, "", False)
    assert running(book) == as_given()


@pytest.mark.parametrize("name", LOCKED.values(), ids=LOCKED)
@pytest.mark.parametrize("position", [0, 3, -1])
def test_a_moved_cell_runs_in_its_original_place(name, position):
    book = given_course.notebook()
    cell = by_id(book, name)
    book.cells.remove(cell)
    book.cells.insert(position if position >= 0 else len(book.cells), cell)
    assert running(book) == as_given()
    assert changes(book) == []


@pytest.mark.parametrize("name", LOCKED.values(), ids=LOCKED)
def test_a_cell_that_has_become_text_is_inserted(name):
    book = given_course.notebook()
    by_id(book, name).cell_type = "markdown"
    assert running(book) == as_given()
    assert changes(book) == ([(name, "not code")] if name == LOCKED["given"] else [])


@pytest.mark.parametrize("seed", range(8))
def test_in_any_order_locked_cells_run_in_theirs_after_the_solutions_before_them(seed):
    book = given_course.notebook()
    random.Random(seed).shuffle(book.cells)
    order = running(book)
    assert sorted(order) == sorted(as_given())
    locked = [source for source in as_given() if source not in given_course.SOLUTIONS.values()]
    assert [source for source in order if source in locked] == locked
    assert order.index(given_course.SOLUTIONS["T9.2"]) < order.index(GIVEN)
    students = [cell for cell in book.cells if cell.source not in locked]
    assert [cell.node for cell in restore(book, SYNTHETIC).cells if not cell.intact] == students


def test_cells_of_the_student_stay_beside_their_neighbours():
    book = given_course.notebook()
    extra = [new_code_cell(f"extra = {number}") for number in range(3)]
    for after, cell in zip(["T9-2-solution", "T9-2-given", "T9-2-check"], extra, strict=True):
        add(book, after, cell)
    restored = restore(book, SYNTHETIC)
    assert [cell.node for cell in restored.cells] == book.cells
    assert restored.changes == ()


def test_an_inserted_cell_runs_after_a_solution_in_an_added_cell():
    book = given_course.notebook()
    by_id(book, "T9-2-solution").source = ""
    add(book, "T9-2-solution", new_code_cell("def text(number): return str(number)"))
    book.cells.remove(by_id(book, "T9-2-given"))
    sources = [cell.node.source for cell in restore(book, SYNTHETIC).cells]
    assert sources.index("def text(number): return str(number)") < sources.index(GIVEN)


# -- labels


@pytest.mark.parametrize("role", ["given", "check", "result"])
def test_a_label_does_not_make_a_cell_locked(role):
    book = given_course.notebook()
    cell = by_id(book, "T9-1-solution")
    cell.id = f"T9-2-{role}"
    cell.metadata["mlhood"] = {"task": "T9.2", "role": role}
    cell.metadata["nbgrader"]["grade_id"] = f"T9-2-{role}"
    assert not restored_of(book, cell).intact
    assert running(book)[:1] == ['mlhood.check("T9.1")']
    assert ("T9-1-solution", "missing") in changes(book)


def test_contradictory_labels_do_not_matter():
    book = given_course.notebook()
    cell = by_id(book, "T9-1-solution")
    cell.metadata["mlhood"] = {"task": "T9.2", "role": "given"}
    restored = restored_of(book, cell)
    assert (restored.intact, restored.task, restored.role) == (False, "T9.1", "solution")


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
def test_one_source_of_the_names_is_enough(lost):
    book = given_course.notebook()
    for lose in lost:
        lose(book)
    restored = restore(book, SYNTHETIC)
    assert [cell.node for cell in restored.cells] == book.cells
    assert running(book) == as_given()
    assert restored.changes == ()


def test_copies_of_a_solution_all_run_and_the_first_one_counts_for_grading():
    book = given_course.notebook()
    duplicate = copy.deepcopy(by_id(book, "T9-1-solution"))
    duplicate.id = "duplicate"
    book.cells.append(duplicate)
    restored = restore(book, SYNTHETIC)
    assert [cell.node for cell in restored.cells] == book.cells
    assert list(grading_points(restored.cells, SYNTHETIC)) == [5, 10, 13]


# -- through the grading


class LocalKernel:
    """A kernel without a process, since here it matters only which cells run."""

    def __init__(self, folder: Path, libraries: None) -> None:
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
            return CellOutcome(str(error))
        return CellOutcome()

    def send(self, request, seconds):
        return server.handle_request(request, self.names)

    def fetch(self, path):
        pass


@pytest.fixture
def local_kernel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mlhood.grading.execution.kernel.Kernel", LocalKernel)


def deleted(book):
    for name in LOCKED.values():
        book.cells.remove(by_id(book, name))


def edited(book):
    by_id(book, LOCKED["given"]).source = "from pathlib import Path\nPath('answer.txt').write_text('13')"
    by_id(book, LOCKED["check"]).source = "earned = 100"
    by_id(book, LOCKED["result"]).source = "print('edited')"


def duplicated(book):
    for name in [*LOCKED.values(), "T9-1-solution", "T9-2-solution"]:
        duplicate = copy.deepcopy(by_id(book, name))
        duplicate.id = f"{name}-copy"
        add(book, name, duplicate)


def reversed_order(book):
    book.cells[2:] = reversed(book.cells[2:])


def stripped(book):
    book.cells = [new_code_cell(cell.source) for cell in book.cells if cell.cell_type == "code"]


def relabelled(book):
    labels = [copy.deepcopy((cell.id, cell.metadata)) for cell in book.cells[3:]]
    for cell, (name, metadata) in zip(book.cells[3:], [*labels[2:], *labels[:2]], strict=True):
        cell.id, cell.metadata = name, metadata


@pytest.mark.parametrize("spoil", [deleted, edited, duplicated, reversed_order, stripped, relabelled])
@pytest.mark.parametrize("solved", [True, False])
def test_marks_are_those_of_the_solutions(spoil, solved, local_kernel, tmp_path):
    wrong = {"T9.1": "def double(x):\n    return 3", "T9.2": "def text(number):\n    return 'no'", "T9.3": ""}
    book = given_course.notebook(given_course.SOLUTIONS if solved else wrong)
    spoil(book)
    marks = grade(book, SYNTHETIC, tmp_path, RunSettings(3))
    assert [task.earned for task in marks.tasks] == ([40, 20, 20] if solved else [0, 0, 0])
    assert not (tmp_path / "looked").exists()


def test_a_weakened_given_cell_does_not_help(tmp_path):
    book = given_course.notebook(given_course.SOLUTIONS | {"T9.2": "def text(number):\n    return 'wrong'"})
    by_id(book, LOCKED["given"]).source = "open('answer.txt', 'w').write('42')"
    marks = grade(book, SYNTHETIC, tmp_path, RunSettings(0))
    assert [task.earned for task in marks.tasks] == [40, 0, 20]
    note = "the given cell of T9.2 was changed: your version runs first, then the cell as it was given"
    assert note in marks.tasks[1].notes


def test_for_its_author_a_notebook_runs_as_submitted(local_kernel, tmp_path):
    book = given_course.notebook()
    by_id(book, LOCKED["given"]).source = "from pathlib import Path\nPath('answer.txt').write_text('13')"
    marks = grade(book, SYNTHETIC, tmp_path, RunSettings(0, run_check_cells=True))
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


def test_only_a_limited_amount_of_code_is_parsed_and_locked_cells_run_all_the_same(monkeypatch):
    book = given_course.notebook()
    book.cells[:0] = [new_code_cell(f"x = {i}") for i in range(100)]
    read_sources = []
    monkeypatch.setattr("mlhood.grading.notebooks.restore.MAX_SOURCE_CHARACTERS", 100)
    monkeypatch.setattr(
        "mlhood.grading.notebooks.restore.fingerprint", lambda source: read_sources.append(source) or source
    )
    assert running(book) == as_given()
    assert "x = 1" in read_sources
    assert "x = 99" not in read_sources


def test_the_roles_that_grading_skips_are_feedback():
    book = given_course.notebook()
    roles = {cell.role for cell in restore(book, SYNTHETIC).cells if cell.intact}
    assert roles == {"given", *FEEDBACK_ROLES}
    assert LOOK in running(book)
