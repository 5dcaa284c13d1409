"""What the README shows: a picture of each executed notebook, badges, and the syllabus.

In: the README with the comments `<!-- syllabus -->` and `<!-- /syllabus -->`, and the executed notebooks.
Out: the README with the syllabus between the comments, and the pictures in `.github/images`. Nobody copies a number.
"""

from __future__ import annotations

import base64
import io
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.image import imread

from mlhood.errors import GradingError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.excerpts import EXCERPTS, output
from mlhood.grading.notebooks.notebook import read
from mlhood.plotting.overview import overview

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
        GradingError: The README lacks the pair of comments.
    """
    projects = tuple(projects)
    text = (root / "README.md").read_text(encoding="utf-8")
    files = {f"{IMAGES}/{name}.svg": badge(*pair).encode() for name, pair in badges(root, projects).items()}
    files[f"{IMAGES}/overview.png"] = _overview_png(root / IMAGES / "overview.png")
    for name, excerpt in EXCERPTS.items():
        if picture := output(read(root / f"{name}.ipynb"), excerpt.picture, "image/png"):
            files[f"{IMAGES}/{name}.png"] = base64.b64decode(picture)
    return {"README.md": _with_syllabus(text, projects, root / "README.md").encode(), **files}


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


def _with_syllabus(text: str, projects: Iterable[Project], path: Path) -> str:
    begin, end = "<!-- syllabus -->\n", "<!-- /syllabus -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise GradingError(
            "the README does not mark where the syllabus belongs",
            where=path,
            expected=f"one line {begin.strip()} and one line {end}",
            got=f"{text.count(begin)} and {text.count(end)}",
        )
    before, after = text.split(begin)
    return before + begin + syllabus_table(projects) + end + after.split(end)[1]


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
