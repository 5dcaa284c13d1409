"""The numbers in a notebook's prose are those of its cells: of their outputs, or set in the code of their section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from mlhood.grading.notebooks.notebook import read

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
TAG = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)
# what is measured or counted; the unit of a variable, such as `x` in "3 x 3", is none of these
UNIT = r"%|×|dB|ms|µs|ns|GFLOP/s|GB/s|[kKM]i?B|bytes|times|cycles|milliseconds|microseconds"
QUANTITY = re.compile(rf"(?<![\w.\-/#`])({NUMBER.pattern})\**\s?\**(?:{UNIT})(?![\w`])")
# which numbers are given, not found: the confidence of an interval, and limits that a task sets
GIVEN = {"95 %", "1.01 times"}
# answers to what-if questions, whose numbers tests compute: in test_p4 and test_p5 of the projects
COMPUTED = {"P4-11-question", "P5-16-question"}


def outputs(cell: NotebookNode) -> Iterator[str]:
    for output in cell.get("outputs", []):
        yield output.get("text", "")
        data = output.get("data", {})
        yield TAG.sub(" ", data.get("text/html", "")) or data.get("text/plain", "")


def sections(cells: list[NotebookNode]) -> list[list[NotebookNode]]:
    found: list[list[NotebookNode]] = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            found.append([])
        found[-1].append(cell)
    return found


def numbers(texts: Iterator[str]) -> set[float]:
    return {float(number.replace(",", "")) for text in texts for number in NUMBER.findall(text)}


def unexplained(cells: list[NotebookNode]) -> list[str]:
    """Return the quantities in prose, with their cells, that no output and no code of the same section has."""
    printed = numbers(text for cell in cells for text in outputs(cell))
    missing = []
    for section in sections(cells):
        known = printed | numbers(cell.source for cell in section if cell.cell_type == "code")
        prose = [cell for cell in section if cell.cell_type == "markdown" and cell.id not in COMPUTED]
        for cell in prose:
            for match in QUANTITY.finditer(cell.source):
                value, digits = float(match[1].replace(",", "")), len(match[1].partition(".")[2])
                shares = (number * factor for number in known for factor in (1, 100))
                if match[0] not in GIVEN and all(round(number, digits) != value for number in shares):
                    missing.append(f"{cell.id}: {match[0]}")
    return missing


@pytest.mark.parametrize("path", sorted(ROOT.glob("P[1-9].ipynb")), ids=lambda path: path.name)
def test_the_numbers_in_prose_are_those_of_the_cells(path):
    assert unexplained(read(path).cells) == []


@pytest.mark.parametrize(
    ("prose", "expected"),
    [
        ("It takes **2.4 ms**.", []),
        ("It takes 2.5 ms.", ["prose: 2.5 ms"]),
        ("A share of 93 %, and 1,204 cycles.", []),
        ("A share of 94 %, with 95 % intervals of 3 x 3.", ["prose: 94 %"]),
    ],
)
def test_a_number_that_no_cell_has_is_found(prose, expected):
    code = new_code_cell("n = 1204", outputs=[new_output("stream", text="2.41 ms, 0.93 of all\n")])
    assert unexplained([new_markdown_cell(prose, id="prose"), code]) == expected
