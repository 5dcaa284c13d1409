"""Formulas in Markdown: where they stand, what a renderer would not understand, and their drawing without scripts.

GitHub draws them with MathJax. We draw them with matplotlib's mathtext, whose sizes are close, and which needs no
browser.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.path import Path

# code, comments and an escaped dollar sign hold no formula
_NO_MATH = re.compile(r"^(`{3,}|~{3,}).*?^\1|(`+)(?!`).*?(?<!`)\2(?!`)|<!--.*?-->|\\\$", re.DOTALL | re.MULTILINE)
_FORMULA = re.compile(r"\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^$]+)\$", re.DOTALL)
_PARAGRAPH = re.compile(r"(?:.+\n?)+")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-z*]+\}(?:\{[lcr|]+\})?")
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_EM = 100  # the units of a drawing's coordinates
COMMAND = re.compile(r"\\[A-Za-z]{2,}")
# MathJax's commands that mathtext lacks, and what is drawn in their place; @ is the end of a command's name
_STAND_INS = {
    r"\\(?:text|textrm|textit|mbox)(?={)": r"\\mathrm",
    r"\\(?:textbf|boldsymbol|bm)(?={)": r"\\mathbf",
    r"\\texttt(?={)": r"\\mathtt",
    r"\\(?:tfrac|cfrac)@": r"\\frac",
    r"\\(?:lots|dots)[a-z]*@": r"\\ldots",
    r"\\le@": r"\\leq",
    r"\\ge@": r"\\geq",
    r"\\[lr]vert@": "|",
    r"\\[lr]Vert@": r"\\Vert",
    r"\\implies@": r"\\Rightarrow",
    r"\\iff@": r"\\Leftrightarrow",
    r"\\land@": r"\\wedge",
    r"\\lor@": r"\\vee",
    r"\\(?:bmod|mod)@": r"\\ \\mathrm{mod}\\ ",
    r"\\(?:tag|label){[^}]*}": "",
    r"\\(?:underbrace|overbrace)@": "",
    r"\\(?:limits|nolimits|displaystyle|textstyle|nonumber|notag|[bB]igg?[lrm]?)@": "",
}


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
    try:
        for line in _lines(tex):
            _parse(line)
    except ValueError as error:
        yield f"{shown} is no TeX that is understood: {str(error).splitlines()[-1]}", "use the commands of MathJax"


def _count(tex: str, word: str) -> int:
    end = "" if word in "{}" else "(?![A-Za-z])"
    return len(re.findall(rf"(?<!\\){re.escape(word)}{end}", tex))


def _lines(tex: str) -> list[str]:
    """Return a formula's lines as mathtext takes them: without environments, alignment and commands that it lacks."""
    tex = _ENVIRONMENT.sub(" ", tex)
    for pattern, stand_in in _STAND_INS.items():
        tex = re.sub(pattern.replace("@", "(?![A-Za-z])"), stand_in, tex)
    lines = (re.sub(r"(?<!\\)&", r"\\quad ", " ".join(line.split())) for line in re.split(r"\\\\", tex))
    return [line for line in lines if line]


def _parse(line: str) -> None:
    """Raise ValueError if mathtext does not understand a line."""
    from matplotlib.mathtext import MathTextParser

    MathTextParser("path").parse(f"${line}$")


@functools.lru_cache(maxsize=4096)
def drawing(tex: str) -> str | None:
    """Return a formula as inline SVG in the colour of the text around it, or None if it cannot be drawn."""
    try:
        lines = [_line_drawing(line) for line in _lines(tex)]
    except ValueError:
        return None
    return "<br>".join(lines) or None


def _line_drawing(line: str) -> str:
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser
    from matplotlib.textpath import TextPath

    font = FontProperties(size=_EM, math_fontfamily="cm")
    width, height, depth, *_ = MathTextParser("path").parse(f"${line}$", 72, font)
    path = _svg_path(TextPath((0, 0), f"${line}$", prop=font))
    style = f"width:{width / _EM:.3f}em;height:{height / _EM:.3f}em;vertical-align:{-depth / _EM:.3f}em"
    box = f"0 {depth - height:.1f} {width:.1f} {height:.1f}"
    return f'<svg aria-hidden="true" style="{style}" viewBox="{box}"><path fill="currentColor" d="{path}"/></svg>'


def _svg_path(path: Path) -> str:
    """Return the data of an SVG path, whose y axis points down."""
    letters = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}
    parts = []
    for points, code in path.iter_segments(simplify=False, curves=True):
        numbers = " ".join(f"{x:.1f} {-y:.1f}" for x, y in points.reshape(-1, 2)) if code != 79 else ""
        parts.append(letters[int(code)] + numbers)
    return "".join(parts)
