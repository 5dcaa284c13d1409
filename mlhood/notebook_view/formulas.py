"""Formulas in Markdown: where they stand, which ones a renderer does not understand, and their MathML.

GitHub draws them with MathJax.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

# code, comments and an escaped dollar sign hold no formula
_NO_MATH = re.compile(r"^(`{3,}|~{3,}).*?^\1|(`+)(?!`).*?(?<!`)\2(?!`)|<!--.*?-->|\\\$", re.DOTALL | re.MULTILINE)
_FORMULA = re.compile(r"\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^$]+)\$", re.DOTALL)
_PARAGRAPH = re.compile(r"(?:.+\n?)+")
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
COMMAND = re.compile(r"\\[A-Za-z]{2,}")


@dataclass(frozen=True)
class Formula:
    """A formula of a Markdown text: its TeX without the dollar signs, and whether it stands on a separate line."""

    tex: str
    display: bool


def without_code(markdown: str) -> str:
    """Return the text with spaces in the place of code, comments and escaped dollar signs; lines stay."""
    return _NO_MATH.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), markdown)


def formulas(markdown: str) -> list[Formula]:
    """Return the formulas of a text in their order; a formula does not cross an empty line."""
    paragraphs = _PARAGRAPH.findall(without_code(markdown))
    return [_formula(match) for paragraph in paragraphs for match in _FORMULA.finditer(paragraph)]


def _formula(match: re.Match[str]) -> Formula:
    return Formula(match["display"] or match["inline"], display=match["display"] is not None)


def faults(markdown: str) -> Iterator[tuple[str, str]]:
    """Yield what a renderer would not understand in a Markdown text, and what to do about it."""
    for paragraph in _PARAGRAPH.findall(without_code(markdown)):
        prose = _FORMULA.sub(" ", paragraph)
        if "$" in prose:
            yield (
                f"a dollar sign without a partner: {_excerpt(prose, '$')}",
                r"close the formula, or write \$ for money",
            )
        for delimiter in sorted(set(_DELIMITER.findall(prose))):
            yield f"the delimiter {delimiter}, which Markdown reads as a bracket", "write $...$ or $$...$$"
        for command in sorted(set(COMMAND.findall(prose))):
            yield f"{command} outside of a formula", "put it between dollar signs"
        for match in _FORMULA.finditer(paragraph):
            yield from _formula_faults(_formula(match), in_table=_in_table(paragraph, match.start()))


def _excerpt(text: str, mark: str, width: int = 30) -> str:
    at = text.index(mark)
    return repr(text[max(0, at - width) : at + width].strip())


def _in_table(paragraph: str, position: int) -> bool:
    line = paragraph[paragraph.rfind("\n", 0, position) + 1 :]
    return line.lstrip().startswith("|")


def _formula_faults(formula: Formula, *, in_table: bool) -> Iterator[tuple[str, str]]:
    tex = formula.tex
    shown = f"${textwrap.shorten(tex, 60, placeholder='...')}$"
    if not formula.display and tex != tex.strip():
        yield f"{shown} has a space inside a dollar sign, so GitHub shows it as text", "remove the space"
        return
    if in_table and re.search(r"(?<!\\)\|", tex):
        yield f"{shown} has a | in a table, which ends the cell", r"write \vert"
    for opening, closing in (("{", "}"), (r"\left", r"\right"), (r"\begin", r"\end")):
        if _count(tex, opening) != _count(tex, closing):
            yield f"{shown} has {opening} and {closing} in different numbers", "balance them"
            return
    if mathml(formula) is None:
        yield f"{shown} is not understood", "use the commands of MathJax"


def _count(tex: str, word: str) -> int:
    end = "" if word in "{}" else "(?![A-Za-z])"
    return len(re.findall(rf"(?<!\\){re.escape(word)}{end}", tex))


def mathml(formula: Formula) -> str | None:
    """Return a formula as MathML, or None if it is malformed or has an unknown command."""
    from latex2mathml.converter import convert

    try:
        converted = convert(formula.tex.strip(), display="block" if formula.display else "inline")
    except Exception:  # the library's exceptions have no base class
        return None
    return None if COMMAND.search(converted) else converted
