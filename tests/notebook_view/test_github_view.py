"""The page of a notebook as GitHub shows it: what is kept, what is removed, what is drawn."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from mlhood.notebook_view.github_view import github_page


def page_of(*cells) -> BeautifulSoup:
    return BeautifulSoup(github_page(new_notebook(cells=list(cells)), "T9"), "html.parser")


def html_output(html: str):
    return new_code_cell("1", outputs=[new_output("display_data", {"text/html": html, "text/plain": "<object>"})])


@pytest.mark.parametrize("tag", ["script", "iframe", "svg", "style", "form", "input", "video"])
def test_what_github_removes_is_removed(tag):
    main = page_of(html_output(f"<p>kept</p><{tag}>x</{tag}>"), new_markdown_cell(f"kept <{tag}>x</{tag}>")).main
    assert main is not None
    assert main.find(tag) is None
    assert main.get_text().count("kept") == 2


def test_styles_and_handlers_of_outputs_are_removed():
    cell = page_of(html_output("<table border='1'><tr><td style='color:red' onclick='x()'>1</td></tr></table>")).td
    assert cell is not None
    assert cell.attrs == {}


def test_cells_are_found_by_their_ids():
    cells = [new_markdown_cell("# Title"), new_code_cell("x = 1")]
    page = page_of(*cells)
    assert all(page.find(id=f"cell-id={cell.id}") for cell in cells)


def test_code_is_highlighted_and_not_a_formula():
    page = page_of(new_code_cell("price = '$5 and $6'"))
    assert "price = '$5 and $6'" in page.get_text()
    assert page.find_all("math") == []


def test_formulas_are_mathml_in_the_text_around_them():
    page = page_of(new_markdown_cell("Let $n < m$ and *k* be\n\n$$x^2$$\n\n`$y$`"))
    assert [formula["display"] for formula in page.find_all("math")] == ["inline", "block"]
    assert [formula.get_text() for formula in page.find_all("math")] == ["n<m", "x2"]
    assert "`" not in page.get_text()
    assert "$y$" in page.get_text()


@pytest.mark.parametrize("tex", [r"\qwertz", "a^"])
def test_a_formula_that_is_not_understood_keeps_its_tex(tex):
    (formula,) = page_of(new_markdown_cell(f"${tex}$")).select("code.formula")
    assert formula.get_text() == tex


def test_links_within_the_page_lead_somewhere():
    page = page_of(new_markdown_cell('[there](#t9-1)\n\n<a id="t9-1"></a>\n## There'))
    assert page.find(id="t9-1") is not None
    assert page.find("a", href="#t9-1") is not None


def test_the_page_needs_no_network_and_runs_nothing():
    page = page_of(new_markdown_cell("text"))
    assert page.find(["script", "link"]) is None
    policy = page.find("meta", attrs={"http-equiv": "Content-Security-Policy"})
    assert policy is not None
    assert str(policy["content"]).startswith("default-src 'none'")


def test_a_picture_of_the_repository_is_in_the_page(tmp_path):
    (tmp_path / "dot.png").write_bytes(b"png")
    (tmp_path.parent / "outside.png").write_bytes(b"png")
    cell = new_markdown_cell("![a dot](dot.png) ![outside](../outside.png) ![none](none.png)")
    page = BeautifulSoup(github_page(new_notebook(cells=[cell]), "T9", tmp_path), "html.parser")
    assert [str(picture["src"])[:15] for picture in page.find_all("img")] == [
        "data:image/png;",
        "../outside.png",
        "none.png",
    ]


@pytest.mark.parametrize("text", ["bars: 1 and 2", 'Netron\'s "drawing"', '"><script>alert(1)</script>', ""])
def test_a_picture_has_its_alternative_text_and_size(text):
    data, metadata = {"image/png": "cG5n", "text/plain": "<Figure>"}, {"image/png": {"alt": text, "width": 230}}
    cell = new_code_cell("plt.show()", outputs=[new_output("display_data", data, metadata=metadata)])
    (picture,) = page_of(cell).find_all("img")
    assert picture["alt"] == (text or "No description has been provided for this image")
    assert (picture["src"], picture["width"]) == ("data:image/png;base64,cG5n", "230")
