"""Ten students of a project: what each hands in, as the download of GitHub Classroom or of Canvas.

Some have solved all of it, in three editors; the others have done what people do: half of the tasks, a copy, an attack,
the wrong file, or nothing.
"""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from mlhood.grading.notebooks.notebook import cell_name, label
from mlhood.grading.notebooks.source_notebook import solution_source
from tests.tools.grading.styles import styles

ANSWER = (
    "The graph has what a program needs to run it and nothing of how it was written: no classes, no Python, no layer "
    "names but those of the values."
)
HOSTILE = """
import os
import pathlib

for path in [*pathlib.Path("/").glob("*"), pathlib.Path.home(), pathlib.Path("../../gradebook.sqlite")]:
    try:
        (path / "points.txt").write_text("100") if path.is_dir() else path.unlink()
    except OSError:
        pass
os.system("kill -9 -1")
"""
PRINTED = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\n"
TORN = "def half_a_line(:\n    return"


@dataclass(frozen=True)
class Handed:
    """What a student hands in.

    Args:
        student: The id, as on GitHub.
        name: First and last name.
        number: The id in Canvas.
        did: In a few words.
        content: Of the file.
        right: Whether everything in it is right.
    """

    student: str
    name: str
    number: int
    did: str
    content: bytes
    right: bool

    @property
    def late(self) -> bool:
        """Whether Canvas marks it as late."""
        return "late" in self.did


class TenStudents:
    """Makes their notebooks.

    Args:
        version: The notebook that they were given.
        source notebook: The solved source notebook of the same variant.
        public: The public source notebook, whose solutions anyone can read.
    """

    def __init__(self, version: NotebookNode, source_notebook: NotebookNode, public: NotebookNode) -> None:
        self.version = version
        self.right, self.public = _solutions(source_notebook), _solutions(public)

    def all(self) -> list[Handed]:
        """Return what each of the ten hands in."""
        half = dict(list(self.right.items())[: len(self.right) // 2])
        torn = half | {next(iter(half)): TORN}
        own = {style.name: style.sources for style in styles(self.right)}
        people = [
            ("Ada Ahrens", "solved all of it", self._filled(self.right)),
            ("Bob Brandt", "solved it in VS Code", in_vs_code(self._filled(own["helper functions"]))),
            ("Cyd Castro", "solved it in Colab, a day late", in_colab(self._filled(own["inverted conditions"]))),
            ("Dan Duarte", "handed in the printed page", PRINTED),
            ("Eve Eklund", "did the first half", self._filled(half)),
            ("Fay Fuchs", "solved it by Ada's, with other names", self._filled(own["other names"])),
            ("Gus Garcia", "copied the public solutions", self._filled(self.public)),
            ("Hal Haines", "attacks the grader", self._attacking()),
            ("Ivy Iversen", "handed in the empty notebook", self._filled({})),
            ("Joe Jansen", "did the first half, a line half written", self._filled(torn)),
        ]
        return [
            Handed(name.split()[0].lower(), name, 9001 + i, did, _content(file), did.startswith("solved"))
            for i, (name, did, file) in enumerate(people)
        ]

    def _filled(self, sources: dict[str, str]) -> NotebookNode:
        book = copy.deepcopy(self.version)
        for cell in book.cells:
            if cell_name(cell) in sources:
                cell.source = sources[cell_name(cell)]
            elif sources and (cell_label := label(cell)) and cell_label.role == "question":
                cell.source = ANSWER
        return book

    def _attacking(self) -> NotebookNode:
        book = self._filled(self.right)
        book.cells.insert(1, nbformat.v4.new_code_cell(HOSTILE.strip()))
        return book


def _solutions(source_notebook: NotebookNode) -> dict[str, str]:
    """Return the solutions of a source notebook, by cell."""
    return {
        cell_name(cell): solution_source(cell)
        for cell in source_notebook.cells
        if cell.cell_type == "code" and (cell_label := label(cell)) and cell_label.role == "solution"
    }


def in_vs_code(book: NotebookNode) -> NotebookNode:
    """Return a notebook as VS Code saves it: with its own metadata, the kernel's name changed, the outputs left."""
    book.metadata["kernelspec"] = {"display_name": ".venv", "language": "python", "name": "python3"}
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.metadata["vscode"] = {"languageId": "python"}
    return book


def in_colab(book: NotebookNode) -> NotebookNode:
    """Return a notebook as Colab saves it: format 4.0 without ids of cells, with its own metadata."""
    book.metadata["colab"] = {"provenance": [], "toc_visible": True}
    book.nbformat_minor = 0
    for number, cell in enumerate(book.cells):
        del cell["id"]
        cell.metadata["id"] = f"c{number:011}"
    return book


def _content(file: NotebookNode | bytes) -> bytes:
    return file if isinstance(file, bytes) else nbformat.writes(file, version=nbformat.NO_CONVERT).encode() + b"\n"


def as_classroom(handed: Iterable[Handed], folder: Path, project: str) -> Path:
    """Write submissions as `gh classroom clone` does, and return the folder."""
    clones = folder / f"{project.lower()}-submissions"
    for one in handed:
        path = clones / f"{project.lower()}-{one.student}" / f"{project}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(one.content)
    return clones


def as_canvas(handed: Iterable[Handed], folder: Path, project: str) -> Path:
    """Write submissions as Canvas's download, and return the zip archive."""
    archive = folder / "submissions.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for place, one in enumerate(handed, start=1):
            first, last = one.name.lower().split()
            late = "_LATE" if one.late else ""
            file.writestr(f"{last}{first}{late}_{one.number}_{5000 + place}_{project}.ipynb", one.content)
    return archive


def roster_csv(handed: Iterable[Handed], key: Callable[[Handed], Any]) -> str:
    """Return the class as a roster; `key` gives a student's id."""
    return "student,name\n" + "".join(f"{key(one)},{one.name}\n" for one in handed)
