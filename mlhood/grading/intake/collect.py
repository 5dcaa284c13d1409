"""Find what a class has handed in, and copy it into a store in which a file is named after its content.

Whatever is wrong with one submission becomes its result; it never stops the others.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO
from zoneinfo import ZoneInfo

from mlhood.errors import GradingError, OutputError
from mlhood.grading.intake.files import BROKEN, Finding, findings
from mlhood.grading.intake.layouts import TIMESTAMP, Layout, Owner, choose
from mlhood.grading.intake.submitted_file import Handed

MAX_BYTES = 32 << 20
MAX_ALL_BYTES = 16 << 30
MAX_TIMESTAMP_BYTES = 200
CHUNK = 1 << 20
NOT_HERE = "it lies where this layout has no submissions, so it is nobody's"


@dataclass(frozen=True)
class Collection:
    """What was found: the layout, a submission for every student and assignment, and further files of theirs."""

    layout: str
    handed: tuple[Handed, ...]
    extras: tuple[Handed, ...] = ()


class _TooLarge(Exception):
    """The file is larger than a submission may be."""


def collect(place: Path, store: Path, hint: str | None = None) -> Collection:
    """Copy the submissions of a folder or archive into a store.

    Args:
        place: A folder or a zip archive.
        store: Folder of the copies; it is made if need be.
        hint: Name of the layout (see `layouts.choose`); by default it is guessed.

    Raises:
        GradingError: There is no such place, no such layout, or not one submission.
        OutputError: The store cannot be written.
    """
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(store, error) from None
    with findings(place) as found:
        title = place.stem if place.is_file() else place.resolve().name
        layout = choose([one.path for one in found], title=title, hint=hint)
        owned = [(one, owner) for one in found if (owner := layout.owner(one.path))]
        if not owned:
            raise _nothing(place, layout, found)
        times = _times(owned, layout)
        budget = _Budget(MAX_ALL_BYTES)
        taken = [_take(one, owner, store, times, budget) for one, owner in owned if _is_notebook(one.path)]
        lost = [one for one in found if _is_lost(one, layout)]
        elsewhere = [Handed("", source=str(one.path), problem=one.problem or NOT_HERE) for one in lost]
    counting, extras = _counting(taken)
    without = _without_notebook(owned) if layout.name != "flat" else []  # there a file says nothing of a student
    return Collection(layout.name, (*counting, *without), (*extras, *elsewhere))


def _nothing(place: Path, layout: Layout, found: list[Finding]) -> GradingError:
    return GradingError(
        "there are no submissions here",
        where=place,
        expected=f"notebooks in the layout {layout.name!r}",
        got=f"{len(found)} files" + (f", such as {found[0].path}" if found else ""),
        todo="say how they are laid out: --format-hint nbgrader|classroom|moodle|canvas|flat",
    )


def _is_lost(one: Finding, layout: Layout) -> bool:
    return _is_notebook(one.path) and layout.owner(one.path) is None


def _is_notebook(path: PurePosixPath) -> bool:
    return path.suffix.lower() == ".ipynb"


class _Budget:
    """Bytes that may still be copied, so that thousands of small bombs are no large one."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _TooLarge(f"the submissions together hold more than {MAX_ALL_BYTES >> 30} GiB")


def _take(one: Finding, owner: Owner, store: Path, times: dict[tuple[str, str], datetime], budget: _Budget) -> Handed:
    submitted = times.get((owner.student, owner.assignment))
    handed = Handed(owner.student, owner.name, owner.assignment, str(one.path), submitted=submitted, late=owner.late)
    if one.problem:
        return replace(handed, problem=one.problem)
    try:
        path, digest = _copy(one, store, budget)
    except _TooLarge as reason:
        return replace(handed, problem=str(reason))
    except BROKEN as error:
        return replace(handed, problem=f"it cannot be read: {error}")
    return replace(handed, path=path, sha256=digest)


def _copy(one: Finding, store: Path, budget: _Budget) -> tuple[Path, str]:
    digest, size = hashlib.sha256(), 0
    temporary = store / f".incoming-{os.getpid()}"
    try:
        with one.open() as source, _open_store(temporary) as target:
            while chunk := source.read(CHUNK):
                size += len(chunk)
                if size > MAX_BYTES:
                    raise _TooLarge(
                        f"it is larger than {MAX_BYTES >> 20} MiB; clear its outputs "
                        "(Edit > Clear Outputs of All Cells) and save it"
                    )
                budget.spend(len(chunk))
                digest.update(chunk)
                _write(target, chunk, store)
        path = store / f"{digest.hexdigest()}.ipynb"
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path, digest.hexdigest()


def _write(target: IO[bytes], chunk: bytes, store: Path) -> None:
    try:
        target.write(chunk)
    except OSError as error:  # a full disk is nobody's submission
        raise _unwritable(store, error) from None


def _open_store(path: Path) -> IO[bytes]:
    try:
        return path.open("wb")
    except OSError as error:
        raise _unwritable(path.parent, error) from None


def _unwritable(store: Path, error: OSError) -> OutputError:
    return OutputError(
        "the submissions cannot be copied",
        where=store,
        got=error.strerror or str(error),
        todo="choose another folder with --out, or make room in this one",
    )


def _counting(taken: Iterable[Handed]) -> tuple[list[Handed], list[Handed]]:
    """Of several notebooks for one assignment the one that counts; and the others, which say so."""
    chosen: dict[tuple[str, str], Handed] = {}
    extras: list[Handed] = []
    for one in sorted(taken, key=_preference, reverse=True):
        first = chosen.setdefault((one.student, one.slot), one)
        if first is not one:
            extras.append(replace(one, problem=one.problem or f"{first.source} counts in its place"))
    return sorted(chosen.values(), key=lambda one: (one.student, one.slot)), extras


def _preference(one: Handed) -> tuple[bool, bool, list[str | int], str]:
    stem = PurePosixPath(one.source).stem
    pieces = re.split(r"([0-9]{1,9})", stem)  # words and numbers take turns
    natural = [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)]
    # a name such as `P1-2` is the second time that somebody handed in, so larger numbers count
    return not one.problem, stem.upper() == one.assignment.upper(), natural, one.source


def _without_notebook(owned: Iterable[tuple[Finding, Owner]]) -> list[Handed]:
    """The students who handed in something, but no notebook."""
    files: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for one, owner in owned:
        files.setdefault(owner.student, []).append(str(one.path))
        names[owner.student] = owner.name
    return [
        Handed(student, names[student], source=paths[0], problem=_no_notebook(paths))
        for student, paths in files.items()
        if not any(_is_notebook(PurePosixPath(path)) for path in paths)
    ]


def _no_notebook(paths: list[str]) -> str:
    return f"there is no notebook among {', '.join(paths[:3])}" + (" …" if len(paths) > 3 else "")


def _times(owned: Iterable[tuple[Finding, Owner]], layout: Layout) -> dict[tuple[str, str], datetime]:
    """When they were handed in, by student and assignment: nbgrader keeps it in a file of its own."""
    if layout.name != "nbgrader":
        return {}
    times = {}
    for one, owner in owned:
        if one.path.name == TIMESTAMP and not one.problem and (time := _read_time(one)):
            times[owner.student, owner.assignment] = time
    return times


def _read_time(one: Finding) -> datetime | None:
    try:
        with one.open() as file:
            text = file.read(MAX_TIMESTAMP_BYTES).decode("ascii").strip()
        return parse_time(text)
    except BROKEN:
        return None


def parse_time(text: str) -> datetime:
    """A time as nbgrader writes it: `2026-02-02 15:58:23.948203 UTC`, with a zone's name, an offset or neither (UTC).

    Raises:
        ValueError: It is no time.
    """
    words = text.split()
    zone = words[-1] if len(words) > 1 and words[-1][0].isalpha() else ""
    time = datetime.fromisoformat(text.removesuffix(zone).strip())
    if time.tzinfo is not None:
        return time
    try:
        return time.replace(tzinfo=ZoneInfo(zone) if zone not in {"", "UTC"} else UTC)
    except (KeyError, OSError) as error:
        raise ValueError(f"no time zone {zone!r}") from error
