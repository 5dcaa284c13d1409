"""CSV as spreadsheets read it: a cell that a student has filled shall never be taken for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlhood.errors import GradingError

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
MAX_BYTES = 32 << 20


def defused(cell: object) -> object:
    """A cell that no spreadsheet runs: text that begins like a formula gets an apostrophe, numbers stay (OWASP)."""
    if not isinstance(cell, str) or not cell.lstrip(" \ufeff\xa0").startswith(FORMULA) or _is_number(cell):
        return cell
    return f"'{cell}"


def original(cell: str) -> str:
    """The cell before `defused`."""
    return cell[1:] if cell.startswith("'") and defused(cell[1:]) == cell else cell


def _is_number(text: str) -> bool:
    plain = text.removeprefix("-").replace(".", "", 1)
    return plain.isascii() and plain.isdigit()


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; every cell is defused, and lines within a cell end in one way."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_lines(defused(cell)) for cell in row] for row in rows)
    return text.getvalue()


def _lines(cell: object) -> object:
    return cell.replace("\r\n", "\n").replace("\r", "\n") if isinstance(cell, str) else cell


def read_csv(path: Path) -> list[list[str]]:
    """The rows of a CSV file.

    Raises:
        GradingError: There is no such file, it is too large, not UTF-8, or no CSV.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig")
        return list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise GradingError(
            "the table cannot be read",
            where=path,
            expected="a CSV file in UTF-8, separated by commas",
            got=str(error),
            todo="save it again as CSV UTF-8",
        ) from None


def number(points: float) -> float | int:
    """Points as a cell: whole numbers without a decimal point, others to a hundredth."""
    rounded = round(points, 2)
    return int(rounded) if rounded == int(rounded) else rounded
