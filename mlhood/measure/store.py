"""Results kept in a file: one line of JSON a result, with when and on which machine, to be compared with later ones."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlhood.errors import MeasureError, OutputError
from mlhood.measure.machine import machine as this_machine
from mlhood.measure.measurement import exactly
from mlhood.measure.result import Comparison

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
# what makes one machine as fast as another; memory limits and free cores change from day to day
_HARDWARE = ("cpu", "architecture", "vector", "caches")


@dataclass(frozen=True)
class Record:
    """A stored result.

    Args:
        result: What was measured.
        tags: What it was about, such as `{"bench": "gemm", "n": 512}`.
        time: When it was stored, ISO 8601 in UTC.
        fingerprint: Of the machine's hardware.
    """

    result: Comparison
    tags: dict[str, Any] = field(default_factory=dict)
    time: str = ""
    fingerprint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        told = {"format": FORMAT, "time": self.time, "fingerprint": self.fingerprint, "tags": self.tags}
        return {**told, "result": self.result.to_dict()}


def fingerprint(machine: Mapping[str, Any] | None = None) -> str:
    """Return twelve hexadecimal digits that are the same for the same processor, vector sets and caches.

    Args:
        machine: `Machine.as_dict()`; of this machine if left out.
    """
    facts = this_machine().as_dict() if machine is None else machine
    text = json.dumps({name: facts.get(name) for name in _HARDWARE}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def save(path: str | Path, result: Comparison, **tags: Any) -> Record:
    """Add a result to a file of JSON lines, which is made if it is not there, and return its record.

    Args:
        path: The file.
        result: What was measured.
        tags: What it was about; plain data.

    Raises:
        OutputError: The file cannot be written.
        MeasureError: A tag is no plain data.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = Record(result, tags, now, fingerprint(result.machine or None))
    try:
        line = json.dumps(record.to_dict(), allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise MeasureError("a tag is no plain data", expected="numbers and texts", got=error) from None
    try:
        _append(Path(path), line.encode())
    except OSError as error:
        raise OutputError("the file cannot be written", where=path, got=error.strerror or error) from error
    return record


def _append(path: Path, line: bytes) -> None:
    """Write a line at the end with one call; after a line that was cut off it begins a new one."""
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line)


def load(path: str | Path, **tags: Any) -> list[Record]:
    """Return the results in a file whose tags have these values, oldest first.

    Raises:
        MeasureError: The file cannot be read, or a line in it is no result; it says which.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MeasureError("the results cannot be read", where=path, got=error) from error
    records = [_record(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    return [record for record in records if all(record.tags.get(name) == value for name, value in tags.items())]


def _record(line: str, where: str) -> Record:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        todo = "delete this line: it was cut off when it was written"
        raise MeasureError("this line is no JSON", where=where, got=error, todo=todo) from None
    data = exactly(data, {"format", "time", "fingerprint", "tags", "result"}, where)
    if data["format"] != FORMAT or not isinstance(data["tags"], dict):
        raise MeasureError("this line is no result", where=where, expected=f"format {FORMAT}", got=data["format"])
    result = Comparison.from_dict(data["result"], where)
    return Record(result, data["tags"], str(data["time"]), str(data["fingerprint"]))


def compare_runs(before: Iterable[Record], after: Iterable[Record]) -> pd.DataFrame:
    """Compare runs with the same tags: one row for each alternative that both have measured.

    Times of two runs are not from the same rounds, so their ratio has a wide interval; how each alternative stands
    against its baseline moves less, and stands beside it. Of several runs with the same tags the last one counts.

    Returns:
        Columns `tags`, `alternative`, `time` (after / before), `speedup_before`, `speedup_after` (each a `Ratio`), and
        `same_machine`.
    """
    import pandas as pd

    old, new = ({_key(record): record for record in records} for records in (before, after))
    rows = [row for key, record in old.items() if key in new for row in _rows(record, new[key])]
    return pd.DataFrame(
        rows, columns=["tags", "alternative", "time", "speedup_before", "speedup_after", "same_machine"]
    )


def _rows(old: Record, new: Record) -> list[tuple[Any, ...]]:
    same = old.fingerprint == new.fingerprint
    tags = ", ".join(f"{name}={value}" for name, value in old.tags.items())
    both = [name for name in old.result.measurements if name in new.result.measurements]
    return [
        (tags, name, new.result[name].ratio(old.result[name]), old.result.speedup(name), new.result.speedup(name), same)
        for name in both
    ]


def _key(record: Record) -> str:
    return json.dumps(record.tags, sort_keys=True)
