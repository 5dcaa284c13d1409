"""Each notebook of the course as GitHub shows it, in a browser: in light and dark, on a wide and on a narrow screen.

Screenshots are kept in the folder that the environment variable MLHOOD_SCREENSHOTS names.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlhood.exchange import find_browser
from mlhood.grading.notebooks.notebook import read
from mlhood.notebook_view.browser_view import open_browser, view
from mlhood.notebook_view.github_view import github_page
from mlhood.notebook_view.view_defects import defects

ROOT = Path(__file__).parents[2]
SCREENSHOTS = os.environ.get("MLHOOD_SCREENSHOTS")
every_notebook = pytest.mark.parametrize("path", sorted(ROOT.glob("P[1-9].ipynb")), ids=lambda path: path.name)


@pytest.fixture(scope="module")
def browser():
    with open_browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Return the pages by the notebooks' names; each is made once."""
    return {}


def page_of(path: Path, pages: dict[str, str]) -> str:
    if path.name not in pages:
        pages[path.name] = github_page(read(path), path.stem, path.parent)
    return pages[path.name]


def lines(found) -> str:
    """Return the findings in lines, as pytest shows them when it compares with an empty text."""
    return "\n".join(map(str, found))


@every_notebook
def test_nothing_looks_wrong_on_github(path, pages):
    assert lines(defects(read(path), page_of(path, pages), path.name)) == ""


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
@every_notebook
def test_nothing_looks_wrong_in_a_browser(path, browser, pages):
    screenshots = Path(SCREENSHOTS) if SCREENSHOTS else None
    assert lines(view(browser, page_of(path, pages), path.stem, screenshots)) == ""
