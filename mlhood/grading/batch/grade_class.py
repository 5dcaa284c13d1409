"""Grade a class into a folder: `gradebook.sqlite`, and the submissions under the hashes of their content."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlhood.errors import GradingError, OutputError
from mlhood.files.locks import claim
from mlhood.grading.batch.batch import MARKER, Batch, Options, Watch
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.late import read_late
from mlhood.grading.gradebook.records import LATE, Record, records, strays
from mlhood.grading.intake.collect import collect
from mlhood.grading.intake.submitted_file import Handed
from mlhood.grading.sandbox.bubblewrap import require

GRADEBOOK = "gradebook.sqlite"
STORE = "submissions"
SEED = "seed"
MAX_TEXT = 1 << 20


@dataclass(frozen=True)
class Graded:
    """What a call has left: the gradebook, the results of all, what belongs to no project, and files beside those."""

    gradebook: Path
    layouts: tuple[str, ...]
    records: tuple[Record, ...]
    strays: tuple[Handed, ...]
    extras: tuple[Handed, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every submission was graded and none was at fault."""
        return not self.strays and all(record.status == "done" for record in self.records)

    def text(self) -> str:
        """What to tell the instructor."""
        lines = [f"note: {one.source}: {one.problem}" for one in self.extras]
        lines += [f"{one.source}: {one.problem}" for one in self.strays]
        lines += [
            f"{one.student} {one.plan.id} ({one.handed.source}): {one.status}: {one.reason}"
            for one in self.records
            if one.status != "done"
        ]
        done = [one for one in self.records if one.status == "done"]
        lines.append(f"layout: {', '.join(dict.fromkeys(self.layouts))}")
        lines.append(f"graded: {len(done)} of {len(self.records) + len(self.strays)}; gradebook: {self.gradebook}")
        return "\n".join("".join(one if one.isprintable() else "?" for one in line) for line in lines)


@dataclass(frozen=True)
class Wishes:
    """How an instructor wants a class graded; see `mlhood grade --help`."""

    jobs: int = 1
    seed_file: Path | None = None
    late_file: Path | None = None
    hint: str | None = None
    again: bool = False
    seconds: float = 3600.0
    marker: str = MARKER
    scheduler: str = ""


def grade_class(places: Iterable[Path], out: Path, wishes: Wishes, watch: Watch) -> Graded:
    """Collect submissions and grade what is new.

    Args:
        places: Folders and archives of submissions.
        out: Folder of the gradebook; what an earlier call has graded there counts.
        wishes: How to grade.
        watch: Is told how it goes.

    Raises:
        GradingError: There are no submissions, a file of the wishes has faults, no worker starts, or there can be no
            sandbox on this machine and the wishes ask for one.
        OutputError: The folder lies among the submissions, cannot be written, or another call is writing it.
    """
    places = list(places)
    if wishes.marker == MARKER:
        require()
    _refuse_within(places, out)
    late = _text(wishes.late_file) if wishes.late_file else None
    if late is not None:
        read_late(late, wishes.late_file)  # before hours of work, not after
    with _own(out), Gradebook(out / GRADEBOOK) as gradebook:
        seed = _seed(gradebook, wishes.seed_file)
        if late is not None:
            gradebook.set_fact(LATE, late)
        if wishes.again:
            gradebook.reopen()
        found = [collect(place, out / STORE, wishes.hint) for place in places]
        handed = [one for collection in found for one in collection.handed]
        gradebook.hand_in(handed)
        options = Options(wishes.jobs, seed, wishes.seconds, wishes.marker)
        _batch(gradebook, options, watch, wishes.scheduler).run(handed)
        layouts = tuple(collection.layout for collection in found)
        extras = tuple(one for collection in found for one in collection.extras)
        return Graded(gradebook.path, layouts, tuple(records(gradebook)), tuple(strays(gradebook)), extras)


def _batch(gradebook: Gradebook, options: Options, watch: Watch, scheduler: str) -> Batch:
    """What grades: workers on this machine, or on those of a Dask cluster."""
    if not scheduler:
        return Batch(gradebook, options, watch)
    try:
        from mlhood.grading.batch.cluster import ClusterBatch
    except ModuleNotFoundError as error:
        raise GradingError(
            "the part of mlhood for clusters is not installed",
            expected="dask.distributed",
            got=str(error),
            todo='install it: pip install -e ".[cluster]", here and where the workers run',
        ) from None
    return ClusterBatch(gradebook, options, watch, scheduler)


def _refuse_within(places: Iterable[Path], out: Path) -> None:
    for place in places:
        if out.resolve().is_relative_to(place.resolve()):
            raise OutputError(
                "the output folder lies among the submissions, and would be taken for one at the next call",
                where=out,
                todo=f"choose a folder outside of {place} with --out",
            )


@contextlib.contextmanager
def _own(out: Path) -> Iterator[None]:
    """Make the folder and keep other calls out of it."""
    with contextlib.ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            mine = stack.enter_context(claim(out / ".lock"))
        except OSError as error:
            raise OutputError(
                "the output folder cannot be written",
                where=out,
                got=error.strerror or str(error),
                todo="choose another folder with --out, or make room in this one",
            ) from None
        if not mine:
            raise OutputError(
                "another call is grading into this folder",
                where=out,
                todo="wait for it, end it, or choose another folder with --out",
            )
        yield


def _seed(gradebook: Gradebook, file: Path | None) -> int:
    """The seed that a file holds; without one, that of the gradebook, drawn at its first use."""
    if file is None:
        kept = gradebook.fact(SEED) or str(secrets.randbits(63))
        gradebook.set_fact(SEED, kept)
        return int(kept)
    text = _text(file).strip()
    if not text:
        raise GradingError(
            "the seed file is empty",
            where=file,
            expected="some text that nobody can guess",
            todo="write one: python3 -c 'import secrets; print(secrets.token_hex())' > seed",
        )
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_TEXT:
                raise ValueError(f"it is larger than {MAX_TEXT >> 20} MiB")
            return stream.read(MAX_TEXT).decode("utf-8")
    except (OSError, ValueError) as error:
        raise GradingError("a file cannot be read", where=file, expected="a text file", got=str(error)) from None
