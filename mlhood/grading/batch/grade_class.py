"""Grade a class into a folder: the gradebook, and the submissions under the hashes of their content."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mlhood.errors import GradingError, OutputError
from mlhood.files.paths import read_text
from mlhood.grading.batch.batch import Batch
from mlhood.grading.batch.class_result import ClassResult
from mlhood.grading.batch.executor import JobExecutor
from mlhood.grading.batch.local_executor import LocalExecutor
from mlhood.grading.batch.result_keys import digest_of
from mlhood.grading.batch.versions import GivenVersions
from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE, SUBMISSIONS_FOLDER, Gradebook
from mlhood.grading.gradebook.late import parse_late_policy
from mlhood.grading.gradebook.records import LATE_POLICY, ROSTER, records, roster_of, unassigned
from mlhood.grading.gradebook.roster import read_roster
from mlhood.grading.intake.collect import collect
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
        scheduler: Address of a Dask scheduler; by default this machine grades.
        variant: Name of the variant that the class was given; that of each group follows from the roster.
    """

    jobs: int = 1
    seed_file: Path | None = None
    late_file: Path | None = None
    roster_file: Path | None = None
    layout: str | None = None
    again: bool = False
    seconds: float = 3600.0
    sandbox: bool = True
    scheduler: str = ""
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
        versions = GivenVersions(gradebook.metadata(VARIANT) or "", roster_of(gradebook))
        Batch(gradebook, _executor(options, seed, gradebook), progress, options.seconds, versions).run(submissions)
        layouts = tuple(collection.layout for collection in collections)
        extras = tuple(file for collection in collections for file in collection.extras)
        results, others = tuple(records(gradebook)), tuple(unassigned(gradebook))
        return ClassResult(gradebook.path, layouts, results, others, extras, roster_of(gradebook))


def _executor(options: GradeOptions, seed: int, gradebook: Gradebook) -> JobExecutor:
    """Return what runs the jobs: processes on this machine, or a Dask cluster."""
    if not options.scheduler:
        return LocalExecutor(options.sandbox, seed, options.jobs)
    try:
        from mlhood.grading.batch.cluster_executor import ClusterExecutor
    except ModuleNotFoundError as error:
        raise GradingError(
            "the part of mlhood for clusters is not installed",
            expected="dask.distributed",
            got=str(error),
            todo='install it: pip install -e ".[cluster]", here and where the workers run',
        ) from None
    name = f"mlhood-{digest_of([str(gradebook.path.resolve())])[:16]}"
    return ClusterExecutor(options.scheduler, options.sandbox, seed, name)


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
