"""The written questions of a project, with their rubrics, for the person who marks the answers, and the answers.

In the source notebook the question stands in the text above the cell of the answer, and its rubric at the end of that
cell, below the course's own answer: it would list the answers, so it is cleared with them, by nbgrader as well.

**P1.11 · Why an exchange format?** A colleague says ...

| rubric | points |
|---|---|
| a case in which ONNX is not needed, with its reason | 1 |

The package contains them, as `questions.json` beside a project's checks; `mlhood sync` writes it from the notebook.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import NamedTuple

from nbformat import NotebookNode

from mlhood.grading.notebooks.notebook import label
from mlhood.grading.notebooks.restore import fingerprint, own_cells
from mlhood.grading.notebooks.source_notebook import ANSWER_STUB, PROJECTS_FOLDER, project_cells
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import variant

QUESTION = "question"
QUESTIONS_FILE = "questions.json"
RUBRIC_ROW = re.compile(r"^\| *(?P<text>.*?) *\| *(?P<points>[\d.]+) *\|$", re.MULTILINE)
RUBRIC_HEADER = re.compile(r"^\| *rubric *\|", re.MULTILINE)


class RubricRow(NamedTuple):
    """What an answer gets points for. Stored as a list."""

    text: str
    points: float


@dataclass(frozen=True)
class QuestionText:
    """The text of a written question, without its title, and the rows of its rubric."""

    text: str
    rubric: tuple[RubricRow, ...] = ()


def source_questions(notebook: NotebookNode) -> dict[str, QuestionText]:
    """Return the written questions of a source notebook, by id; one without a text above its answer is left out."""
    return dict(_questions(notebook))


def _questions(notebook: NotebookNode) -> Iterator[tuple[str, QuestionText]]:
    above = ""
    for cell in notebook.cells:
        cell_label = label(cell)
        if cell_label and cell_label.role == QUESTION:
            begin = re.search(rf"^\*\*{re.escape(cell_label.task)} · .*?\*\*", above, re.MULTILINE)
            if begin:
                yield cell_label.task, QuestionText(" ".join(above[begin.end() :].split()), _rubric(cell.source))
        above = cell.source if cell.cell_type == "markdown" else ""


def _rubric(answer: str) -> tuple[RubricRow, ...]:
    header = RUBRIC_HEADER.search(answer)
    table = answer[header.start() :] if header else ""
    return tuple(RubricRow(match["text"], float(match["points"])) for match in RUBRIC_ROW.finditer(table))


def dump_questions(questions: dict[str, QuestionText]) -> str:
    """Return questions as JSON."""
    return json.dumps({name: asdict(text) for name, text in questions.items()}, indent=1, ensure_ascii=False) + "\n"


def synced_questions(project_id: str) -> dict[str, QuestionText]:
    """Return the questions of a project that `mlhood sync` has written, by id; none if it has written none."""
    path = PROJECTS_FOLDER / project_id.lower() / QUESTIONS_FILE
    rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {
        name: QuestionText(row["text"], tuple(RubricRow(*rubric) for rubric in row["rubric"]))
        for name, row in rows.items()
    }


def written_answers(notebook: NotebookNode | None) -> dict[str, str]:
    """Return what a student has written below each written question, by the id of the question; may be nothing."""
    answers: dict[str, list[str]] = {}
    for cell in notebook.cells if notebook else []:
        if cell.cell_type == "markdown" and (cell_label := label(cell)) and cell_label.role == QUESTION:
            answers.setdefault(cell_label.task, []).append(cell.source)
    texts = {question: "\n\n".join(sources) for question, sources in answers.items()}
    return {question: "" if text.strip() == ANSWER_STUB else text for question, text in texts.items()}


def own_code(notebook: NotebookNode | None, project: str, variant_names: Iterable[str]) -> list[tuple[int, str]]:
    """Return the position, from 1, and the source of each code cell that the course has not written.

    Args:
        notebook: A submission; None if it cannot be read.
        project: The project's id.
        variant_names: Of the variants that the class was given.
    """
    return list(own_cells(notebook, _course_code(project, frozenset(variant_names)))) if notebook else []


@cache
def _course_code(project: str, variant_names: frozenset[str]) -> frozenset[str]:
    projects = [PROJECTS[project], *(variant(PROJECTS[project], variant_name) for variant_name in variant_names)]
    return frozenset(fingerprint(cell.source) for each in projects for cell in project_cells(each))
