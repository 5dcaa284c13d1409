"""Text in drawings: how wide it is in the font that matplotlib brings along, and how any name is made printable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import FT2Font, LoadFlags

FONT = "DejaVu Sans"
_LARGE = 100  # points at which characters are measured, so that rounding to pixels does not show
_LEADING = 1.28
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Line:
    """One line of text.

    Args:
        text: What it says; `said` makes one of any name.
        size: Height of the font in pixels.
        bold: Whether the letters are bold.
        faint: Whether it is printed in grey.
    """

    text: str
    size: float = 10.5
    bold: bool = False
    faint: bool = False

    @property
    def width(self) -> float:
        """How wide the line is, in pixels."""
        return sum(_advance(character, self.bold) for character in self.text) * self.size

    @property
    def height(self) -> float:
        """How far the next line is below, in pixels."""
        return self.size * _LEADING


def printable(text: str) -> str:
    """Return the text with an escape for each character that the font does not have."""
    return "".join(one if _has(one) else _escaped(one) for one in text)


def legal(text: str) -> str:
    """Return the text with an escape for each character that XML does not allow, or that cannot be seen."""
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, most: int) -> str:
    """Return the text without its middle where it is longer than `most` characters: names differ at their ends."""
    if len(text) <= most:
        return text
    front = (most - 1) // 2
    return f"{text[:front]}…{text[len(text) - (most - 1 - front) :]}"


def said(text: str, most: int = 34) -> str:
    """Return any text as it stands in a drawing: printable, and at most so many characters."""
    return shortened(printable(text), most)


def typeset(text: str) -> str:
    """Return words of our own with a raised exponent and a real arrow: "2^-7 -> 1" becomes "2⁻⁷ → 1"."""
    raised = re.sub(r"(?<=scale 2)\^(-?\d+)", lambda match: match[1].translate(_RAISED), text)
    return raised.replace(" -> ", " → ")


@lru_cache(maxsize=2)
def _font(bold: bool) -> FT2Font:
    return get_font(
        findfont(FontProperties(family=FONT, weight="bold" if bold else "normal"), fallback_to_default=True)
    )


@lru_cache(maxsize=8192)
def _advance(character: str, bold: bool) -> float:
    font = _font(bold)
    font.set_size(_LARGE, 72)
    return font.load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / _LARGE


@lru_cache(maxsize=8192)
def _has(character: str) -> bool:
    return character.isprintable() and all(ord(character) in _font(bold).get_charmap() for bold in (False, True))
