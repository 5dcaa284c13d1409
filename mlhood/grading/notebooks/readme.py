"""What the README shows: the overview, a picture of each executed notebook, the table of P4, badges, and the syllabus.

In: the README with a pair of comments `<!-- P4 -->` and `<!-- /P4 -->` for each table, and the executed notebooks.
Out: the README with the tables between the comments, and the pictures in `.github/images`. Nobody copies a number.
"""

from __future__ import annotations

import base64
import io
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread

from mlhood.errors import GradingError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.excerpts import EXCERPTS, output, text_table
from mlhood.grading.notebooks.notebook import read
from mlhood.plotting.diagram import LIGHT_BLUE, LIGHT_GREEN, LIGHT_GREY, LIGHT_YELLOW, arrow, box, canvas

IMAGES = ".github/images"
BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {value}">
<title>{label}: {value}</title>
<rect width="{width}" height="20" rx="3" fill="#404040"/>
<rect x="{left}" width="{right}" height="20" rx="3" fill="#0072b2"/>
<g fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{left_centre}" y="14">{label}</text><text x="{right_centre}" y="14">{value}</text></g></svg>
"""
MAX_DIFFERENCE = 0.01  # of the overview's pixels between 0 and 1, on average
CHARACTER = 7.1  # pixels of an average character of the badge's font
BOX_WIDTH, BOX_HEIGHT, PITCH = 1.4, 0.9, 2.04
TORCH, JAX = 2.62, 0.52  # baseline of each lane, in inches
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}

# title, what happens there
TORCH_LANE = (
    ("model(x)", "PyTorch"),
    ("ONNX graph", "operators,\nweights, shapes"),
    ("typed graph", "fused, in float32\nor in 8 bits"),
    ("vector code", "a ladder\nof kernels"),
    ("tiles in caches", "sliced,\nreordered"),
)
TORCH_STEPS = ("export", "compile", "generate", "tile")
JAX_LANE = (
    ("f(x)", "JAX"),
    ("jaxpr", "traced once,\ndifferentiated"),
    ("HLO", "what XLA fuses\nand lays out"),
    ("sharded code", "collectives,\nmany devices"),
)
JAX_STEPS = ("trace", "lower", "partition")
# label, left and right end in boxes, lane, height of the label's line
PROJECTS = (
    ("P1  export and inspect", 0, 1, TORCH + 1.22),
    ("P2  a compiler", 1, 2, TORCH + 1.62),
    ("P3  kernels", 3, 3, TORCH + 1.22),
    ("P4  dataflow", 4, 4, TORCH + 1.22),
    ("P5  JAX under the hood: operators, tracing, gradients, XLA, a cluster", 0, 3, JAX - 0.24),
)


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
    projects = tuple(projects)
    text = (root / "README.md").read_text(encoding="utf-8")
    files = {f"{IMAGES}/{name}.svg": badge(*pair).encode() for name, pair in badges(root, projects).items()}
    files[f"{IMAGES}/overview.png"] = _overview_png(root / IMAGES / "overview.png")
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


def _overview_png(path: Path) -> bytes:
    """Return the overview, or the present file if it looks the same: releases of Matplotlib write different bytes."""
    buffer = io.BytesIO()
    overview().savefig(buffer, dpi=130, metadata={"Software": None})
    if path.is_file():
        old, new = imread(path), imread(io.BytesIO(buffer.getvalue()))
        if old.shape == new.shape and np.abs(old - new).mean() < MAX_DIFFERENCE:
            return path.read_bytes()
    return buffer.getvalue()


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
    table = text_table(html)
    rows = [table.heading, ["---"] * len(table.heading), *table.rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def badges(root: Path, projects: tuple[Project, ...]) -> dict[str, tuple[str, str]]:
    """Return label and value of each badge, from what the repository declares."""
    declared = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tasks, points = sum(len(project.tasks) for project in projects), sum(project.points for project in projects)
    return {
        "python": ("Python", declared["requires-python"].removeprefix(">=") + " or newer"),
        "license": ("license", declared["license"]),
        "course": ("course", f"{len(projects)} projects, {tasks} tasks, {points:g} points"),
        "gpu": ("GPU", "not needed"),
    }


def badge(label: str, value: str) -> str:
    """Return a badge as SVG: a label on dark grey, a value on blue."""
    left, right = (round(CHARACTER * len(text)) + 12 for text in (label, value))
    centres = {"left_centre": left / 2, "right_centre": left + right / 2}
    return BADGE.format(label=escape(label), value=escape(value), width=left + right, left=left, right=right, **centres)


def overview() -> Figure:
    """Draw the two lanes, PyTorch's and JAX's, that meet in the processor; brackets name the projects.

    Returns:
        A figure 11.6 inches wide: black text on light fills, no meaning by colour alone.
    """
    figure, axes = canvas(11.6, 4.76)
    _lane(axes, TORCH_LANE, TORCH_STEPS, TORCH, LIGHT_BLUE)
    _lane(axes, JAX_LANE, JAX_STEPS, JAX, LIGHT_GREEN)
    _processor(axes)
    note = "networks, kernels and gradients are checked against ONNX Runtime, torch and NumPy"
    x, y = PITCH * 2.5 + BOX_WIDTH / 2 - 0.2, (JAX + BOX_HEIGHT + TORCH) / 2
    axes.text(x, y, note, **CENTRED, fontsize=10.2, style="italic", color="#333333")
    for label, first, last, y in PROJECTS:
        _bracket(axes, label, PITCH * first, PITCH * last + BOX_WIDTH, y)
    return figure


def _lane(axes: Axes, boxes: Sequence[tuple[str, str]], steps: Sequence[str], y: float, colour: str) -> None:
    """Draw boxes from left to right, with an arrow for each step from one to the next."""
    for i, (title, text) in enumerate(boxes):
        box(axes, PITCH * i, y, BOX_WIDTH, BOX_HEIGHT, "", LIGHT_YELLOW if i == 0 else colour)
        centre = PITCH * i + BOX_WIDTH / 2
        axes.text(centre, y + 0.68, title, **CENTRED, fontsize=11, weight="bold")
        axes.text(centre, y + 0.3, text, **CENTRED, fontsize=10.2)
    middle = y + BOX_HEIGHT / 2
    for i, step in enumerate(steps):
        arrow(axes, (PITCH * i + BOX_WIDTH + 0.03, middle), (PITCH * (i + 1) - 0.03, middle))
        centre = PITCH * i + (PITCH + BOX_WIDTH) / 2
        axes.text(centre, middle + 0.13, step, ha="center", fontsize=9, style="italic")


def _processor(axes: Axes) -> None:
    """Draw the processor at the right end of both lanes, with the arrow from each."""
    left, middle = PITCH * len(TORCH_LANE), (JAX + TORCH + BOX_HEIGHT) / 2
    box(axes, left, JAX, BOX_WIDTH, TORCH + BOX_HEIGHT - JAX, "", LIGHT_GREY)
    text = "vector units,\ncaches,\nmemory;\nsimulated: a\nsystolic array"
    axes.text(left + BOX_WIDTH / 2, middle + 0.42, "processor", ha="center", fontsize=11.5, weight="bold")
    axes.text(left + BOX_WIDTH / 2, middle - 0.26, text, **CENTRED, fontsize=10.2)
    for boxes, y in ((TORCH_LANE, TORCH), (JAX_LANE, JAX)):
        last = PITCH * (len(boxes) - 1) + BOX_WIDTH
        arrow(axes, (last + 0.03, y + BOX_HEIGHT / 2), (left - 0.03, y + BOX_HEIGHT / 2))


def _bracket(axes: Axes, label: str, left: float, right: float, y: float) -> None:
    """Draw a project's bracket, open towards its lane: above a lane, or below JAX's."""
    below = y < JAX
    tick = 0.08 if below else -0.08
    axes.plot([left, left, right, right], [y + tick, y, y, y + tick], color="#222222", lw=1.2)
    axes.text((left + right) / 2, y + (-0.2 if below else 0.08), label, ha="center", fontsize=11, weight="bold")
