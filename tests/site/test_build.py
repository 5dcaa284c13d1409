"""The site of this course, built once: its pages, pictures, interface and search, and how it looks in a browser."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from bs4 import BeautifulSoup
from bs4.element import Tag

from mlhood.errors import OutputError, SiteError
from mlhood.exchange import find_browser
from mlhood.grading.notebooks.interface import by_module, public_interface
from mlhood.grading.notebooks.notebook import PNG, course_notebooks, read
from mlhood.notebook_view.browser_view import open_browser, view
from mlhood.site import build
from mlhood.site.build import INSTALL, PACKAGES, build_site
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
NOTEBOOKS = course_notebooks(ROOT)
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
INTERFACE = public_interface(NOTEBOOKS, ROOT)
SHOWN = ["index", "P1", "P4", "api/mlhood.kernels", "how-to/new-pass"]
without_browser = pytest.mark.skipif(
    find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site; building it checks that its links lead somewhere, and that nothing is loaded from elsewhere."""
    for name in PACKAGES:
        pytest.importorskip(name, reason=f"the site needs more packages: {INSTALL}")
    folder = tmp_path_factory.mktemp("site") / "html"
    assert build_site(ROOT, folder) == len([*folder.rglob("*.html")])
    return folder


@pytest.fixture(scope="module")
def browser():
    with open_browser() as chromium:
        yield chromium


def page_of(site: Path, name: str) -> BeautifulSoup:
    return BeautifulSoup((site / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


@pytest.mark.slow
def test_the_sidebar_leads_to_projects_how_tos_package_and_the_instructors_page(site):
    sidebar = page_of(site, "index").find(class_="sidebar-tree")
    assert isinstance(sidebar, Tag)
    links = {str(link["href"]) for link in sidebar.find_all("a")}
    how_tos = [f"how-to/{path.stem}.html" for path in (ROOT / ".github/how-to").glob("*.md")]
    rooms = [f"mlhood/{path.parent.name}/index.html" for path in (ROOT / "mlhood").glob("*/README.md")]
    projects = [f"{path.stem}.html" for path in NOTEBOOKS]
    assert {*how_tos, *rooms, *projects, "mlhood/grading/INSTRUCTORS.html", "api/index.html"} <= links


@pytest.mark.slow
def test_the_home_page_has_the_syllabus_and_leads_to_the_glossary(site):
    assert page_of(site, "index").find(id="syllabus") is not None
    assert page_of(site, "GLOSSARY").find(id="glossary") is not None


@pytest.mark.slow
@every_notebook
def test_a_project_has_all_cells_and_pictures_of_its_notebook_and_folds_solutions(path, site):
    page, notebook = page_of(site, path.stem), read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    assert len(page.select(".cell_input")) == len(code)
    pictures = [output for cell in code for output in cell.outputs if PNG in output.get("data", {})]
    expected = [output.metadata[PNG]["alt"] for output in pictures]
    shown = [str(image["alt"]) for image in page.select(".cell_output img") if (site / str(image["src"])).is_file()]
    assert [" ".join(alt.split()) for alt in shown] == [" ".join(alt.split()) for alt in expected]
    assert all(expected)
    folded = page.select("details.hide")
    assert len(folded) == len([cell for cell in code if cell.metadata.get("mlhood", {}).get("role") == "solution"])
    assert not any(details.has_attr("open") for details in folded)


@pytest.mark.slow
@pytest.mark.parametrize("module", by_module(INTERFACE))
def test_an_api_page_has_every_name_with_its_documentation_and_source(module, site):
    page = page_of(site, f"api/{module}")
    for name in by_module(INTERFACE)[module]:
        heading = page.find(id=name.full)
        assert isinstance(heading, Tag), name.full
        body = heading.find_next_sibling("dd")
        assert isinstance(body, Tag)
        assert body.get_text().strip(), f"{name.full} has no documentation"
        link = heading.find("a", string=re.compile("source")) or heading.select_one("a:has(.viewcode-link)")
        assert isinstance(link, Tag), f"{name.full} has no source"
        file, line = urldefrag(str(link["href"]))
        listing = (site / posixpath.normpath(f"api/{file}")).read_text(encoding="utf-8")
        assert f'id="{line}"' in listing


@pytest.mark.slow
def test_a_signature_has_types_and_a_docstring_its_arguments_and_errors(site):
    from mlhood.exchange import export

    assert export.__doc__ is not None
    page = page_of(site, "api/mlhood.exchange")
    heading = page.find(id="mlhood.exchange.export")
    assert isinstance(heading, Tag)
    assert "→" in heading.get_text()
    assert isinstance(body := heading.find_next_sibling("dd"), Tag)
    assert {"Parameters:", "Raises:"} <= {term.get_text() for term in body.find_all("dt")}


@pytest.mark.slow
@pytest.mark.browser
@without_browser
@pytest.mark.parametrize("name", SHOWN)
def test_nothing_looks_wrong_in_a_browser(name, site, browser):
    assert "\n".join(map(str, view(browser, site / f"{name}.html", name))) == ""


@pytest.mark.slow
@pytest.mark.browser
@without_browser
def test_search_works_from_files_and_nothing_leaves_the_folder(site, browser):
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "search.html").as_uri() + "?q=im2col")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").evaluate_all("links => links.map(link => link.href)")
    assert any(link.partition("?")[0].partition("#")[0].endswith("/P3.html") for link in found)
    assert [url for url in requests if not url.startswith((site.as_uri(), "data:"))] == []
    page.close()


# -- without a build


def test_without_its_packages_the_site_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "PACKAGES", ("furo", "a_package_that_is_not_there"))
    with pytest.raises(SiteError, match="a_package_that_is_not_there") as caught:
        build_site(ROOT, tmp_path / "site")
    assert INSTALL in str(caught.value)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("place", [".", "..", "mlhood/site/html", "tests/html"])
def test_the_course_is_not_overwritten(place, monkeypatch):
    monkeypatch.setattr(build, "PACKAGES", ())
    with pytest.raises(OutputError, match="overwrite the course"):
        build_site(ROOT, ROOT / place)


def test_a_folder_with_something_else_in_it_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "PACKAGES", ())
    (tmp_path / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(OutputError, match="is not a site"):
        build_site(ROOT, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
