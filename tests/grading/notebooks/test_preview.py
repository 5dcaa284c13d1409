"""`mlhood preview`: pages, screenshots, findings and exit codes."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from typer.testing import CliRunner

from mlhood import cli
from mlhood.errors import BrowserError
from mlhood.exchange import find_browser
from mlhood.grading.notebooks.notebook import write

needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here")


def preview(folder, text: str, *options: str):
    write(new_notebook(cells=[new_markdown_cell(text, id="text-1")]), folder / "T9.ipynb")
    return CliRunner().invoke(cli.app, ["preview", str(folder / "T9.ipynb"), "--out", str(folder / "out"), *options])


@pytest.mark.browser
@needs_browser
def test_a_notebook_that_looks_right_becomes_a_page_and_screenshots(tmp_path):
    result = preview(tmp_path, "# Title")
    assert (result.exit_code, "nothing looks wrong" in result.output) == (0, True)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    pictures = {f"T9-{theme}-{width}-1.png" for theme in ("light", "dark") for width in (1000, 400)}
    assert names == {"T9.html", *pictures}


@pytest.mark.browser
@needs_browser
def test_what_looks_wrong_is_listed(tmp_path):
    result = preview(tmp_path, "costs $5", "--no-screenshots")
    assert result.exit_code == 1
    assert "T9.ipynb, cell text-1: a dollar sign without a partner" in result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"T9.html"}


def test_without_a_browser_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("mlhood.exchange.find_browser", lambda: None)
    result = preview(tmp_path, "# Title")
    assert isinstance(result.exception, BrowserError)
    assert "install Chromium" in str(result.exception)
