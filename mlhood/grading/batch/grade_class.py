"""Grade a class into a folder: the gradebook, the submissions under the hashes of their content, and a summary."""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mlhood.errors import OutputError
from mlhood.files.csv_cells import round_points
from mlhood.files.paths import read_text
from mlhood.grading.batch.batch import Batch
from mlhood.grading.batch.executor import Executor
from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE, SUBMISSIONS_FOLDER, Gradebook
from mlhood.grading.gradebook.late import parse_late_policy
from mlhood.grading.gradebook.records import LATE_POLICY, MISSING, ROSTER, Record, records, roster_of, unassigned
from mlhood.grading.gradebook.roster import Roster, read_roster
from mlhood.grading.intake.collect import SubmittedFile, collect
from mlhood.grading.sandbox.bubblewrap import require
from mlhood.grading.variants.parameter import require_variant_name
from mlhood.grading.variants.seed import read_seed

if TYPE_CHECKING:
    from mlhood.grading.progress import CommandProgress

SEED, VARIANT = "seed", "variant"  # names of the gradebook's metadata


@dataclass(frozen=True)
class GradeOptions:
    """How to grade a class; see `mlhood grade --help`.

    Args:
        again: Whether to retry what has failed through no fault of the submission.
        seconds: Time limit for one submission.
        sandbox: Whether notebooks run in sandboxes; else with the rights of this process.
        variant: Name of the variant that the class was given.
    """

    jobs: int = 1
    seed_file: Path | None = None
    late_file: Path | None = None
    roster_file: Path | None = None
    layout: str | None = None
    again: bool = False
    seconds: float = 3600.0
    sandbox: bool = True
    variant: str = ""


def grade_class(sources: Iterable[Path], out: Path, options: GradeOptions, progress: CommandProgress) -> ClassResult:
    """Collect the submissions in folders and archives, and grade what no earlier call has graded into `out`.

    Raises:
        GradingError: There are no submissions, a file of the options is invalid, no worker starts, or this machine has
            no sandbox and the options ask for one.
        OutputError: The folder is among the submissions, cannot be written, or another call is writing to it.
    """
    sources = list(sources)
    if options.variant:
        require_variant_name(options.variant)
    if options.sandbox:
        progress.stage("testing the sandbox")
        require()
    _refuse_inside(sources, out)
    policy = read_text(options.late_file) if options.late_file else None
    if policy is not None:
        parse_late_policy(policy, options.late_file)  # so that an error shows before hours of work, not after
    roster = read_roster(options.roster_file) if options.roster_file else None
    with _locked_folder(out), Gradebook(out / GRADEBOOK_FILE) as gradebook:
        seed = _seed(gradebook, options.seed_file)
        if roster is not None:
            gradebook.set_metadata(ROSTER, roster.to_text())
        if policy is not None:
            gradebook.set_metadata(LATE_POLICY, policy)
        if options.again:
            gradebook.reopen_failed()
        progress.stage(f"collecting submissions from {', '.join(map(str, sources))}")
        collections = [collect(source, out / SUBMISSIONS_FOLDER, options.layout) for source in sources]
        submissions = [file for collection in collections for file in collection.submissions]
        students = len({file.student for file in submissions})
        progress.stage(f"found {len(submissions)} submissions of {students} students")
        gradebook.add_submissions(submissions)
        if options.variant:
            gradebook.set_metadata(VARIANT, options.variant)
        executor = Executor(options.sandbox, seed, options.jobs)
        Batch(gradebook, executor, progress, options.seconds, gradebook.metadata(VARIANT) or "").run(submissions)
        layouts = tuple(collection.layout for collection in collections)
        extras = tuple(file for collection in collections for file in collection.extras)
        results, others = tuple(records(gradebook)), tuple(unassigned(gradebook))
        return ClassResult(gradebook.path, layouts, results, others, extras, roster_of(gradebook))


def _refuse_inside(sources: Iterable[Path], out: Path) -> None:
    for source in sources:
        if out.resolve().is_relative_to(source.resolve()):
            raise OutputError(
                "the output folder is among the submissions, and the next call would take it for one",
                where=out,
                todo=f"choose a folder outside of {source} with --out",
            )


@contextlib.contextmanager
def _locked_folder(out: Path) -> Iterator[None]:
    """Make the folder and keep other calls out of it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / ".lock", mode=0o600).acquire(blocking=False)
    except Timeout:
        raise OutputError(
            "another call is grading into this folder",
            where=out,
            todo="wait for it, end it, or choose another folder with --out",
        ) from None
    except OSError as error:
        raise OutputError(
            "the output folder cannot be written",
            where=out,
            got=error.strerror or str(error),
            todo="choose another folder with --out, or free space in this one",
        ) from None
    with lock:
        yield


def _seed(gradebook: Gradebook, file: Path | None) -> int:
    """Return the seed in a file; without one, the gradebook's own, which is drawn at first use."""
    if file is None:
        seed = gradebook.metadata(SEED) or str(secrets.randbits(63))
        gradebook.set_metadata(SEED, seed)
        return int(seed)
    return read_seed(file)


@dataclass(frozen=True)
class ClassResult:
    """The outcome of a call: the gradebook, all results, submissions without a project, and files that do not count."""

    gradebook: Path
    layouts: tuple[str, ...]
    records: tuple[Record, ...]
    unassigned: tuple[SubmittedFile, ...]
    extras: tuple[SubmittedFile, ...] = ()
    roster: Roster = field(default_factory=Roster)

    @property
    def submitted(self) -> list[Record]:
        """The results of those who have submitted something."""
        return [record for record in self.records if record.status != MISSING]

    @property
    def complete(self) -> bool:
        """Whether every submission was graded and none was at fault."""
        return not self.unassigned and all(record.status == "done" and not record.reason for record in self.submitted)

    def text(self) -> str:
        """Return a summary for the instructor: every problem, the marks, counts, and what to do next."""
        lines = [f"note: {file.source}: {file.problem}" for file in self.extras]
        lines += [f"{file.source}: {file.problem}" for file in self.unassigned]
        lines += [
            f"{record.student} {record.project.id} ({record.submission.source}): {record.status}: {record.reason}"
            for record in self.submitted
            if record.status != "done" or record.reason
        ]
        lines += self._undecided()
        lines += self._compared_with_roster()
        assumed = Counter((record.project.id, record.late.note) for record in self.records if record.late.note)
        lines += [
            f"{project}: {count} submissions: {note}; enter times in [{project}.submitted] of the late policy"
            for (project, note), count in sorted(assumed.items())
        ]
        lines += ["", *self._table(), ""] if self.records else []
        done = sum(record.status == "done" for record in self.records)
        lines.append(f"layout: {', '.join(dict.fromkeys(self.layouts))}")
        lines.append(f"graded: {done} of {len(self.submitted) + len(self.unassigned)}; gradebook: {self.gradebook}")
        lines += self._next_commands(done)
        return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)

    def _table(self) -> list[str]:
        """Return the marks by student and project."""
        projects = list(dict.fromkeys(record.project.id for record in self.records))
        by_student: dict[str, dict[str, object]] = {}
        for record in self.records:
            mark: object = round_points(record.score) if record.status == "done" else record.status
            if record.status == "done" and record.undecided:
                mark = f"{mark} ({len(record.undecided)} undecided)"
            by_student.setdefault(record.student, {})[record.project.id] = mark
        rows = [[student, *(marks.get(project, "") for project in projects)] for student, marks in by_student.items()]
        return aligned([["student", *projects], *rows])

    def _next_commands(self, done: int) -> Iterator[str]:
        folder = shlex.quote(str(self.gradebook.parent))
        commands = (
            [f"mlhood marks {folder} --write to-mark.csv"] if any(record.undecided for record in self.records) else []
        )
        if done:
            commands.append(f"mlhood export {folder} --format csv --to marks.csv")
            commands.append(f"mlhood class-report {folder} --to class.html")
            commands.append(f"mlhood feedback {folder} --to feedback")
        return (f"{'next:' if i == 0 else '     '} {command}" for i, command in enumerate(commands))

    def _undecided(self) -> Iterator[str]:
        """Yield the tasks on which the instructor has to decide."""
        for record in self.records:
            for task in record.undecided:
                points = f"{round_points(task.earned)} of {round_points(task.points)} so far"
                yield f"{record.student} {task.id}: undecided ({points}): {task.why_undecided}"

    def _compared_with_roster(self) -> Iterator[str]:
        """Yield who has submitted nothing, by project, and who is not in the roster."""
        missing: dict[str, list[str]] = {}
        for record in self.records:
            if record.status == MISSING:
                missing.setdefault(record.project.id, []).append(record.student)
        for project, students in missing.items():
            yield f"{project}: nothing was submitted by {', '.join(students)}"
        if self.roster.students:
            known = {(r.student, r.submission.name) for r in self.submitted}
            strangers = sorted(student for student, name in known if self.roster.find(student, name) is None)
            if strangers:
                yield f"not in the roster: {', '.join(strangers)}"


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table: the first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells)
    return [line.rstrip() for line in lines]
