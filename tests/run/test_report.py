"""The report of a run: marks with measured tables and pictures, in one file that can be sent to someone."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from mlhood.errors import NotebookError
from mlhood.exchange import find_browser
from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult
from mlhood.grading.notebooks.excerpts import EXCERPTS, output
from mlhood.grading.notebooks.notebook import clear_outputs, read
from mlhood.grading.projects import PROJECTS
from mlhood.measure import Claim, Count, Measurement, Table
from mlhood.measure.table import MIME
from mlhood.run import outputs as module
from mlhood.run.outputs import shown
from mlhood.run.report import write_report
from mlhood.run.run import NotebookRun
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
NO_BROWSER = "Netron needs a browser, and none was found"
EVIL = "<script>alert(1)</script>"
PAGE_BYTES = 2_000_000
WIDTHS = (400, 1000)


def png(width: int = 8, height: int = 8) -> str:
    data = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def drawn(picture: str, alt: str | None = "a red square"):
    return new_output("display_data", {"image/png": picture}, metadata={"image/png": {"alt": alt}} if alt else {})


def tabled(table: Table):
    return new_output("display_data", {MIME: table.to_dict(), "text/html": table._repr_html_()})


def counted(name: str = "T9.bytes", title: str = "Bytes", **cells: int) -> Table:
    claims = (Claim("a needs less than b", ("one", "a"), "<", ("one", "b")),)
    table = Table(name, ("one", "two"), ("a", "b"), "bytes", title, "count", claims=claims)
    for column, number in cells.items():
        table["one", column] = Count(number)
    return table


def result(task, status: str = "passed", what: str = "") -> TaskResult:
    checks = [CheckResult(check.name, check.title, check.points, status, what) for check in task.checks]
    return TaskResult(task.id, task.title, tuple(checks))


def run_of(project, notebook, folder: Path, statuses: dict[str, tuple[str, str]] | None = None) -> NotebookRun:
    tasks = tuple(result(task, *(statuses or {}).get(task.id, ())) for task in project.tasks)
    (folder / project.id).mkdir(parents=True)
    (folder / project.id / f"{project.id}.ipynb").write_text("{}")
    marks = Marks(project.id, project.title, tasks, 1.0)
    source = Path("secret", "of ada", f"{project.id}.ipynb")
    return NotebookRun(source, project.id, project, folder / project.id, marks, notebook)


def page_of(runs, folder: Path) -> BeautifulSoup:
    return BeautifulSoup(write_report(runs, folder).read_text(encoding="utf-8"), "html.parser")


def words(tag) -> str:
    return " ".join(tag.get_text(" ").split())


@pytest.fixture(scope="module")
def course_page(tmp_path_factory):
    """The page about the committed notebooks, as if a run had just executed them, without a browser."""
    folder = tmp_path_factory.mktemp("out")
    books = {name: read(ROOT / f"{name}.ipynb") for name in PROJECTS}
    netron = next(cell for cell in books["P1"].cells if cell.id == "P1-7-result-1")
    netron.outputs = [new_output("stream", text="No browser was found, so the picture is skipped.\n")]
    skipped = {"P1.7": ("skipped", NO_BROWSER)}
    runs = [run_of(PROJECTS[name], book, folder, skipped) for name, book in books.items()]
    write_report(runs, folder)
    return folder / "report.html"


@pytest.fixture
def soup(course_page):
    return BeautifulSoup(course_page.read_text(encoding="utf-8"), "html.parser")


def section(soup: BeautifulSoup, name: str):
    return soup.find("section", attrs={"aria-labelledby": name})


def test_the_page_is_one_file_of_a_sane_size(course_page, soup):
    assert course_page.stat().st_size < PAGE_BYTES
    sources = [tag[name] for name in ("src", "srcset", "data", "poster") for tag in soup.find_all(attrs={name: True})]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not soup.find_all(["script", "link", "iframe", "object", "embed"])
    assert "url(" not in soup.style.text
    assert "@import" not in soup.style.text
    assert not re.search(r"\bhttps?:", str(soup.body))
    assert "secret" not in soup.text  # whoever gets it need not know where it was made
    for link in soup.find_all("a"):
        if link["href"].startswith("#"):
            assert soup.find(id=link["href"][1:])
        else:
            assert (course_page.parent / link["href"]).is_file()
            assert link.find_parent("details")  # which says that these files are beside the page


@pytest.mark.parametrize("name", EXCERPTS)
def test_each_project_shows_its_tables_and_pictures_with_words(soup, name):
    part, notebook = section(soup, name), read(ROOT / f"{name}.ipynb")
    figures = part.find_all("figure")
    shown = [words(figure) for figure in figures]
    tables = [shown for cell in notebook.cells for shown in cell.get("outputs", []) if MIME in shown.get("data", {})]
    for table in tables:
        text = words(BeautifulSoup(table.data["text/html"], "html.parser"))
        assert any(figure.startswith(text) for figure in shown)
    assert any(figure.table for figure in figures)
    pictures = [figure.img["alt"] for figure in figures if figure.img]
    assert len(pictures) >= 2
    assert min(map(len, pictures)) > 20
    assert all(re.match(rf"{name}\.\d+ \w", words(figure.figcaption)) for figure in figures)


@pytest.mark.parametrize("name", EXCERPTS)
def test_the_cells_of_an_excerpt_are_in_its_notebook(name):
    notebook = read(ROOT / f"{name}.ipynb")
    for cell_id in EXCERPTS[name].pictures:
        assert output(notebook, cell_id, "image/png"), cell_id


def test_what_could_not_be_asked_is_said_in_words_and_not_drawn(soup):
    part = section(soup, "P1")
    row = next(row for row in part.table.find_all("tr") if "P1.7" in row.text)
    assert not row.select(".bar div")
    assert "not asked" in words(row)
    others = [row for row in part.table.tbody.find_all("tr") if "P1.7" not in row.text]
    assert all(row.select(".bar div span")[0]["style"] == "width:100%" for row in others)
    points = PROJECTS["P1"].task("P1.7").points
    assert f"Not asked on this machine, and counted neither for nor against: P1.7, {points:g} points: {NO_BROWSER}" in (
        words(part)
    )
    assert f"Not asked on this machine: {NO_BROWSER}" in words(part)
    assert "P1.7 Find where a graph forks: not asked" in words(part)
    assert f"; {points:g} more could not be asked on this machine" in words(soup.header)
    assert "0 of 0" not in soup.text


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_and_a_wide_screen(course_page, scheme):
    from mlhood.notebook_view.browser_view import open_browser

    with open_browser() as browser:
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.set_default_timeout(1000 * PATIENCE)
            requests: list[str] = []
            complaints: list[str] = []
            page.on("request", lambda request, seen=requests: seen.append(request.url))
            page.on("console", lambda message, seen=complaints: seen.append(message.text))
            page.goto(course_page.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
            assert [url for url in requests if not url.startswith("data:")] == [course_page.as_uri()]
            assert not complaints  # of the content security policy
            page.close()


def test_a_notebook_that_was_not_executed_shows_nothing(tmp_path):
    notebook = read(ROOT / "P3.ipynb")
    clear_outputs(notebook)
    assert "has measured" not in words(page_of([run_of(PROJECTS["P3"], notebook, tmp_path)], tmp_path))


def test_a_run_without_a_notebook_and_one_that_was_interrupted(course, tmp_path):
    bad = NotebookRun(Path("bad.ipynb"), "bad", error=NotebookError("the file is not JSON"))
    stopped = run_of(course.SYNTHETIC, course.notebook(), tmp_path)
    stopped.interrupted = True
    page = page_of([bad, stopped], tmp_path)
    assert "bad not run" in words(page.header)
    assert "the file is not JSON" in words(page)
    assert "Interrupted" in words(page)


def executed(course, *outputs):
    notebook = course.notebook()
    notebook.cells.append(new_code_cell("show()", outputs=list(outputs)))
    return notebook


def test_a_project_without_an_excerpt_shows_what_it_has(course):
    table, picture = shown(executed(course, tabled(counted(a=3, b=2)), drawn(png())), course.SYNTHETIC)
    text = words(BeautifulSoup(table.html, "html.parser"))
    assert text.startswith("Bytes a b one 3\xa0bytes 2\xa0bytes two – –".replace("\xa0", " "))
    assert "fails: a needs less than b" in text
    assert picture.title == course.SYNTHETIC.title
    assert BeautifulSoup(picture.html, "html.parser").img["alt"] == "a red square"


def test_hostile_outputs_do_no_harm(course, tmp_path):
    evil = new_output("display_data", {MIME: {"format": 1, "id": EVIL}, "text/html": f"{EVIL}<b onclick=x>seen</b>"})
    broken = drawn('"><script>', f'"{EVIL}')
    strange = new_output("display_data", {"image/png": "x"}, metadata={"image/png": ["no", "mapping"]})
    notebook = executed(course, tabled(counted(title=EVIL, a=1)), evil, drawn(png(), f'"{EVIL}'), broken, strange)
    page = page_of([run_of(course.SYNTHETIC, notebook, tmp_path)], tmp_path)
    assert not page.find_all("script")
    assert not any(name.startswith("on") for tag in page.find_all() for name in tag.attrs)
    assert EVIL in words(page.figure)
    assert len(page.find_all("img")) == 3


def test_many_and_large_outputs_are_bounded(course):
    large = new_output("display_data", {"text/html": "x" * (module.MAX_BYTES + 1)})
    assert not shown(executed(course, large), course.SYNTHETIC)
    assert len(shown(executed(course, *[drawn(png())] * 99), course.SYNTHETIC)) == module.MAX_SHOWN


def test_the_excerpts_are_those_of_the_course():
    assert set(EXCERPTS) == set(PROJECTS)


@pytest.mark.parametrize(
    ("spread", "time", "named"),
    [(0.1, 1.0, []), (0.6, 1.0, ["T9.times: row: b / a is "]), (0.6, 20.0, []), (0.6, 0.05, [])],
)
def test_a_ratio_of_a_wide_interval_is_too_uncertain_to_be_committed(spread, time, named):
    table = Table("T9.times", ("row",), ("a", "b"), baseline="b")
    draws = tuple(np.resize([time * (1 - spread), time * (1 + spread)], 21).tolist())
    table["row", "a"], table["row", "b"] = Measurement((1.0,) * 21, run="x"), Measurement(draws, run="x")
    notebook = new_notebook(cells=[new_code_cell(outputs=[tabled(table)])])
    found = list(module.uncertain(notebook))
    assert [text.partition("is ")[0] + "is " for text in found] == named
