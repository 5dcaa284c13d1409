"""What the version of a variant has instead of the course's own files: notebooks, and the package's copies of them.

The package of a version knows the values of its parameters (`variant.json`), and no other: the templates, from which
the solutions of any variant can be made, are not in it.
"""

from __future__ import annotations

import json
import operator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from nbformat import NotebookNode

from mlhood.errors import OutputError
from mlhood.grading.checks.expect import CheckSkipped
from mlhood.grading.checks.marks import stream
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.checks.task import Check, Project, Task
from mlhood.grading.notebooks.notebook import cell_name, course_notebooks, project_of, read
from mlhood.grading.notebooks.source_notebook import source_of_variant
from mlhood.grading.notebooks.sync import PROJECTS_PATH, notebook_files, require_synced
from mlhood.grading.notebooks.version import store_signature
from mlhood.grading.projects.collect import VARIANT_FILE, VERSION_KEY, variant
from mlhood.grading.projects.p5.programs import PROCESSES
from mlhood.grading.projects.package_files import RESULTS_FILE, VARIANTS_FILE
from mlhood.grading.projects.solution import SEEDS, record
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.grading.student.version_files import package_files
from mlhood.grading.variants.seed import read_seed, sign


@dataclass(frozen=True)
class Variant:
    """The variant that a version is made of.

    Args:
        name: From which its values are drawn.
        seed_file: With the seed of the course, by which the name is signed in the notebooks.
        source notebooks: Folder of the executed notebooks that `mlhood run --variant` writes: what the course's own
            cells show is taken from them. Without it, or for a project that is not in it, cells that depend on a
            parameter have no outputs.
    """

    name: str
    seed_file: Path
    source_notebooks: Path | None = None

    @property
    def signed(self) -> str:
        """The name as it is in the notebooks."""
        return sign(read_seed(self.seed_file), self.name)


def read_source_notebooks(root: Path, made_of: Variant | None) -> dict[str, NotebookNode]:
    """Return the solved notebooks of a version of the course in `root`, by the names of their files.

    Raises:
        NotebookError: There are no notebooks here.
        GradingError: It cannot be the name of a variant, or a template cannot be rendered.
        OutputError: There are no executed notebooks where they should be, or they are of another variant.
    """
    source_notebooks = {}
    executed = _executed_sources(made_of.source_notebooks) if made_of and made_of.source_notebooks else {}
    for path in course_notebooks(root):
        notebook = read(path)
        if made_of:
            notebook = source_of_variant(notebook, _project(notebook, path, made_of))
            notebook = _executed(notebook, executed[path.name]) if path.name in executed else notebook
            store_signature(notebook, made_of.signed)
        source_notebooks[path.name] = notebook
    return source_notebooks


def version_package(root: Path, source_notebooks: dict[str, NotebookNode], made_of: Variant | None) -> dict[str, str]:
    """Return the text files of the package of a version, by their paths from the root.

    Raises:
        OutputError: The folder is not that of the course.
        GradingError: The package's copy of the notebooks' cells is out of date.
    """
    if not (root / "pyproject.toml").is_file() or not (root / "mlhood").is_dir():
        raise OutputError(
            "the student version can only be made from the course's repository",
            where=root,
            expected="notebooks, pyproject.toml and the folder mlhood side by side",
            todo="change to the folder of the course and run the command there",
        )
    require_synced(root, course_notebooks(root))
    files = package_files(root)
    projects = {name: _project(notebook, root / name, made_of) for name, notebook in source_notebooks.items()}
    for project in projects.values():
        if results := recorded_results(project):
            files[f"{PROJECTS_PATH}/{project.id.lower()}/{RESULTS_FILE}"] = json.dumps(results, indent=1) + "\n"
    if not made_of:
        return files
    values: dict[str, object] = {VERSION_KEY: made_of.signed}
    for name, notebook in source_notebooks.items():
        files |= notebook_files(notebook, root / name)
        values[projects[name].id] = dict(projects[name].parameters)
    files[f"{PROJECTS_PATH}/{VARIANT_FILE}"] = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    return {name: text for name, text in files.items() if not name.endswith(f"/{VARIANTS_FILE}")}


def _executed_sources(folder: Path) -> dict[str, Path]:
    """Return the executed notebooks in a folder by name: some of the course, if only some projects were run."""
    if found := {path.name: path for path in folder.glob("*/*.ipynb") if path.stem == path.parent.name}:
        return found
    raise OutputError(
        "there are no executed notebooks",
        where=folder,
        expected="what `mlhood run --variant NAME --out DIR` writes, such as P1/P1.ipynb",
        todo="name that folder, or leave out --sources: cells of tasks that vary then have no outputs",
    )


def _project(notebook: NotebookNode, path: Path, made_of: Variant | None) -> Project:
    return variant(project_of(notebook, path), made_of.name if made_of else "")


def _executed(expected: NotebookNode, path: Path) -> NotebookNode:
    """Return the executed notebook, which has the cells of the variant's source notebook."""
    found = read(path)
    if [(cell_name(cell), cell.source) for cell in found.cells] != [(cell_name(c), c.source) for c in expected.cells]:
        raise OutputError(
            "the executed notebook is not the source notebook of this variant",
            where=path,
            expected="the cells of the variant, as this version of the course makes them",
            todo="make them again: mlhood run --variant NAME --out DIR",
        )
    return found


class _NoProcess:
    """Stands for a process that checks start: what they do there follows on the results that are noted."""

    def call(self, *arguments: object) -> None:
        """Raise CheckSkipped."""
        raise CheckSkipped


class _Solved(Submission):
    """A submission whose functions are the solutions; their results are noted in `results`."""

    def __init__(self, task: Task, check: Check, seed: int, folder: Path) -> None:
        context = CheckContext(stream(task, check, seed), parameters=SimpleNamespace(**task.values))
        self.names: dict[str, Any] = {}
        session = Session(LocalTransport(self.names), folder, folder, kept=dict.fromkeys(PROCESSES, _NoProcess()))
        super().__init__(session, context)
        self.task, self.results = task, []
        self.probed: tuple[str, str, tuple[object, ...], Any] = ("", "", (), None)  # the last one; it takes seconds

    def call(self, target: Any, *args: object, method: str | None = None, **kwargs: object) -> Any:
        if isinstance(target, str) and ":" not in target:
            return self.task.solution(target, *args, **kwargs)
        return super().call(target, *args, method=method, **kwargs)

    def value(self, name: str) -> Any:
        self.names[name] = self.task.solution.function(name)
        return super().value(name)

    def probe(self, target: str, name: str, *args: object, keys: tuple[str, ...] = (), **kwargs: Any) -> Any:
        self.probed = target, name, args, self.task.solution(name, *args, probe=target, **kwargs)
        return self.probed[-1]

    def solution(self, name: str, *args: object, probe: str = "", **kwargs: object) -> Any:
        *asked, known, result = self.probed
        same = asked == [probe, name] and len(known) == len(args) and all(map(operator.is_, known, args))
        self.results.append(result if same else self.task.solution(name, *args, probe=probe, **kwargs))
        return self.results[-1]


def recorded_results(project: Project) -> dict[str, str]:
    """Return the results of a project's solutions for the values of its parameters, as `Recorded` has them."""
    found: dict[str, str] = {}
    for task in project.tasks:
        for check in task.checks:
            for seed in SEEDS if check.solved else ():
                with TemporaryDirectory() as folder:
                    submission = _Solved(task, check, seed, Path(folder))
                    with suppress(CheckSkipped):
                        check(submission)
                found |= record(f"{task.id} {check.name}", seed, submission.results)
    return found
