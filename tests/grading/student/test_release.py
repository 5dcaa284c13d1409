from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.utils import compute_checksum

from mlhood.errors import GradingError, NotebookError, OutputError
from mlhood.grading.execution.grade_notebook import grade_file
from mlhood.grading.notebooks.notebook import course_notebooks, read, write, write_text
from mlhood.grading.notebooks.source_notebook import checksum, stub_solutions, student_version
from mlhood.grading.notebooks.sync import cell_files
from mlhood.grading.student.release import release, version_files
from mlhood.grading.student.version_files import package_files, student_project, text_files

REPOSITORY = Path(__file__).parents[3]
CELLS = "mlhood/grading/projects/t9/cells.json"


@pytest.fixture
def root(course, tmp_path):
    """The folder of a small course."""
    root = tmp_path / "course"
    book = course.notebook()
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.execution_count = 3
            cell.outputs = [course.NotebookNode(output_type="stream", name="stdout", text=f"from {cell.id}")]
    course.write_course(root, book)
    (root / "mlhood" / "__pycache__").mkdir()
    (root / "mlhood" / "__pycache__" / "task.pyc").write_bytes(b"\xff")
    (root / "tests" / "attacks").mkdir(parents=True)
    (root / "tests" / "attacks" / "solved.ipynb").write_text("secret")
    return root


def test_rubrics_and_parts_of_solutions_stay_with_the_graders(root, tmp_path):
    notebook = read(root / "P1.ipynb")
    notebook.cells.insert(-1, new_markdown_cell("**T9.4 · Why two?** Say it."))
    notebook.cells[-1].source += "\n\n| rubric | points |\n|---|---|\n| a reason | 2 |\n"
    write(notebook, root / "P1.ipynb")
    for name, text in cell_files([root / "P1.ipynb"]).items():
        write_text(root / name, text)
    folder = release(root, tmp_path / "student").folder
    assert not [cell for cell in read(folder / "P1.ipynb").cells if "rubric" in cell.source]
    assert not [path for path in folder.rglob("*") if path.name == "questions.json"]


def test_student_version(root, tmp_path, course):
    done = release(root, tmp_path / "student")
    paths = [path for path in done.folder.rglob("*") if path.is_file()]
    assert {path.relative_to(done.folder).as_posix() for path in paths} == {
        *("P1.ipynb", "pyproject.toml", "README.md", "LICENSE", ".gitignore", ".github/workflows/classroom.yml"),
        *(name for name in course.PACKAGE if "intake" not in name),
        CELLS,
    }
    assert done.autograder is None
    assert "P1.ipynb" in (done.folder / "README.md").read_text()


def test_what_the_notebooks_write_is_ignored_as_in_the_course():
    ours = (Path(__file__).parents[3] / ".gitignore").read_text(encoding="utf-8")
    written = ours[ours.index("# what the notebooks") :].splitlines()
    assert len(written) > 5
    assert set(written) <= set(text_files(["P1.ipynb"])[".gitignore"].splitlines())


def test_pages_and_pictures_that_the_text_links_to_are_in_it(root, tmp_path):
    pages = {"pages/one.md": "![b](../images/b.svg) [other](two.md)", "pages/two.md": "", "../outside.md": ""}
    pictures = {"images/a.png": b"\x89PNG\xff", "images/b.svg": b"<svg/>", "images/c.png": b""}
    for name, data in {**{name: text.encode() for name, text in pages.items()}, **pictures}.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    book = read(root / "P1.ipynb")
    links = (
        "![a](images/a.png) [one](pages/one.md#top) [gone](pages/gone.md) [out](../outside.md) [w](https://a.b/c.md)"
    )
    book.cells.append(new_markdown_cell(links))
    write(book, root / "P1.ipynb")
    for name, text in cell_files([root / "P1.ipynb"]).items():
        write_text(root / name, text)
    student = release(root, tmp_path / "student").folder
    assert (student / "images" / "a.png").read_bytes() == pictures["images/a.png"]
    assert (student / "images" / "b.svg").is_file()
    assert (student / "pages" / "one.md").read_text() == pages["pages/one.md"]
    assert not any((student / name).exists() for name in ("images/c.png", "pages/two.md", "outside.md"))


def test_every_local_link_of_the_courses_notebooks_leads_somewhere():
    source_notebooks = {path.name: read(path) for path in course_notebooks(REPOSITORY)}
    files = version_files(REPOSITORY, source_notebooks, package_files(REPOSITORY))
    for name in [name for name in files if name.endswith(".ipynb")]:
        cells = nbformat.reads(files[name].decode(), 4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        targets = re.findall(r"\]\(([\w./-]+\.\w+)[)#]", text)
        assert [target for target in targets if target not in files] == [], name


def test_notebook_has_stubs_and_keeps_given_outputs(root, tmp_path, course):
    release(root, tmp_path / "student")
    book = read(tmp_path / "student" / "P1.ipynb")
    cells = {cell.id: cell for cell in book.cells}
    for task, stub in course.EMPTY.items():
        assert cells[f"{task.replace('.', '-')}-solution"].source == stub
    assert cells["T9-4-question"].source == "YOUR ANSWER HERE"
    assert cells["imports"].outputs[0].text == "from imports"
    assert cells["T9-1-solution"].outputs == cells["T9-1-check"].outputs == []
    assert cells["T9-1-check"].source == 'mlhood.check("T9.1")'
    assert {cell.execution_count for cell in book.cells if cell.cell_type == "code"} == {None}
    assert cells["T9-1-check"].metadata.editable is False
    assert "editable" not in cells["T9-1-solution"].metadata


def test_checksums_are_nbgraders(root, tmp_path):
    release(root, tmp_path / "student")
    graded = [c for c in read(tmp_path / "student" / "P1.ipynb").cells if "nbgrader" in c.metadata]
    assert len(graded) == 7
    for cell in graded:
        assert cell.metadata.nbgrader.checksum == compute_checksum(cell) == checksum(cell)


def test_released_notebook_gets_no_points_but_reasons(root, tmp_path):
    release(root, tmp_path / "student")
    marks = grade_file(tmp_path / "student" / "P1.ipynb")
    assert (marks.earned, marks.points) == (0, 80)
    reasons = [check.what for task in marks.tasks for check in task.checks if check.status == "failed"]
    assert reasons[0] == "`double` is not written yet"


@pytest.mark.exhaustive
def test_released_notebook_runs_in_jupyter(root, tmp_path):
    release(root, tmp_path / "student")
    options = ["--to", "notebook", "--execute", "--allow-errors", "P1.ipynb", "--output", "run.ipynb"]
    command = [sys.executable, "-m", "nbconvert", *options]
    subprocess.run(command, cwd=tmp_path / "student", check=True, capture_output=True)
    cells = {cell.id: cell for cell in read(tmp_path / "student" / "run.ipynb").cells}
    assert cells["T9-2-solution"].outputs[-1].ename == "NotImplementedError"


def test_the_autograder_is_written_beside_the_student_version(root, tmp_path):
    done = release(root, tmp_path / "new" / "student", gradescope=True)
    assert done.autograder == tmp_path / "new" / "student-gradescope.zip"
    assert str(done.autograder) in done.text()
    assert list(done.folder.rglob("*.zip")) == []
    again = release(root, tmp_path / "new" / "student", gradescope=True, force=True)
    assert again.autograder == done.autograder


def test_students_do_not_get_the_solutions(root, tmp_path):
    assert "return 2 * x" in (root / "mlhood/grading/projects/t9/solutions.json").read_text()
    release(root, tmp_path / "student", gradescope=True)
    assert not [*(tmp_path / "student").rglob("solutions.json")]
    with zipfile.ZipFile(tmp_path / "student-gradescope.zip") as autograder:
        assert "mlhood/grading/projects/t9/solutions.json" in autograder.namelist()


def test_another_autograder_stops_the_release_before_it_begins(root, tmp_path):
    (tmp_path / "student-gradescope.zip").write_bytes(b"mine")
    with pytest.raises(OutputError, match="another autograder"):
        release(root, tmp_path / "student", gradescope=True)
    assert not (tmp_path / "student").exists()


def test_cells_that_are_not_synced_are_refused(root, tmp_path, course):
    book = read(root / "P1.ipynb")
    book.cells.append(course.labelled(new_code_cell("new = 1"), "T9.3", "given", locked=True))
    write(book, root / "P1.ipynb")
    with pytest.raises(GradingError, match="out of date") as caught:
        release(root, tmp_path / "student")
    assert caught.value.parts["where"] == str(root / CELLS)
    (root / CELLS).unlink()
    with pytest.raises(GradingError, match="out of date"):
        release(root, tmp_path / "student")
    assert not (tmp_path / "student").exists()


def test_full_folder_is_refused(root, tmp_path):
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        release(root, tmp_path / "student")


def test_force_keeps_other_files(root, tmp_path):
    out = tmp_path / "student"
    release(root, out)
    (out / "mine.txt").write_text("mine")
    (out / "P1.ipynb").write_text("a student's work")
    done = release(root, out, force=True)
    assert (out / "mine.txt").read_text() == "mine"
    assert [path.read_text() for path in done.kept] == ["a student's work"]
    assert release(root, out, force=True).kept == ()


@pytest.mark.parametrize("where", [".", "..", "mlhood", "tests/new"])
def test_course_is_never_overwritten(root, where):
    with pytest.raises(OutputError, match="overwrite the course"):
        release(root, root / where, force=True)


def test_without_notebooks_there_is_nothing_to_release(tmp_path):
    with pytest.raises(NotebookError, match="no notebook of the course"):
        release(tmp_path, tmp_path / "student")


def test_notebooks_alone_are_no_course(course, tmp_path):
    write(course.notebook(), tmp_path / "P1.ipynb")
    with pytest.raises(OutputError, match="only be made from"):
        release(tmp_path, tmp_path / "student")


def solution(course, source):
    return course.labelled(new_code_cell(source), "T9.1", "solution", solution=True)


def test_several_regions_keep_their_indentation(course):
    source = "a\n### BEGIN SOLUTION\nb\n### END SOLUTION\nif c:\n    ### BEGIN SOLUTION\n    d\n    ### END SOLUTION\ne"
    expected = (
        "a\n# YOUR CODE HERE\nraise NotImplementedError()\nif c:\n"
        "    # YOUR CODE HERE\n    raise NotImplementedError()\ne"
    )
    assert stub_solutions(solution(course, source), "here") == expected


def test_result_cells_keep_their_outputs_until_the_first_solution_of_their_task(course):
    book = course.notebook()
    solution_index = next(i for i, cell in enumerate(book.cells) if cell.id == "T9-2-solution")
    for name, position in (("diagram", solution_index), ("plot", solution_index + 2)):
        cell = course.labelled(new_code_cell("plot()", id=name), "T9.2", "result", locked=True)
        cell.outputs = [course.NotebookNode(output_type="stream", name="stdout", text=name)]
        book.cells.insert(position, cell)
    student_version(book, Path("P1.ipynb"))
    assert [len(cell.outputs) for cell in book.cells if cell.get("source") == "plot()"] == [1, 0]


def test_a_solution_without_markers_is_replaced_completely(course):
    assert stub_solutions(solution(course, "x = 1"), "here") == "# YOUR CODE HERE\nraise NotImplementedError()"


@pytest.mark.parametrize(
    "source",
    [
        "### BEGIN SOLUTION\nx = 1",
        "x = 1\n### END SOLUTION",
        "### BEGIN SOLUTION\n### BEGIN SOLUTION\nx\n### END SOLUTION",
    ],
)
def test_markers_that_do_not_match_name_the_cell(course, source, tmp_path):
    book = course.notebook(course.SOLUTIONS | {"T9.1": source})
    with pytest.raises(NotebookError) as caught:
        student_version(book, tmp_path / "P1.ipynb")
    assert "T9-1-solution" in str(caught.value)


@pytest.mark.parametrize("make", [new_code_cell, new_markdown_cell])
def test_solution_in_another_cell_is_refused(make):
    with pytest.raises(NotebookError, match="not marked as a solution cell"):
        stub_solutions(make("### BEGIN SOLUTION\nx\n### END SOLUTION"), "here")


def test_student_project_installs_without_the_tests():
    project = tomllib.loads(student_project((REPOSITORY / "pyproject.toml").read_text()))
    assert set(project["tool"]) == {"hatch"}
    assert not {"optional-dependencies", "entry-points"} & set(project["project"])
    assert project["project"]["scripts"]["mlhood"] == "mlhood.cli:main"
