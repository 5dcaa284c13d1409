"""What is found in a browser: each detector on a page that has the defect, and on one that looks right."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from mlhood.exchange import find_browser
from mlhood.notebook_view.browser_view import THEMES, open_browser, view
from mlhood.notebook_view.github_view import github_page

DESCRIPTION = "Bar chart of two rates: naive 0.9, blocked 12."
LONG = "wide" * 100
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one"),
]


@pytest.fixture(scope="module")
def browser():
    with open_browser() as chromium:
        yield chromium


def displayed(kind: str, data: str):
    return new_code_cell("1", outputs=[new_output("display_data", {kind: data}, metadata={kind: {"alt": DESCRIPTION}})])


def png(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


BAD = [
    (new_markdown_cell(f"a {'$' + 'a + ' * 60 + 'b$'} b"), "too wide for a screen of 1000"),
    (new_markdown_cell(f"a {'$' + 'a + ' * 15 + 'b$'} b"), "too wide for a screen of 400"),
    (displayed("image/png", "bm90IGEgcGljdHVyZQ=="), "a broken picture"),
    (new_markdown_cell(f"![{DESCRIPTION}](missing.png)"), "a broken picture"),
]


@pytest.mark.parametrize(("cell", "what"), BAD, ids=[what for _, what in BAD])
def test_a_defect_is_found_in_its_cell(cell, what, browser):
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), cell])
    found = view(browser, github_page(notebook, "T9"), "T9")
    assert any(what in defect.what for defect in found), found
    assert {(defect.notebook, defect.cell) for defect in found} == {("T9", cell.id)}
    assert all(defect.todo for defect in found)


def test_an_element_that_is_too_wide_is_found_even_outside_of_a_cell(browser):
    page = github_page(new_notebook(cells=[]), "T9").replace("<main>", "<main><div style='width:1200px'>bar</div>")
    found = view(browser, page, "T9")
    assert ["bar" in defect.what for defect in found] == [True, True]


GOOD = [
    new_markdown_cell(f"# {LONG}\n\n{LONG} `{LONG}` $x^2$\n\n```\n{LONG}\n```\n\n| {LONG} | b |\n|---|---|\n| 1 | 2 |"),
    new_code_cell(f"x = '{LONG}'", outputs=[new_output("stream", name="stdout", text=LONG)]),
    displayed("text/html", f"<table><tr><td>{LONG}</td></tr></table>"),
    displayed("image/png", png(np.full((10, 3000, 4), 255, np.uint8))),
]


@pytest.mark.parametrize("cell", GOOD, ids=range(len(GOOD)))
def test_what_looks_right_has_no_defect(cell, browser):
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), cell])
    assert view(browser, github_page(notebook, "T9"), "T9") == []


def test_screenshots_show_all_of_the_page_in_both_themes_and_widths(browser, tmp_path):
    notebook = new_notebook(cells=[new_markdown_cell("text\n\n" * 300)])
    view(browser, github_page(notebook, "T9"), "T9", tmp_path / "shots")
    images = {path.stem: Image.open(io.BytesIO(path.read_bytes())) for path in (tmp_path / "shots").iterdir()}
    assert sorted(images) == sorted(
        f"T9-{theme}-{width}-{part}" for theme in THEMES for width in (1000, 400) for part in (1, 2)
    )
    assert {image.width for image in images.values()} == {1000, 400}
    for theme, colour in {"light": (255, 255, 255), "dark": (13, 17, 23)}.items():
        assert images[f"T9-{theme}-400-2"].convert("RGB").getpixel((2, 2)) == colour
