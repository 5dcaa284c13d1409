"""What is in the student version of the course, and what is not; `test_student_version` runs it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from nbformat import NotebookNode

from mlhood.grading.notebooks.interface import imported_names
from mlhood.grading.notebooks.notebook import course_notebooks, read
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import DECLARATION
from mlhood.grading.projects.package_files import source_solutions
from mlhood.grading.student.version_files import ROOTS, linked_files, package_files, student_files

ROOT = Path(__file__).parents[3]
PROJECT_MODULES = "mlhood.grading.projects.p"
# parts of the package that only authors and instructors need
OTHERS = ("compiler.bench", "grading.sandbox", "grading.intake", "grading.batch", "grading.gradebook")
OTHERS += (
    "grading.marking",
    "grading.exporters",
    "grading.similarity",
    "grading.gradescope",
    "grading.class_commands",
)
OTHERS += ("grading.course_commands", "grading.reports.class_report", "grading.reports.feedback")
# Modules that solve tasks, from which a solution could be copied. This list may only become shorter.
REFERENCES = {
    "mlhood.grading.projects.reference_runs",
    *(f"{PROJECT_MODULES}{name}" for name in ("1.reference", "4.open_task", "5.reference")),
    *(f"{PROJECT_MODULES}{name}" for name in ("2.memory", "2.neural_processor", "2.probes", "5.probes")),
}


@pytest.fixture(scope="module")
def notebooks() -> list[NotebookNode]:
    """The solved notebooks of the course."""
    return [*map(read, course_notebooks(ROOT))]


@pytest.fixture(scope="module")
def pages(notebooks) -> list[str]:
    """The text of the pages that notebooks link to."""
    return [data.decode() for name, data in linked_files(ROOT, notebooks).items() if name.endswith(".md")]


@pytest.fixture(scope="module")
def files(notebooks, pages) -> dict[str, str]:
    """The text of every file of the package that students get, by its path."""
    cells = [cell.source for notebook in notebooks for cell in notebook.cells]
    return student_files(package_files(ROOT), [*cells, *pages])


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The syntax trees of all modules of the package, by dotted name."""
    paths = {path.relative_to(ROOT).with_suffix("").parts: path for path in (ROOT / "mlhood").rglob("*.py")}
    return {
        ".".join(parts).removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
        for parts, path in paths.items()
    }


@pytest.fixture(scope="module")
def version(files) -> set[str]:
    """The modules that students get."""
    return {name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in files if ".py" in name}


def used_by(name: str, modules: dict[str, ast.Module]) -> set[str]:
    """Return what a module imports or names in a text, and its package."""
    used = {name.rpartition(".")[0]}
    for node in ast.walk(modules[name]):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            used.add(node.value.partition(":")[0])
        elif isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            used |= {name if name in modules else str(node.module) for name in names}
    return used


def test_it_is_what_roots_notebooks_and_pages_import_and_nothing_else(version, modules, notebooks, pages):
    names = {name for notebook in notebooks for name in imported_names(notebook)}
    todo = {*ROOTS, *(name.module for name in names), *map(".".join, names)}
    todo |= {name for page in pages for name in re.findall(r"^from (mlhood\S+) import", page, re.MULTILINE)}
    todo |= {name for name, module in modules.items() if DECLARATION.search(ast.unparse(module))}
    reached: set[str] = set()
    while todo := (todo & modules.keys()) - reached:
        reached |= todo
        todo = {used for name in todo & version for used in used_by(name, modules)}
    assert version <= reached
    # the parsers of students' files and the doctor do without it
    assert reached - version == {"mlhood.grading.sandbox.bubblewrap", "mlhood.grading.sandbox.seccomp"}


def test_it_has_nothing_that_only_authors_and_instructors_need(files, version):
    assert not [name for name in version if name.startswith(tuple(f"mlhood.{other}" for other in OTHERS))]
    assert not [name for name in files if re.search(r"(solutions|questions|variants)\.json|INSTRUCTORS", name)]
    assert {f"mlhood/grading/projects/p{n}/cells.json" for n in range(1, 6)} <= files.keys()


def test_it_has_what_exists_where_its_tasks_are_graded(version):
    tasks = [task for project in PROJECTS.values() for task in project.tasks if task.libraries]
    assert {module for task in tasks for module in task.libraries.modules} <= version


def test_modules_with_references_become_fewer(version, modules):
    solutions = "\n".join(source for project in PROJECTS for source in source_solutions(project).values())
    solved = set(re.findall(r"^def (\w+)", solutions, re.MULTILINE))

    def solves_a_task(module: ast.Module) -> bool:
        functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
        return any(function.name in solved and not function.decorator_list for function in functions)

    found = {name for name in version if name.startswith(PROJECT_MODULES) and solves_a_task(modules[name])}
    assert found | {name for name in version if "reference" in name} <= REFERENCES
