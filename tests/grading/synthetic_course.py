"""A course of one small project, for tests of the grading that train no network.

Kernels outside of a sandbox have the project, too, if they are started by `RUNNER`.
"""

from __future__ import annotations

from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mlhood.grading.checks import expect
from mlhood.grading.checks.expect import CheckSkipped
from mlhood.grading.checks.task import Project, Question, Task, points
from mlhood.grading.notebooks.notebook import write, write_text
from mlhood.grading.projects import PROJECTS


@points(20)
def doubles_numbers(submission):
    """`double` doubles numbers."""
    for value in submission.rng.integers(1, 100, 3):
        got = submission.call("double", int(value))
        expect.equal(got, 2 * int(value), "`double` is wrong", given=int(value), hint="two times the number")


@points(20)
def doubles_arrays(submission):
    """`double` doubles arrays."""
    values = submission.rng.normal(size=(3, 4))
    expect.close(submission.call("double", values), 2 * values, "double of an array")


@points(20)
def writes_file(submission):
    """`answer.txt` holds the answer."""
    expect.equal(submission.file("answer.txt").read_text(), "42", "`answer.txt` is wrong", hint="write 42")


@points(20)
def needs_unicorn(submission):
    """A unicorn looks at it."""
    raise CheckSkipped("there is no unicorn on this machine; see a unicorn shop")


@points(20)
def uses_double(submission):
    """`quadruple` is right."""
    expect.equal(submission.call("quadruple", 3), 12, "`quadruple` is wrong")


SYNTHETIC = Project(
    "T9",
    "A project for tests",
    tasks=(
        Task("T9.1", "Double", (doubles_numbers, doubles_arrays), "def double(x):\n    return 2 * x", 10),
        Task("T9.2", "A file", (writes_file, needs_unicorn), "", 10),
        Task("T9.3", "Build on it", (uses_double,), "", 10),
    ),
    questions=(Question("T9.4", "Why two?"),),
)

SOLUTIONS = {
    "T9.1": "def double(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION",
    "T9.2": "import os\n### BEGIN SOLUTION\nopen('answer.txt', 'w').write('42')\n### END SOLUTION",
    "T9.3": "def quadruple(x):\n    ### BEGIN SOLUTION\n    return double(double(x))\n    ### END SOLUTION",
}
EMPTY = {
    "T9.1": "def double(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()",
    "T9.2": "import os\n# YOUR CODE HERE\nraise NotImplementedError()",
    "T9.3": "def quadruple(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()",
}
ROOT = str(Path(__file__).parents[2])
FIRST = "import mlhood"
INSTALL = f"import runpy, mlhood.grading\nrunpy.run_path({__file__!r})['install']()"
# in place of `execution.kernel.RUNNER`
RUNNER = ("-P", "-c", f"{INSTALL}\nfrom mlhood.grading.rpc.cell_runner import run\nrun()")


# a package of few modules: what students need of the project, and what they do not get
PACKAGE = {
    "mlhood/__init__.py": "",
    "mlhood/__main__.py": "def main():\n    from mlhood.grading.checks import task\n",
    "mlhood/grading/__init__.py": "",
    "mlhood/grading/checks/__init__.py": "",
    "mlhood/grading/checks/task.py": "POINTS = 100\n",
    "mlhood/grading/intake/__init__.py": "",
    "mlhood/grading/projects/__init__.py": "",
    "mlhood/grading/projects/t9/__init__.py": "",
    "mlhood/grading/projects/t9/tasks.py": "T9_1 = Task()\n",
}


def write_course(root: Path, source_notebook: NotebookNode) -> None:
    """Write a course's folder: the notebook P1, the package, its copies of the notebook's cells, and other files."""
    from mlhood.grading.notebooks.sync import cell_files  # not in the student version, where the project is installed

    root.mkdir(exist_ok=True)
    write(source_notebook, root / "P1.ipynb")
    others = {name: Path(ROOT, name).read_text() for name in ("pyproject.toml", "LICENSE")}
    for name, text in {**PACKAGE, **cell_files([root / "P1.ipynb"]), **others}.items():
        write_text(root / name, text)


def install() -> None:
    """Add the project to the course in this process."""
    PROJECTS["T9"] = SYNTHETIC


def grader(grade_id: str, **flags: object) -> dict:
    """nbgrader's metadata of a cell."""
    base = {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": False,
        "solution": False,
        "locked": False,
        "task": False,
    }
    return base | flags


def labelled(cell: NotebookNode, task: str, role: str, **flags: object) -> NotebookNode:
    """Label a cell of the course, and return it."""
    cell.id = f"{task.replace('.', '-')}-{role}"
    cell.metadata["mlhood"] = {"task": task, "role": role}
    cell.metadata["nbgrader"] = grader(cell.id, **flags)
    return cell


def notebook(solutions: dict[str, str] = SOLUTIONS, answer: str = "Because.") -> NotebookNode:
    """A notebook of the project with these solutions."""
    book = new_notebook(
        metadata={
            "mlhood": {"project": "T9"},
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        }
    )
    book.cells = [new_markdown_cell("# T9", id="title"), new_code_cell(FIRST, id="first")]
    book.cells.append(new_code_cell("import mlhood\n'given'", id="imports"))
    for task in SYNTHETIC.tasks:
        book.cells.append(new_markdown_cell(f"## {task.title}", id=f"{task.slug}-text"))
        book.cells.append(labelled(new_code_cell(solutions[task.id]), task.id, "solution", solution=True))
        check = new_code_cell(f'mlhood.check("{task.id}")')
        book.cells.append(labelled(check, task.id, "check", grade=True, locked=True, points=task.points))
    question = labelled(new_markdown_cell(answer), "T9.4", "question", grade=True, solution=True, points=0)
    book.cells.append(question)
    return book
