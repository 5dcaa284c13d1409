from __future__ import annotations

import pytest

from mlhood.grading.checks.cell_lines import MAX_SHOWN, CellLines
from mlhood.grading.checks.expect import MAX_SHOWN_CHARACTERS, CheckFailed
from mlhood.grading.checks.submission import Session, Submission
from mlhood.grading.rpc.codec import encode

CELL = "def f(x):\n    y = x[3]\n\n    return\u2028y\n    \x1b]0;owned\x07 " + 200 * "long "


@pytest.fixture
def lines() -> CellLines:
    lines = CellLines()
    lines.add("y = f(1)\n    y = x[3]", "the cell `y = f(1)`")
    lines.add(CELL, "the solution cell of T9.1")
    return lines


@pytest.mark.parametrize(
    ("claims", "place"),
    [
        ([(1, "y = f(1)"), (2, "y = x[3]")], "in line 2 of the solution cell of T9.1: `y = x[3]`"),
        ([(1, "  y = f(1) ")], "in line 1 of the cell `y = f(1)`: `y = f(1)`"),
        ([(2, "y = x[3]"), (9, "in a library")], "in line 2 of the solution cell of T9.1: `y = x[3]`"),
        ([(4, "return\u2028y")], "in line 4 of the solution cell of T9.1: `return\ufffdy`"),
        ([], ""),
        ([(3, "")], ""),
        ([(1, "y = x[3]")], ""),  # a line at another number
        ([(-1, "y = x[3]"), (10**30, "y = x[3]")], ""),
        ([(2, "y = x[3] # all points for me")], ""),
    ],
)
def test_only_a_line_that_was_run_is_a_place(lines, claims, place):
    assert lines.find(claims) == place


def test_a_long_line_is_cut_and_controls_no_terminal(lines):
    place = lines.find([(5, CELL.split("\n")[4])])
    assert "\x1b" not in place
    assert len(place) < MAX_SHOWN + 60
    assert place.endswith("…`")


@pytest.mark.parametrize(
    ("number", "line", "got"),
    [
        (2, "y = x[3]", "in line 2 of the solution cell of T9.1: `y = x[3]`"),
        (7, "y = x[3]", "in the line `y = x[3]`"),
        ([2], "evil\x1b[2J\n" + 9000 * "x", f"in the line `evil\ufffd[2J {'x' * (MAX_SHOWN - 9)}`"),
        (None, "", "m"),
    ],
)
def test_a_claimed_line_is_only_text_and_a_long_message_does_not_hide_it(lines, tmp_path, number, line, got):
    class Forger:
        def send(self, request, seconds):
            return encode({"error": {"type": "IndexError", "message": 900 * "m", "line": line, "number": number}})

    session = Session(Forger(), tmp_path, tmp_path, lines=lines)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CheckFailed) as caught:
        Submission(session).call("f")
    text = caught.value.parts["got"]
    assert text.startswith("IndexError: mmm")
    assert got in text
    assert len(text) <= MAX_SHOWN_CHARACTERS
    assert "\x1b" not in text
