"""Which files become pages of the site, where they stand, and where their links lead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from mlhood.errors import NotebookError, SiteError
from mlhood.grading.notebooks.notebook import notebook_text
from mlhood.site.sources import course_sources, site_path

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def course(root: Path, readme: str = "", *cells) -> Path:
    for name, text in {
        "README.md": f"# Course\n{readme}",
        "mlhood/__init__.py": "",
        "mlhood/kernels/README.md": "# kernels\n",
        "mlhood/kernels/codegen/a.py": "x = 1\n",
        ".github/how-to/a.md": "# How\n\n[notebook](../../P1.ipynb#p1-1), [code](../../mlhood/kernels/codegen/a.py)\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    metadata = {"mlhood": {"project": "P1"}, "language_info": {"name": "python"}}
    notebook = new_notebook(cells=[new_markdown_cell("# P1"), *cells], metadata=metadata)
    (root / "P1.ipynb").write_text(notebook_text(notebook), encoding="utf-8")
    return root


def page(root: Path, name: str) -> str:
    return course_sources(root).files[name].decode()


def cells_of(root: Path) -> list:
    return json.loads(page(root, "P1.ipynb"))["cells"]


def source(cell: dict) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("README.md", "index.md"),
        ("P1.ipynb", "P1.ipynb"),
        (".github/how-to/a.md", "how-to/a.md"),
        ("mlhood/kernels/README.md", "mlhood/kernels/index.md"),
        ("mlhood/kernels/codegen/", "mlhood/kernels/codegen/index.md"),
        ("mlhood/kernels/gemm.py", "mlhood/kernels/gemm.py.html"),
        ("LICENSE", "LICENSE.html"),
        (".github/images/P1.png", "images/P1.png"),
    ],
)
def test_where_a_file_stands(name, path):
    assert site_path(name) == path


def test_links_lead_to_places_on_the_site(tmp_path):
    readme = "[P1](P1.ipynb) [how](.github/how-to/a.md#how) [room](mlhood/kernels) [there](https://example.org/a.md)"
    text = page(course(tmp_path, readme), "index.md")
    assert "[P1](P1.ipynb) [how](how-to/a.md#how) [room](mlhood/kernels/index.md) [there](https://example.org" in text


def test_links_to_anchors_of_notebooks_and_to_code(tmp_path):
    text = page(course(tmp_path), "how-to/a.md")
    assert "[notebook](#p1-1)" in text
    assert "[code](listing:../mlhood/kernels/codegen/a.py.html)" in text


def test_code_stays_as_it_is(tmp_path):
    text = page(course(tmp_path, "`[a](.github/how-to/a.md)`"), "index.md")
    assert "`[a](.github/how-to/a.md)`" in text


def test_what_is_linked_to_is_a_page_also_a_folder_without_readme(tmp_path):
    sources = course_sources(course(tmp_path, "[codegen](mlhood/kernels/codegen)"))
    assert "[a.py](listing:a.py.html)" in sources.files["mlhood/kernels/codegen/index.md"].decode()
    assert "mlhood/kernels/codegen/a.py" in sources.listed


@pytest.mark.parametrize("link", ["missing.md", "../outside.md"])
def test_a_link_that_leads_nowhere_is_refused(link, tmp_path):
    (tmp_path / "outside.md").write_text("x", encoding="utf-8")
    root = course(tmp_path / "course", f"[x]({link})")
    with pytest.raises(SiteError, match="a link leads to no file") as caught:
        course_sources(root)
    assert "README.md" in str(caught.value)
    assert link in str(caught.value)


def test_a_folder_that_is_not_the_course_is_refused(tmp_path):
    with pytest.raises(NotebookError):
        course_sources(tmp_path)


def test_anchors_become_targets(tmp_path):
    cell = new_markdown_cell('<a id="p1-1"></a>\n### P1.1 · Twice\n\n[here](#p1-1)')
    text = source(cells_of(course(tmp_path, "", cell))[1])
    assert text.startswith("\n(p1-1)=\n### P1.1")


def test_solutions_and_answers_are_folded(tmp_path):
    solution = new_code_cell("x = 1", metadata={"mlhood": {"task": "P1.1", "role": "solution"}})
    question = new_markdown_cell("Two.", metadata={"mlhood": {"task": "P1.2", "role": "question"}})
    _, first, second, _ = cells_of(course(tmp_path, "", solution, question))
    assert "hide-input" in first["metadata"]["tags"]
    assert source(second).startswith("<details")
    assert "\n\nTwo.\n\n" in source(second)


def test_of_an_output_with_html_only_that_is_kept(tmp_path):
    output = new_output("display_data", {"text/html": "<p>x</p>", "text/plain": "x"})
    _, cell, _ = cells_of(course(tmp_path, "", new_code_cell("x", outputs=[output])))
    assert set(cell["outputs"][0]["data"]) == {"text/html"}


def test_alternative_texts_are_those_of_the_outputs(tmp_path):
    output = new_output("display_data", {"image/png": PIXEL}, metadata={"image/png": {"alt": "one pixel"}})
    sources = course_sources(course(tmp_path, "", new_code_cell("x", outputs=[output])))
    assert [*sources.alt_texts.values()] == ["one pixel"]
