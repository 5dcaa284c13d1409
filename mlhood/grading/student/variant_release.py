"""Release a variant: one version for the class, or one for each group of students."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mlhood.errors import OutputError
from mlhood.files.atomic import write_atomic
from mlhood.grading.gradebook.roster import Roster, deal, read_roster, roster_csv
from mlhood.grading.student.release import StudentVersion, beside, release, require_outside
from mlhood.grading.student.variant_version import Variant
from mlhood.grading.variants.parameter import require_variant_name, version_name
from mlhood.grading.variants.seed import make_seed_file, read_seed

GROUPS = 4  # how many groups of students there are by default


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
