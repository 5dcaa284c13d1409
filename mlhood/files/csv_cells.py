"""CSV for spreadsheets: no cell that a student has filled is taken for a formula (CSV injection)."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.paths import did_you_mean

# Signs with which spreadsheets begin a formula, or that other programs take for one; also as full-width characters.
FORMULA = ("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")
MAX_BYTES = 32 << 20
MAX_ERRORS = 10
# What may separate cells where a program does not expect commas: it ends a cell within ours.
_SEPARATORS = ";\t\r\n"
_PIECE = re.compile(f"[{_SEPARATORS}]|[^{_SEPARATORS}]+")


def escape_formula(cell: object) -> object:
    """Prefix text that begins like a formula with an apostrophe (OWASP); leave numbers as they are.

    So is text after a semicolon, tab or line break: a spreadsheet that takes these for separators, as Excel does in
    many countries, begins a new cell there.
    """
    if not isinstance(cell, str) or _is_number(cell):
        return cell
    return "".join(f"'{piece}" if _begins_like_formula(piece) else piece for piece in _PIECE.findall(cell))


def unescape_formula(cell: str) -> str:
    """Return the cell before `escape_formula`."""
    pieces = _PIECE.findall(cell)
    original = "".join(piece[1:] if piece[0] == "'" and _begins_like_formula(piece[1:]) else piece for piece in pieces)
    return original if escape_formula(original) == cell else cell


def _begins_like_formula(piece: str) -> bool:
    """Whether the first character is a sign of a formula, after quotes, white space and what has no width."""
    for character in piece:
        if not (character in "\"'" or character.isspace() or unicodedata.category(character) in {"Cf", "Cc"}):
            return character in FORMULA and not _is_number(piece.strip())
    return False


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-").replace(".", "", 1)
    return digits.isascii() and digits.isdigit()


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, with formulas escaped and newlines within cells normalised to a line feed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_normalize_newlines(escape_formula(cell)) for cell in row] for row in rows)
    return text.getvalue()


def _normalize_newlines(cell: object) -> object:
    return cell.replace("\r\n", "\n").replace("\r", "\n") if isinstance(cell, str) else cell


def read_csv(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file.

    Raises:
        GradingError: The file does not exist, is too large, or is not CSV in UTF-8.
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
            todo=did_you_mean(path) or "save it again as CSV UTF-8",
        ) from None


def join_errors(errors: Sequence[str]) -> str:
    """Return the errors of a table's rows for a message, and the number of those that it leaves out."""
    more = f"; and {len(errors) - MAX_ERRORS} more" if len(errors) > MAX_ERRORS else ""
    return "; ".join(errors[:MAX_ERRORS]) + more


def round_points(points: float) -> float | int:
    """Return points for a cell: integers without a decimal point, others rounded to a hundredth."""
    rounded = round(points, 2)
    return int(rounded) if rounded == int(rounded) else rounded
