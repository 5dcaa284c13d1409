"""No cell is a formula, whatever a spreadsheet takes for a separator or for a sign."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.files.csv_cells import FORMULA, csv_text, escape_formula, unescape_formula

FORMULAS = (
    "=1+1",
    "+1+1",
    "-cmd|' /C calc'!A0",
    "@SUM(A1)",
    "|calc",
    "\t=1+1",
    "\n=1+1",
    "\u3000=1+1",  # an ideographic space
    "\u200b=1+1",  # without width
    "\ufeff =1+1",
    "\x00=1+1",
    '"=1+1"',
    "\uff1d1+1",  # full-width signs
    "\uff0b1+1",
    "\uff0d1+1",
    "\uff20SUM(A1)",
)


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("before", ["", "harmless;", "a\tb\t", "two\nlines\n", "x; ", ";;"])
def test_a_formula_is_escaped_wherever_a_cell_may_begin(before, text):
    cell = escape_formula(before + text)
    assert cell != before + text
    for piece in re.split(r"[;\t\r\n]", str(cell)):
        visible = piece.lstrip(' \u3000\u200b\ufeff\x00"')
        assert not visible.startswith(FORMULA), piece


@pytest.mark.parametrize("text", ["", "ada", "-2", "3.5", "a=b", "1; -2", "mail@example.org", "'quoted'", "a - b", 7])
def test_other_cells_stay_as_they_are(text):
    assert escape_formula(text) == text


@given(st.text(alphabet=st.one_of(st.characters(exclude_characters="\r"), st.sampled_from("=+-@;'\t\n \"1"))))
def test_an_escaped_text_can_be_unescaped(text):
    cell = escape_formula(text)
    assert unescape_formula(str(cell)) == text
    assert list(csv.reader(io.StringIO(csv_text([[text, 1]]), newline=""))) == [[cell, "1"]]
