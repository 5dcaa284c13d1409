"""The student version: a separate repository, without the solutions; of a variant one, or one for each group.

Its notebooks are those that nbgrader's `generate_assignment` makes, except that the outputs of given cells stay: a
student sees what the course's own cells show.
"""

from __future__ import annotations

import copy
import itertools
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import OutputError
from mlhood.files.atomic import write_atomic
from mlhood.grading.gradebook.roster import Roster, deal, read_roster, roster_csv
from mlhood.grading.notebooks.notebook import notebook_text
from mlhood.grading.notebooks.source_notebook import student_version
from mlhood.grading.student.gradescope_zip import write_autograder
from mlhood.grading.student.repository import BRANCH, make_repository
from mlhood.grading.student.variant_version import Variant, read_source_notebooks, version_package
from mlhood.grading.student.version_files import (
    CONTAINER,
    GITIGNORE,
    classroom_workflow,
    linked_files,
    student_files,
    student_project,
    student_readme,
)
from mlhood.grading.variants.parameter import require_variant_name, version_name
from mlhood.grading.variants.seed import make_seed_file, read_seed

GROUPS = 4  # how many groups of students there are by default


@dataclass(frozen=True)
class StudentVersion:
    """The written version: notebooks, number of files, older notebooks that were kept, and Gradescope's autograder.

    `repository` says what has become of its git repository.
    """

    folder: Path
    notebooks: tuple[str, ...]
    files: int
    kept: tuple[Path, ...]
    autograder: Path | None = None
    repository: str = ""

    def text(self, grade: str = "mlhood grade SUBMISSIONS --out graded") -> str:
        """Return the message for the instructor.

        Args:
            grade: The command that grades its submissions.
        """
        lines = [f"student version: {self.folder} ({', '.join(self.notebooks)}; {self.files} files)"]
        lines += [f"note: there was a different notebook; it is kept as {path}" for path in self.kept]
        if self.autograder:
            lines.append(f"autograder for Gradescope: {self.autograder} (not for students)")
        lines += [self.repository] if self.repository else []
        return "\n".join([*lines, *self._next_steps(grade)])

    def _next_steps(self, grade: str) -> list[str]:
        git = f"git -C {shlex.quote(str(self.folder))}"
        gradescope = (
            f"upload {self.autograder} under Configure Autograder"
            if self.autograder
            else "mlhood release --gradescope writes its autograder"
        )
        return [
            "next, what applies to you:",
            f"  GitHub: create an empty repository, then {git} remote add origin URL && {git} push -u origin {BRANCH}",
            "  GitHub Classroom: mark that repository as a template (Settings), and make an assignment from it",
            f"  Gradescope: {gradescope}",
            f"  Moodle, Canvas, e-mail: hand out {self.folder} as a zip archive",
            f"  then collect and grade: {grade}",
        ]


def release(
    root: Path,
    out: Path,
    *,
    force: bool = False,
    gradescope: bool = False,
    git: bool | None = None,
    made_of: Variant | None = None,
) -> StudentVersion:
    """Write the student version of the course in `root` into the folder `out`.

    Args:
        root: The folder of the course.
        out: A new or empty folder outside the course's own parts.
        force: Write into a folder that is not empty. Other files are not deleted, and a notebook that would
            be replaced is kept beside the new one.
        gradescope: Write the autograder for Gradescope, too: beside the folder, which students get.
        git: Whether to make a git repository with a first commit; None makes one unless the folder is inside another.
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
    repository = "" if git is False else make_repository(out, files, nested=git is True)
    notebooks = tuple(sorted(name for name in files if name.endswith(".ipynb")))
    return StudentVersion(out, notebooks, len(files), kept, autograder, repository)


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
    files = {name: notebook_text(notebook) for name, notebook in released.items()}
    files["pyproject.toml"] = student_project((root / "pyproject.toml").read_text(encoding="utf-8"))
    files["README.md"] = student_readme(notebooks)
    files[".github/workflows/classroom.yml"] = classroom_workflow(notebooks)
    files["LICENSE"] = (root / "LICENSE").read_text(encoding="utf-8")
    files[".gitignore"] = GITIGNORE
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


@dataclass(frozen=True)
class VariantOptions:
    """Which variant to release; see `mlhood release --help`.

    Args:
        variant_name: The variant.
        seed_file: With the seed of the course; by default `DIR-seed.txt` beside the folder, made at first use.
        source notebooks: Folder of `mlhood run --variant`.
        roster: Of the class, if each group of students gets its own version.
        groups: How many groups there are.
    """

    variant_name: str
    seed_file: Path | None = None
    source_notebooks: Path | None = None
    roster: Path | None = None
    groups: int = GROUPS


@dataclass(frozen=True)
class VariantVersions:
    """The written versions of a variant, and what grading them takes."""

    variant_name: str
    seed_file: Path
    versions: tuple[StudentVersion, ...]
    roster: Path | None = None
    dealt: Roster | None = None

    def text(self) -> str:
        """Return the message for the instructor."""
        lines = [f"student version: {version.folder}" for version in self.versions[:-1]]
        lines.append(self.versions[-1].text(self._grade_command()))
        if self.dealt:
            sizes = Counter(student.group for student in self.dealt.students)
            lines.append(f"students by group: {', '.join(f'{group} {sizes[group]}' for group in sorted(sizes))}")
            lines.append(f"who is in which group: {self.roster} (not for students)")
        return "\n".join([*lines, f"the seed that signs the notebooks: {self.seed_file} (keep it, not for students)"])

    def _grade_command(self) -> str:
        options = ["--variant", self.variant_name, "--seed-file", str(self.seed_file)]
        options += ["--roster", str(self.roster)] if self.roster else []
        return f"mlhood grade SUBMISSIONS --out graded {shlex.join(options)}"


def release_variant(
    root: Path,
    out: Path,
    options: VariantOptions,
    *,
    force: bool = False,
    gradescope: bool = False,
    git: bool | None = None,
) -> VariantVersions:
    """Write the student version of a variant of the course in `root` into `out`, or one for each group into a folder.

    Beside `out` are written the seed, unless there is one, and for groups the roster with the group of each student.

    Raises:
        NotebookError: There are no notebooks here.
        OutputError: A folder is not empty, is inside the course's own parts, or cannot be written.
        GradingError: It cannot be the name of a variant, or the seed or the roster cannot be read.
    """
    require_variant_name(options.variant_name)
    require_outside(root, out)
    roster = read_roster(options.roster) if options.roster else None
    seed_file = options.seed_file or _new_seed(out)
    seed = read_seed(seed_file)
    settings = {"force": force, "gradescope": gradescope, "git": git}
    if roster is None:
        version = release(root, out, made_of=Variant(options.variant_name, seed, options.source_notebooks), **settings)
        return VariantVersions(options.variant_name, seed_file, (version,))
    dealt = deal(roster, options.groups, seed)
    versions = []
    for group in sorted({student.group for student in dealt.students}):
        variant_name = version_name(options.variant_name, group)
        require_variant_name(variant_name)
        source_notebooks = options.source_notebooks / group if options.source_notebooks else None
        versions.append(release(root, out / group, made_of=Variant(variant_name, seed, source_notebooks), **settings))
    path = write_atomic(beside(out, "roster.csv"), roster_csv(dealt).encode())
    return VariantVersions(options.variant_name, seed_file, tuple(versions), path, dealt)


def _new_seed(out: Path) -> Path:
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
