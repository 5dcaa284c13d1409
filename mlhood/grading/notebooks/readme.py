"""What the README shows of the executed notebooks: a picture of each, the table of P4, and the syllabus.

In: the README with a pair of comments `<!-- P4 -->` and `<!-- /P4 -->` for each table, and the executed notebooks.
Out: the README with the tables between the comments, and the pictures in `.github/images`. Nobody copies a number.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bs4 import BeautifulSoup

from mlhood.errors import GradingError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.excerpts import EXCERPTS, output
from mlhood.grading.notebooks.notebook import read

IMAGES = ".github/images"


@dataclass(frozen=True)
class Unit:
    """What the syllabus says of a project.

    Args:
        weeks: Of the term.
        lectures: Their topics.
        papers: To read, as links in Markdown.
    """

    weeks: str
    lectures: str
    papers: str


SYLLABUS = {
    "P1": Unit(
        "1–2",
        "networks as graphs of operators; exchange formats; parameters, shapes and operations of a layer",
        "[ONNX's concepts](https://onnx.ai/onnx/intro/concepts.html)",
    ),
    "P2": Unit(
        "3–5",
        "compilers for networks: rewriting, fusion, quantisation; lowering, memory planning, code for CPU and NPU",
        "[Glow](https://arxiv.org/abs/1805.00907), [integer inference](https://arxiv.org/abs/1712.05877), "
        "[slicing for NPUs](https://arxiv.org/abs/2304.03013)",
    ),
    "P3": Unit(
        "6–7",
        "convolution as a matrix product; caches, vectors and registers; the roofline; how to measure",
        "[GotoBLAS](https://doi.org/10.1145/1356052.1356053), [roofline](https://doi.org/10.1145/1498765.1498785), "
        "[direct convolution](https://arxiv.org/abs/1808.05567)",
    ),
    "P4": Unit(
        "8–9",
        "loop nests and tiling; what stays and what is streamed; systolic arrays; what XLA makes of a layer",
        "[convolution slicing](https://arxiv.org/abs/2303.04739), [SCALE-Sim](https://arxiv.org/abs/1811.02883), "
        "[Halide](https://doi.org/10.1145/2491956.2462176)",
    ),
    "P5": Unit(
        "10–12",
        "tracing and compiling array programs; automatic differentiation; training on a cluster",
        "[StableHLO](https://openxla.org/stablehlo), [straight-through gradients](https://arxiv.org/abs/1308.3432), "
        "[Megatron-LM](https://arxiv.org/abs/1909.08053)",
    ),
}


def readme_files(root: Path, projects: Iterable[Project]) -> dict[str, bytes]:
    """Return the README and its images as they have to be, by their paths from the root of the repository.

    What a notebook does not show yet, because it was edited and not executed, stays as it is in the README.

    Raises:
        NotebookError: A notebook cannot be read.
        GradingError: The README lacks a pair of comments.
    """
    text = (root / "README.md").read_text(encoding="utf-8")
    files = {}
    for name, excerpt in EXCERPTS.items():
        notebook = read(root / f"{name}.ipynb")
        if picture := output(notebook, excerpt.picture, "image/png"):
            files[f"{IMAGES}/{name}.png"] = base64.b64decode(picture)
        if name == "P4" and (table := output(notebook, excerpt.table, "text/html")):
            text = _insert(text, name, markdown_table(table), root / "README.md")
    text = _insert(text, "syllabus", syllabus_table(projects), root / "README.md")
    return {"README.md": text.encode(), **files}


def syllabus_table(projects: Iterable[Project]) -> str:
    """Return the syllabus in Markdown: a row for each project that it knows, hours from the minutes of the tasks."""
    lines = ["| weeks | project | topics | tasks | hours | papers |", "|---|---|---|---|---|---|"]
    for project in projects:
        if unit := SYLLABUS.get(project.id):
            hours = f"{sum(task.minutes for task in project.tasks) / 60:.1f}"
            cells = (unit.weeks, project.id, unit.lectures, str(len(project.tasks)), hours, unit.papers)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _insert(text: str, name: str, table: str, path: Path) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise GradingError(
            "the README does not mark where a table belongs",
            where=path,
            expected=f"one line {begin.strip()} and one line {end}",
            got=f"{text.count(begin)} and {text.count(end)}",
        )
    before, after = text.split(begin)
    return before + begin + table + end + after.split(end)[1]


def markdown_table(html: str) -> str:
    """Return a table that a notebook shows, in Markdown."""
    lines = BeautifulSoup(html, "html.parser").find_all("tr")
    rows = [[" ".join(cell.get_text(" ").split()) for cell in line.find_all(["th", "td"])] for line in lines]
    rows.insert(1, ["---"] * len(rows[0]))
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
