"""What the edition of a variant has instead of the course's own files: notebooks, and the package's copies of them.

The package of an edition knows the values of its parameters (`variant.json`), and no other: the templates, from which
the solutions of any variant can be made, are not in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import OutputError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.edition import seal_edition
from mlhood.grading.notebooks.notebook import cell_name, course_notebooks, project_of, read
from mlhood.grading.notebooks.sync import PROJECTS_PATH, notebook_files, require_synced
from mlhood.grading.notebooks.variant import master_of_variant
from mlhood.grading.projects.collect import EDITION, VARIANT_FILE, variant
from mlhood.grading.projects.package_files import RESULTS_FILE, VARIANTS_FILE
from mlhood.grading.student.edition_files import package_files
from mlhood.grading.student.results import recorded_results
from mlhood.grading.variants.seal import seal


@dataclass(frozen=True)
class Variant:
    """The variant that an edition is made of.

    Args:
        word: From which its values are drawn.
        seed: Of the course, with which the word is sealed in the notebooks.
        masters: Folder of the executed masters that `mlhood run --variant` writes: what the course's own cells show is
            taken from them. Without it, or for a project that is not in it, cells that depend on a parameter have no
            outputs.
    """

    word: str
    seed: int
    masters: Path | None = None

    @property
    def sealed(self) -> str:
        """The word as it is in the notebooks."""
        return seal(self.seed, self.word)


def master_notebooks(root: Path, made_of: Variant | None) -> dict[str, NotebookNode]:
    """Return the solved masters of an edition of the course in `root`, by the names of their files.

    Raises:
        NotebookError: There are no notebooks here.
        GradingError: It cannot be the word of a variant, or a template cannot be rendered.
        OutputError: There are no executed masters where they should be, or they are of another variant.
    """
    masters = {}
    executed = _executed_masters(made_of.masters) if made_of and made_of.masters else {}
    for path in course_notebooks(root):
        masters[path.name] = notebook = read(path)
        if made_of:
            masters[path.name] = varied = master_of_variant(notebook, _project(notebook, path, made_of))
            if path.name in executed:
                _take_outputs(varied, executed[path.name])
            seal_edition(varied, made_of.sealed)
    return masters


def edition_package(root: Path, masters: dict[str, NotebookNode], made_of: Variant | None) -> dict[str, str]:
    """Return the text files of the package of an edition, by their paths from the root.

    Raises:
        OutputError: The folder is not that of the course.
        GradingError: The package's copy of the notebooks' cells is out of date.
    """
    if not (root / "pyproject.toml").is_file() or not (root / "mlhood").is_dir():
        raise OutputError(
            "the student edition can only be made from the course's repository",
            where=root,
            expected="notebooks, pyproject.toml and the folder mlhood side by side",
            todo="change to the folder of the course and run the command there",
        )
    require_synced(root, course_notebooks(root))
    files = package_files(root)
    projects = {name: _project(notebook, root / name, made_of) for name, notebook in masters.items()}
    for project in projects.values():
        if results := recorded_results(project):
            files[f"{PROJECTS_PATH}/{project.id.lower()}/{RESULTS_FILE}"] = json.dumps(results, indent=1) + "\n"
    if not made_of:
        return files
    values: dict[str, object] = {EDITION: made_of.sealed}
    for name, notebook in masters.items():
        files |= notebook_files(notebook, root / name)
        values[projects[name].id] = dict(projects[name].parameters)
    files[f"{PROJECTS_PATH}/{VARIANT_FILE}"] = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    return {name: text for name, text in files.items() if not name.endswith(f"/{VARIANTS_FILE}")}


def _executed_masters(folder: Path) -> dict[str, Path]:
    """Return the executed masters in a folder by name: some of the course, if only some projects were run."""
    if found := {path.name: path for path in folder.glob("*/*.ipynb") if path.stem == path.parent.name}:
        return found
    raise OutputError(
        "there are no executed masters",
        where=folder,
        expected="what `mlhood run --variant WORD --out DIR` writes, such as P1/P1.ipynb",
        todo="name that folder, or leave out --masters: cells of tasks that vary then have no outputs",
    )


def _project(notebook: NotebookNode, path: Path, made_of: Variant | None) -> Project:
    return variant(project_of(notebook, path), made_of.word if made_of else "")


def _take_outputs(master: NotebookNode, path: Path) -> None:
    """Give the cells of a variant's master the outputs of the executed one."""
    executed = {cell_name(cell): cell for cell in read(path).cells}
    for cell in master.cells:
        if cell.cell_type != "code":
            continue
        if cell_name(cell) not in executed or executed[cell_name(cell)].source != cell.source:
            raise OutputError(
                "the executed notebook is not the master of this variant",
                where=path,
                expected="the cells of the variant, as this version of the course makes them",
                got=f"another cell {cell_name(cell)}",
                todo="make them again: mlhood run --variant WORD --out DIR",
            )
        cell.outputs = executed[cell_name(cell)].get("outputs", [])
