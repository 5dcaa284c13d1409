"""The root notebooks as readers and graders need them: they render, their markers balance, their tasks are whole."""

from __future__ import annotations

import builtins
import re
import symtable
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from mlhood.grading.notebooks.notebook import check_source, label, project_of, read
from mlhood.grading.notebooks.restore import FEEDBACK_ROLES
from mlhood.grading.notebooks.source_notebook import student_version
from mlhood.grading.student.validate import changes, empty_tasks, missing_cells

ROOT = Path(__file__).parents[2]
COMPARED = 0.55  # P4 measures most; a check of measured times is no assertion of a test either
SHORTEST_ALT = 20  # characters
QUESTION = 120  # words until the first cell has asked what the notebook is about
WIDEST_LINE = 100  # characters of text that a page on GitHub shows beside each other
FILE_NAME = re.compile(r"[^\s:]+|.*\.(png|svg|jpe?g|gif|webp)", re.IGNORECASE)
CODE_IN_MARKDOWN = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
MARKDOWN_PICTURE = re.compile(r"!\[([^]]*)\](?:\([^)]*\)|\[[^]]*\])")
every_notebook = pytest.mark.parametrize("path", sorted(ROOT.glob("P[1-9].ipynb")), ids=lambda path: path.name)


def own_cells(notebook, role):
    return [(cell, known.task) for cell in notebook.cells if (known := label(cell)) and known.role == role]


@every_notebook
def test_every_task_is_whole(path):
    notebook = read(path)
    project = project_of(notebook, path)
    assert [finding.what for finding in [*missing_cells(notebook, project), *changes(notebook, project)]] == []
    assert empty_tasks(notebook, project) == {}
    assert project.points == 100


@every_notebook
def test_check_cells_carry_the_points_of_their_task(path):
    notebook = read(path)
    project = project_of(notebook, path)
    checks = own_cells(notebook, "check")
    assert [task for _, task in checks] == [task.id for task in project.tasks]
    for cell, task in checks:
        assert cell.source == check_source(task)
        assert cell.metadata.nbgrader.points == project.task(task).points


@every_notebook
def test_the_cells_of_a_task_stand_together(path):
    """A task is graded after its last cell: one that stood behind a later task would delay it, and its fallback."""
    cells = [cell for cell in read(path).cells if cell.cell_type == "code" and cell.source != "mlhood.progress()"]
    tasks = [cell_label.task for cell in cells if (cell_label := label(cell)) and cell_label.task]
    assert [task for task, _ in groupby(tasks)] == list(dict.fromkeys(tasks))


@every_notebook
def test_every_solution_has_markers_that_balance(path):
    notebook = read(path)
    for cell, task in own_cells(notebook, "solution"):
        assert "### BEGIN SOLUTION" in cell.source, task
    student_version(notebook, path)
    for cell, task in own_cells(notebook, "solution"):
        assert "raise NotImplementedError()" in cell.source, task
        assert "SOLUTION" not in cell.source


@every_notebook
def test_grade_ids_are_cell_ids(path):
    graded = [cell for cell in read(path).cells if "nbgrader" in cell.metadata]
    ids = [cell.metadata.nbgrader.grade_id for cell in graded]
    assert ids == [cell.id for cell in graded]
    assert len(set(ids)) == len(ids)


@every_notebook
def test_labels_and_grade_ids_agree(path):
    for cell in read(path).cells:
        known = label(cell)
        if known:
            assert cell.id.startswith(f"{known.task.replace('.', '-')}-{known.role}")


@every_notebook
def test_nbval_compares_most_outputs(path):
    cells = [cell for cell in read(path).cells if cell.cell_type == "code" and cell.outputs]
    ignored = [cell for cell in cells if "nbval-ignore-output" in cell.metadata.get("tags", [])]
    assert 1 - len(ignored) / len(cells) >= COMPARED


@every_notebook
def test_sections_are_numbered_and_every_task_says_why(path):
    notebook = read(path)
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^## (.*)", prose, re.MULTILINE)
    assert [heading.partition(" · ")[0] for heading in headings[:-1]] == [str(n + 1) for n in range(len(headings) - 1)]
    assert headings[-1] == "References"
    assert len(notebook.cells[0].source.partition("?")[0].split()) <= QUESTION
    tasks = re.split(r"^### (?=P\d)", prose, flags=re.MULTILINE)[1:]
    assert len(tasks) == len(project_of(notebook, path).tasks)
    assert [task.splitlines()[0] for task in tasks if not ("**Why.**" in task and "**Your task" in task)] == []


def printed_lines(notebook) -> Iterator[tuple[str, str]]:
    """Yield the cell's id and each line of text of its outputs, but for those that are shown as HTML or pictures."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = output.get("text") or ("" if len(data) > 1 else data.get("text/plain", ""))
            yield from ((cell.id, line) for line in text.splitlines())


@every_notebook
def test_no_line_of_an_output_is_wider_than_a_page(path):
    assert [(cell, line) for cell, line in printed_lines(read(path)) if len(line) > WIDEST_LINE] == []


class PictureParser(HTMLParser):
    """Collects the alternative texts of pictures in HTML: the `alt` of <img>, the label or the title of <svg>."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tag = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("img", "svg"):
            self.texts.append(dict(attrs).get("alt" if tag == "img" else "aria-label") or "")
        self.tag = tag

    def handle_data(self, data: str) -> None:
        if self.tag == "title" and self.texts and not self.texts[-1]:
            self.texts[-1] = data
        self.tag = ""


def pictures(notebook) -> Iterator[tuple[str, str]]:
    """Yield the cell's id and the alternative text, empty if it has none, of every picture in a notebook."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = CODE_IN_MARKDOWN.sub("", cell.source)
            texts = MARKDOWN_PICTURE.findall(prose) + PictureParser(prose).texts
            yield from ((cell.id, text) for text in texts)
        for output in cell.get("outputs", []):
            for kind, data in output.get("data", {}).items():
                if kind.startswith("image/"):
                    yield cell.id, output.metadata.get(kind, {}).get("alt", "")
                elif kind in ("text/html", "text/markdown"):
                    yield from ((cell.id, text) for text in PictureParser("".join(data)).texts)


def undescribed_pictures(notebook) -> list[tuple[str, str]]:
    """Return those pictures whose alternative text is missing, short, or the name of a file."""
    return [
        (cell, text)
        for cell, text in pictures(notebook)
        if len(text.strip()) < SHORTEST_ALT or FILE_NAME.fullmatch(text.strip())
    ]


@every_notebook
def test_every_picture_has_an_alternative_text(path):
    notebook = read(path)
    assert [*pictures(notebook)] != []
    assert undescribed_pictures(notebook) == []


DESCRIPTION = "Bar chart of two rates: naive 0.9, blocked 12."


def displayed(kind: str, data: str, **metadata: object):
    return new_code_cell("1", outputs=[new_output("display_data", {kind: data}, metadata=metadata)])


@pytest.mark.parametrize(
    "cell",
    [
        displayed("image/png", ""),
        displayed("image/png", "", **{"image/png": {"width": 3}}),
        displayed("image/png", "", **{"image/png": {"alt": "a bar chart"}}),
        displayed("image/svg+xml", "<svg/>", **{"image/png": {"alt": DESCRIPTION}}),
        displayed("text/html", "<p><img src='a.png'></p>"),
        displayed("text/html", "<svg><path d='M 0 0'/></svg>"),
        new_markdown_cell("![](attachment:a.png)"),
        new_markdown_cell("![the network in Netron.png](a.png)"),
        new_markdown_cell("![a_rather_long_file_name_of_a_picture](a.png)"),
        new_markdown_cell("text <img src='a.png' alt=''> text"),
    ],
    ids=lambda cell: cell.source,
)
def test_a_picture_without_a_description_is_found(cell):
    assert len(undescribed_pictures(new_notebook(cells=[cell]))) == 1


@pytest.mark.parametrize(
    ("cell", "count"),
    [
        (displayed("image/png", "", **{"image/png": {"alt": DESCRIPTION}}), 1),
        (displayed("text/html", f"<img alt='{DESCRIPTION}'><svg><title>{DESCRIPTION}</title></svg>"), 2),
        (displayed("text/html", f"<svg aria-label='{DESCRIPTION}'><text>3</text></svg>"), 1),
        (new_markdown_cell(f"![{DESCRIPTION}](a.png) and <img src='a.png' alt='{DESCRIPTION}'>"), 2),
        (new_markdown_cell("`<img>` and ![an unfinished one] are text\n```html\n<img src='a.png'>\n```"), 0),
    ],
)
def test_a_picture_with_a_description_is_not_found(cell, count):
    notebook = new_notebook(cells=[cell])
    assert len([*pictures(notebook)]) == count
    assert undescribed_pictures(notebook) == []


def names(source: str) -> tuple[set[str], set[str]]:
    """Names that a cell binds at its top level, and those that it reads from other cells."""
    tables = [symtable.symtable(source, "cell", "exec")]
    bound = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    bound |= {child.get_name() for child in tables[0].get_children()}
    read: set[str] = set()
    for table in tables:
        tables.extend(table.get_children())
        inner = table is not tables[0]
        read |= {s.get_name() for s in table.get_symbols() if (s.is_global() if inner else s.is_referenced())}
    return bound, read - bound - set(dir(builtins))


def code_cells(notebook) -> Iterator[tuple[str, str, set[str], set[str]]]:
    """Id, role (empty for none), bound names and read names of each cell of Python; a cell magic is none."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and not cell.source.startswith("%%"):
            known = label(cell)
            yield cell.id, known.role if known else "", *names(cell.source)


@every_notebook
def test_cells_that_are_graded_use_no_name_of_a_cell_that_is_not(path):
    bound_by: dict[str, str] = {}  # name -> the last cell that bound it, empty if grading runs that cell
    for cell, role, bound, used in code_cells(read(path)):
        graded = role not in FEEDBACK_ROLES
        if graded:
            assert {name: bound_by[name] for name in used if bound_by.get(name)} == {}, cell
            assert used <= set(bound_by), cell
        bound_by.update(dict.fromkeys(bound, "" if graded else cell))
