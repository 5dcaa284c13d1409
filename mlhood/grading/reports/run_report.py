"""The report of `mlhood run`: a page of marks, each check with its reason, and links to the files that were written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mlhood.grading.execution.output_folder import files
from mlhood.grading.reports.marks_text import format_points
from mlhood.grading.reports.render import render
from mlhood.measure.machine import Machine

if TYPE_CHECKING:
    from mlhood.grading.execution.run import Run

LIBRARIES = ("torch", "onnx", "onnxruntime", "numpy")


@dataclass(frozen=True)
class Link:
    """A link to a file: its address relative to the report, its name, and what it is."""

    address: str
    name: str
    about: str = ""


def run_report(runs: Iterable[Run], out: Path, machine: Machine) -> str:
    """Return the page about these runs; links are relative to `out`."""
    runs = list(runs)
    marks = [run.marks for run in runs if run.marks]
    earned, points = sum(mark.earned for mark in marks), sum(mark.points for mark in marks)
    libraries = ", ".join(f"{name} {machine.versions[name]}" for name in LIBRARIES if machine.versions.get(name))
    return render(
        "run_report.html.j2",
        summary=f"{format_points(earned)} of {format_points(points)} points",
        machine=f"Made on {machine}; {machine.system}, {machine.python}, {libraries}.",
        runs=runs,
        links={run.name: _links(run, out) for run in runs},
    )


def _links(run: Run, out: Path) -> list[Link]:
    if run.folder is None:
        return []
    base = run.folder.relative_to(out)
    about = {
        f"{run.name}.html": "the executed notebook as a page",
        f"{run.name}.ipynb": "the executed notebook",
    }
    names = sorted((path.as_posix() for path in files(run.folder)), key=lambda name: (name not in about, name))
    return [Link(quote((base / name).as_posix()), name, about.get(name, "")) for name in names]
