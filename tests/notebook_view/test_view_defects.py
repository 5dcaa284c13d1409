"""Each detector of defects finds the notebooks that have the defect, and none in those that look right."""

from __future__ import annotations

from base64 import b64encode

import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from mlhood.notebook_view.github_view import github_page
from mlhood.notebook_view.view_defects import defects, is_table

PNG, CLEAR = (b64encode(Image.new(mode, (1, 1))._repr_png_()).decode() for mode in ("RGB", "RGBA"))
DESCRIPTION = "Bar chart of two rates: naive 0.9, blocked 12."
FRAME = pd.DataFrame({"layer": ["conv1", "conv2"], "rate": [1.25, 13.5]})


def displayed(data: dict, **metadata: object):
    return new_code_cell("1", outputs=[new_output("display_data", data, metadata=metadata)])


def printed(text: str):
    return new_code_cell("1", outputs=[new_output("stream", name="stdout", text=text)])


def found(cell) -> list[str]:
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), cell])
    listed = defects(notebook, github_page(notebook, "T9"), "T9.ipynb")
    assert {(defect.notebook, defect.cell) for defect in listed} <= {("T9.ipynb", cell.id)}
    assert all(defect.todo for defect in listed)
    return [defect.what for defect in listed]


BAD = [
    (new_markdown_cell("costs $5"), "a dollar sign without a partner"),
    (new_markdown_cell(r"where \(x\) is"), r"the delimiter \("),
    (new_markdown_cell(r"so \frac{1}{2}"), r"\frac outside of a formula"),
    (displayed({"text/html": r"<p>so \frac{1}{2}</p>"}), "raw TeX in an output"),
    (displayed({"text/html": r"<p>so $\qwertz$</p>"}), "a formula that is not understood"),
    (new_markdown_cell(f"![](data:image/png;base64,{PNG})"), "a picture without alternative text"),
    (new_markdown_cell("![the network as a graph of five nodes](images/a.png)"), "a picture from outside"),
    (new_markdown_cell("<img src='https://example.org/a.png' alt='a graph of five nodes'>"), "a picture from outside"),
    (displayed({"image/png": PNG}), "a picture without alternative text"),
    (displayed({"image/png": PNG}, **{"image/png": {"alt": "a bar chart"}}), "is only 'a bar chart'"),
    (displayed({"image/png": PNG}, **{"image/png": {"alt": "figure_of_the_network.png"}}), "is only 'figure"),
    (displayed({"image/svg+xml": "<svg/>"}), "a picture without alternative text"),
    (displayed({"image/png": CLEAR}, **{"image/png": {"alt": DESCRIPTION}}), "a transparent picture"),
    (displayed({"text/html": f"<img src='data:image/png;base64,{PNG}'>"}), "a picture without alternative text"),
    (displayed({"text/plain": repr(FRAME)}), "a table as text only"),
    (printed(FRAME.to_string()), "a table as text only"),
    (printed(f"sizes\n{pd.Series([1, 22, 333, 4]).to_string()}\ntotal: 360"), "a table as text only"),
    (printed("| a | b |\n|---|---|\n| 1 | 2 |"), "a table as text"),
    (printed("layer    rate\n-----  ------\nconv1    1.25\n"), "a table as text only"),
    (displayed({"text/plain": repr(FRAME.rate)}), "a table as text only"),
    (printed("\x1b[34mlambda\x1b[39m"), "escape codes of a terminal in"),
    (displayed({"text/plain": "\x1b[34mlambda\x1b[39m"}), "escape codes of a terminal in"),
    (displayed({"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}), "GitHub shows nothing of"),
    (displayed({"text/html": "<script>draw()</script>"}), "GitHub removes <script>"),
    (displayed({"text/html": "<iframe src='a.html'></iframe>"}), "GitHub removes <iframe>"),
]


@pytest.mark.parametrize(("cell", "what"), BAD, ids=[what for _, what in BAD])
def test_a_defect_is_found(cell, what):
    assert any(what in each for each in found(cell)), found(cell)


GOOD = [
    new_markdown_cell(r"From \$5 to $\frac{n}{2}$, as `\frac` in `$x` and [this](#there)"),
    new_markdown_cell(f"![{DESCRIPTION}](data:image/png;base64,{PNG})"),
    displayed({"image/png": PNG}, **{"image/png": {"alt": DESCRIPTION}}),
    displayed({"image/svg+xml": "<svg/>"}, **{"image/svg+xml": {"alt": DESCRIPTION}}),
    displayed({"text/html": FRAME.to_html(), "text/plain": repr(FRAME)}),
    displayed({"text/html": FRAME._repr_html_(), "text/plain": repr(FRAME)}),
    displayed({"text/html": "<pre>\\frac</pre> and <code>\\sum</code>"}),
    displayed({"text/plain": "array([[1., 2.],\n       [3., 4.]], dtype=float32)"}),
    printed("[[1 2]\n [3 4]]\nfloat32 (1, 32, 32)\nto train on:   (1501, 1)\nheld out:      (296, 1)"),
    printed("for i in range(4):\n    for j in range(8):\n        c[i]  += a[i, j]"),
]


@pytest.mark.parametrize("cell", GOOD, ids=range(len(GOOD)))
def test_what_looks_right_has_no_defect(cell):
    assert found(cell) == []


def test_a_message_names_notebook_cell_defect_and_remedy():
    notebook = new_notebook(cells=[new_markdown_cell("costs $5", id="text-1")])
    (defect,) = defects(notebook, github_page(notebook, "T9"), "T9.ipynb")
    assert str(defect) == (
        "T9.ipynb, cell text-1: a dollar sign without a partner: 'costs $5'; close the formula, or write \\$ for money"
    )


def test_a_frame_that_is_cut_is_a_table():
    assert is_table(repr(pd.DataFrame({"a": range(100)})))
