"""Results in a file, one JSON object per line with time and machine, to be compared with later ones."""

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
from mlhood.measure.measurement import Comparison, check_keys

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
# facts that determine the speed; memory limits and usable cores change from day to day
_HARDWARE = ("cpu", "architecture", "vector", "caches")


@dataclass(frozen=True)
class Record:
    """A stored result.

    Args:
        result: The comparison.
        tags: Its subject, such as `{"bench": "gemm", "n": 512}`.
        time: Time of storage, ISO 8601 in UTC.
        fingerprint: Digest of the machine's hardware.
    """

    result: Comparison
    tags: dict[str, Any] = field(default_factory=dict)
    time: str = ""
    fingerprint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data."""
        metadata = {"format": FORMAT, "time": self.time, "fingerprint": self.fingerprint, "tags": self.tags}
        return {**metadata, "result": self.result.to_dict()}


def fingerprint(machine: Mapping[str, Any] | None = None) -> str:
    """Return twelve hexadecimal digits that identify processor, vector sets and caches.

    Args:
        machine: `Machine.as_dict()`; of this machine by default.
    """
    facts = this_machine().as_dict() if machine is None else machine
    text = json.dumps({name: facts.get(name) for name in _HARDWARE}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def save(path: str | Path, result: Comparison, **tags: Any) -> Record:
    """Append a result to a file of JSON lines, and return its record.

    Args:
        path: The file; created if it does not exist.
        result: The comparison.
        tags: Its subject; JSON-serializable.

    Raises:
        OutputError: The file cannot be written.
        MeasureError: A tag is not JSON-serializable.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = Record(result, tags, now, fingerprint(result.machine or None))
    try:
        line = json.dumps(record.to_dict(), allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise MeasureError("a tag is not JSON-serializable", expected="numbers and texts", got=error) from None
    try:
        _append(Path(path), line.encode())
    except OSError as error:
        raise OutputError("the file cannot be written", where=path, got=error.strerror or error) from error
    return record


def _append(path: Path, line: bytes) -> None:
    """Append a line with a single write; a preceding line that is incomplete is terminated first."""
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line)


def load(path: str | Path, **tags: Any) -> list[Record]:
    """Return the results in a file whose tags have these values, oldest first.

    Raises:
        MeasureError: The file cannot be read, or a line in it is invalid; the message names the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MeasureError("the results cannot be read", where=path, got=error) from error
    records = [_parse(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    return [record for record in records if all(record.tags.get(name) == value for name, value in tags.items())]


def _parse(line: str, where: str) -> Record:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        todo = "delete this line: it was not written completely"
        raise MeasureError("invalid JSON", where=where, got=error, todo=todo) from None
    data = check_keys(data, {"format", "time", "fingerprint", "tags", "result"}, where)
    if data["format"] != FORMAT or not isinstance(data["tags"], dict):
        raise MeasureError("invalid record", where=where, expected=f"format {FORMAT}", got=data["format"])
    result = Comparison.from_dict(data["result"], where)
    return Record(result, data["tags"], str(data["time"]), str(data["fingerprint"]))


def compare_runs(before: Iterable[Record], after: Iterable[Record]) -> pd.DataFrame:
    """Compare runs with the same tags, one row for each alternative that both have measured.

    Times of two runs are not from the same rounds, so their ratio has a wide interval; the speed-ups over the baseline,
    listed beside it, are more stable. Of several runs with the same tags the last one is used.

    Returns:
        Columns `tags`, `alternative`, `time` (after / before), `speedup_before`, `speedup_after` (each a `Ratio`), and
        `same_machine`.
    """
    import pandas as pd

    old, new = ({json.dumps(r.tags, sort_keys=True): r for r in records} for records in (before, after))
    rows = [row for key, record in old.items() if key in new for row in _rows(record, new[key])]
    columns = ["tags", "alternative", "time", "speedup_before", "speedup_after", "same_machine"]
    return pd.DataFrame(rows, columns=columns)


def _rows(old: Record, new: Record) -> list[tuple[Any, ...]]:
    same = old.fingerprint == new.fingerprint
    tags = ", ".join(f"{name}={value}" for name, value in old.tags.items())
    common = [name for name in old.result.measurements if name in new.result.measurements]
    return [
        (tags, name, new.result[name].ratio(old.result[name]), old.result.speedup(name), new.result.speedup(name), same)
        for name in common
    ]
