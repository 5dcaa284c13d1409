"""Text in drawings: its width in the font that matplotlib ships, and how any name is made printable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import FT2Font, LoadFlags

FONT = "DejaVu Sans"
_MEASURED_SIZE = 100  # points at which characters are measured: large, so that rounding to pixels does not matter
_LINE_SPACING = 1.28


@dataclass(frozen=True)
class Line:
    """One line of text.

    Args:
        text: The characters; `fit_text` makes any name printable and short enough.
        size: Font size in pixels.
        bold: Whether the font is bold.
        faint: Whether the text is grey.
    """

    text: str
    size: float = 10.5
    bold: bool = False
    faint: bool = False

    @property
    def width(self) -> float:
        """Width of the line in pixels."""
        return sum(_advance(character, self.bold) for character in self.text) * self.size

    @property
    def height(self) -> float:
        """Distance to the next line in pixels."""
        return self.size * _LINE_SPACING


def fit_text(text: str, max_chars: int = 34) -> str:
    """Return any text as it can be drawn: characters that the font lacks are escaped, the middle of long text elided.

    The middle, since long names differ at their ends.
    """
    text = "".join(character if _has_glyph(character) else _escape(character) for character in text)
    if len(text) <= max_chars:
        return text
    head = (max_chars - 1) // 2
    return f"{text[:head]}…{text[len(text) - (max_chars - 1 - head) :]}"


def escape_xml(text: str) -> str:
    """Return the text with an escape for each character that is invalid in XML or invisible."""
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


@lru_cache(maxsize=2)
def _font(bold: bool) -> FT2Font:
    properties = FontProperties(family=FONT, weight="bold" if bold else "normal")
    return get_font(findfont(properties, fallback_to_default=True))


@lru_cache(maxsize=8192)
def _advance(character: str, bold: bool) -> float:
    """Return a character's advance width as a multiple of the font size."""
    font = _font(bold)
    font.set_size(_MEASURED_SIZE, 72)
    return font.load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / _MEASURED_SIZE


@lru_cache(maxsize=8192)
def _has_glyph(character: str) -> bool:
    return character.isprintable() and all(ord(character) in _font(bold).get_charmap() for bold in (False, True))
