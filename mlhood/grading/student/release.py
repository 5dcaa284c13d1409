"""The student version: a separate folder, without the solutions; of the course, or of a variant.

Its notebooks are those that nbgrader's `generate_assignment` makes, except that the outputs of given cells stay: a
student sees what the course's own cells show.
"""

from __future__ import annotations

import copy
import itertools
import shlex
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import OutputError
from mlhood.files.atomic import write_atomic
from mlhood.grading.notebooks.notebook import notebook_text
from mlhood.grading.notebooks.source_notebook import student_version
from mlhood.grading.student.gradescope_zip import write_autograder
from mlhood.grading.student.variant_version import Variant, read_source_notebooks, version_package
from mlhood.grading.student.version_files import (
    CONTAINER,
    linked_files,
    student_files,
    student_project,
    text_files,
)
from mlhood.grading.variants.seed import make_seed_file


@dataclass(frozen=True)
class StudentVersion:
    """The written version: notebooks, number of files, older notebooks that were kept, and Gradescope's autograder.

    `made_of` is the variant that it is of.
    """

    folder: Path
    notebooks: tuple[str, ...]
    files: int
    kept: tuple[Path, ...]
    autograder: Path | None = None
    made_of: Variant | None = None

    def text(self) -> str:
        """Return the message for the instructor."""
        lines = [f"student version: {self.folder} ({', '.join(self.notebooks)}; {self.files} files)"]
        lines += [f"note: there was a different notebook; it is kept as {path}" for path in self.kept]
        if self.autograder:
            lines.append(f"autograder for Gradescope: {self.autograder} (not for students)")
        return "\n".join([*lines, *self._next_steps()])

    def _next_steps(self) -> list[str]:
        grade, seed = "mlhood grade SUBMISSIONS --out graded", []
        if self.made_of:
            grade += f" {shlex.join(['--variant', self.made_of.name, '--seed-file', str(self.made_of.seed_file)])}"
            seed = [f"the seed that signs the notebooks: {self.made_of.seed_file} (keep it, not for students)"]
        git = f"git -C {shlex.quote(str(self.folder))}"
        gradescope = (
            f"upload {self.autograder} under Configure Autograder"
            if self.autograder
            else "mlhood release --gradescope writes its autograder"
        )
        return [
            "next, what applies to you:",
            f"  GitHub: {git} init -b main && {git} add . && {git} commit -m 'The student version of the course',",
            f"    then create an empty repository there, and {git} remote add origin URL && {git} push -u origin main",
            "  GitHub Classroom: mark that repository as a template (Settings), and make an assignment from it",
            f"  Gradescope: {gradescope}",
            f"  Moodle, Canvas, e-mail: hand out {self.folder} as a zip archive",
            f"  then collect and grade: {grade}",
            *seed,
        ]


def release(
    root: Path,
    out: Path,
    *,
    force: bool = False,
    gradescope: bool = False,
    made_of: Variant | None = None,
) -> StudentVersion:
    """Write the student version of the course in `root` into the folder `out`.

    Args:
        root: The folder of the course.
        out: A new or empty folder outside the course's own parts.
        force: Write into a folder that is not empty. Other files are not deleted, and a notebook that would
            be replaced is kept beside the new one.
        gradescope: Write the autograder for Gradescope, too: beside the folder, which students get.
        made_of: The variant that it is made of; by default the course as it is.

    Raises:
        NotebookError: There are no notebooks here, or the markers of a solution are wrong.
        OutputError: The folder is not empty, is inside the course's own parts, or cannot be written.
        GradingError: The package's copy of the notebooks' cells is out of date.
    """
    source_notebooks = read_source_notebooks(root, made_of)
    package = version_package(root, source_notebooks, made_of)
    files = version_files(root, source_notebooks, package)
    _check_target(root, out, force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        archive = beside(out, "gradescope.zip")
        autograder = write_autograder(root, package, archive, force=force) if gradescope else None
        kept = _write(files, out)
    except OSError as error:
        raise OutputError(
            "the student version cannot be written",
            where=error.filename or out,
            got=error.strerror or str(error),
            todo="choose another folder with --out, or free space in this one",
        ) from None
    notebooks = tuple(sorted(name for name in files if name.endswith(".ipynb")))
    return StudentVersion(out, notebooks, len(files), kept, autograder, made_of)


def beside(out: Path, suffix: str) -> Path:
    """Return the path of a file beside the folder of a student version, which students do not get."""
    folder = out.resolve()
    return folder.with_name(f"{folder.name}-{suffix}")


def version_files(root: Path, source_notebooks: dict[str, NotebookNode], package: dict[str, str]) -> dict[str, bytes]:
    """Return the contents of every file of the student version, by its path.

    Args:
        root: The folder of the course.
        source notebooks: Its solved notebooks, by the names of their files.
        package: The text of every file of its package, by its path.

    Raises:
        NotebookError: The markers of a solution are wrong.
    """
    released = {name: copy.deepcopy(notebook) for name, notebook in source_notebooks.items()}
    for name, notebook in released.items():
        student_version(notebook, root / name)
    notebooks = sorted(released)
    files = {name: notebook_text(notebook) for name, notebook in released.items()} | text_files(notebooks)
    files["pyproject.toml"] = student_project((root / "pyproject.toml").read_text(encoding="utf-8"))
    files["LICENSE"] = (root / "LICENSE").read_text(encoding="utf-8")
    files |= {name: (root / name).read_text(encoding="utf-8") for name in CONTAINER if (root / name).is_file()}
    linked = linked_files(root, released.values())
    texts = [cell.source for notebook in source_notebooks.values() for cell in notebook.cells]
    texts += [data.decode() for name, data in linked.items() if name.endswith(".md")]
    files |= student_files(package, texts)
    return linked | {name: text.encode() for name, text in files.items()}


def require_outside(root: Path, out: Path) -> None:
    """Refuse to write into the course's own parts.

    Raises:
        OutputError: The folder is the course's, around it, or one of its parts.
    """
    root, out = root.resolve(), out.resolve()
    if root.is_relative_to(out) or out.is_relative_to(root / "mlhood") or out.is_relative_to(root / "tests"):
        raise OutputError(
            "the student version would overwrite the course",
            where=out,
            todo="choose a new folder: mlhood release --out ../student",
        )


def _check_target(root: Path, out: Path, force: bool) -> None:
    require_outside(root, out)
    if out.exists() and not out.is_dir():
        raise OutputError("the student version needs a folder", where=out, got="a file", todo="choose another name")
    present = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if present and not force:
        raise OutputError(
            "the folder is not empty",
            where=out,
            expected="a new or empty folder",
            got=", ".join(present[:5]) + (" …" if len(present) > 5 else ""),
            todo="choose another folder, or write among these files with --force; none is deleted",
        )


def _write(files: dict[str, bytes], out: Path) -> tuple[Path, ...]:
    kept = []
    for name, data in files.items():
        path = out / name
        if path.suffix == ".ipynb" and path.is_file() and path.read_bytes() != data:
            earlier = (path.with_name(f"{path.stem}.earlier-{n}.ipynb") for n in itertools.count(1))
            kept.append(path.rename(next(name for name in earlier if not name.exists())))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    return tuple(kept)


def new_seed_file(root: Path, out: Path) -> Path:
    """Return the file beside `out` with the seed of the course in `root`, which is made if it is not there.

    Raises:
        OutputError: It cannot be written, or `out` is inside the course's own parts.
    """
    require_outside(root, out)
    path = beside(out, "seed.txt")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return make_seed_file(path)
    except OSError as error:
        raise OutputError(
            "the seed of the course cannot be written",
            where=path,
            got=error.strerror or str(error),
            todo="choose another folder with --out, or give a file of your own with --seed-file",
        ) from None
