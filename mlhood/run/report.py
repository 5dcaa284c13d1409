"""The report of `mlhood run`: marks, measured tables and main pictures, each check with its reason, in one file.

The page can be sent to someone: it needs no other file and no network, and names folders from its own one. Only its
links to the executed notebooks lead elsewhere, to the files beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlhood.grading.notebooks.notebook import write_text
from mlhood.grading.reports.marks_text import format_points
from mlhood.grading.reports.render import render
from mlhood.measure import machine as describe_machine
from mlhood.measure.machine import Machine
from mlhood.run.output_folder import files
from mlhood.run.outputs import shown

if TYPE_CHECKING:
    from mlhood.run.run import NotebookRun

LIBRARIES = ("torch", "onnx", "onnxruntime", "numpy")


def write_report(runs: Sequence[NotebookRun], out: Path) -> Path:
    """Write `report.html` and `marks.json` about these runs into `out`, and return the path of the page.

    Raises:
        OutputError: They cannot be written.
    """
    machine = describe_machine()
    document = {
        "format": "mlhood marks 1",
        "earned": sum(run.marks.earned for run in runs if run.marks),
        "points": sum(run.marks.points for run in runs if run.marks),
        "machine": machine.as_dict(),
        "notebooks": [run.as_dict() for run in runs],
    }
    write_text(out / "marks.json", json.dumps(document, indent=1, default=str) + "\n")
    write_text(out / "report.html", run_report(runs, out, machine))
    return out / "report.html"


def run_report(runs: Sequence[NotebookRun], out: Path, machine: Machine) -> str:
    """Return the page about these runs; links are relative to `out`."""
    marks = [run.marks for run in runs if run.marks]
    earned, points = sum(mark.earned for mark in marks), sum(mark.points for mark in marks)
    libraries = ", ".join(f"{name} {machine.versions[name]}" for name in LIBRARIES if machine.versions.get(name))
    return render(
        "run_report.html.j2",
        summary=f"{format_points(earned)} of {format_points(points)} points",
        unasked=sum(mark.skipped for mark in marks),
        earned=earned,
        points=points,
        machine=f"Made on {machine}; {machine.system}, {machine.python}, {libraries}.",
        runs=runs,
        shown={run.name: shown(run.executed, run.project) for run in runs if run.executed and run.project},
        files={run.name: _files(run) for run in runs},
        folders={run.name: run.folder.relative_to(out).as_posix() for run in runs if run.folder},
    )


def _files(run: NotebookRun) -> list[str]:
    """Return the files that a run has written, the executed notebook first."""
    first = {f"{run.name}.html", f"{run.name}.ipynb"}
    names = [path.as_posix() for path in files(run.folder)] if run.folder else []
    return sorted(names, key=lambda name: (name not in first, name))
