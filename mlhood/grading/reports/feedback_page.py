"""The page that a student gets back: points, every check with its hint, and the student's own cells beside them.

What was drawn for the marking stays in the instructor's hands. So the page tells of the inputs only what a check's
message says; it does not name the seed; and code and outputs are those of the notebook as it was handed in, not as the
marking ran it, for in that run a cell can print what a function before it was called with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.reports.code import code_html
from mlhood.grading.reports.marks_text import marked_up, number
from mlhood.grading.reports.outputs import NOT_SHOWN, Room, outputs_html
from mlhood.grading.reports.page import bar_cell, head, of, page, state
from mlhood.grading.reports.sanitize import escaped, plain

MAX_REASON = 2_000
MAX_TASK_CELLS = 24
MAX_NOTES = 12
OWN = "solution"
ANSWER = "question"
LOOKED_AT = ("given", "result")


@dataclass(frozen=True)
class Answer:
    """A written question and the points that a person gave for it; None as long as nobody has."""

    id: str
    title: str
    bonus: float
    points: float | None = None
    comment: str = ""


@dataclass(frozen=True)
class Feedback:
    """What a page is made of.

    Args:
        marks: The submission's.
        student: Who gets it.
        notebook: As it was handed in; None if it could not be read.
        answers: Written questions.
        penalty: Points lost for being late.
        remarks: Sentences at the top, such as how late it came, or why it could not be marked.
    """

    marks: Marks
    student: str = ""
    notebook: NotebookNode | None = None
    answers: tuple[Answer, ...] = ()
    penalty: float = 0.0
    remarks: tuple[str, ...] = ()

    @property
    def bonus(self) -> float:
        """Points given by hand."""
        return sum(answer.points or 0.0 for answer in self.answers)

    @property
    def score(self) -> float:
        """Points that count."""
        return self.marks.earned + self.bonus - self.penalty


def feedback_page(feedback: Feedback) -> str:
    """The page, whole: one file that asks for nothing and runs nothing."""
    marks, room = feedback.marks, Room()
    cells = _cells(feedback.notebook)
    title = f"{marks.project} {marks.title}: {number(round(feedback.score, 2))} of {number(marks.points)} points"
    header = f'<p class="sum">{escaped(feedback.student, 200)}</p>' if feedback.student else ""
    header += "".join(f'<p class="alert">{escaped(remark, MAX_REASON)}</p>' for remark in feedback.remarks)
    body = [_overview(feedback)]
    body += [_task(task, cells.get(task.id, []), room) for task in marks.tasks]
    body += [_answer(answer, cells.get(answer.id, []), room) for answer in feedback.answers]
    return page(plain(title, 300), header, "\n".join(body))


def _cells(notebook: NotebookNode | None) -> dict[str, list[tuple[str, Any]]]:
    """Role and cell of the notebook's cells, by task."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for cell in notebook.cells if notebook else []:
        if known := label(cell):
            found.setdefault(known.task, []).append((known.role, cell))
    return found


def _overview(feedback: Feedback) -> str:
    marks = feedback.marks
    rows = [_row(task.id, task.title, task.earned, task.points) for task in marks.tasks]
    extra = [_extra("Written questions, by hand", feedback.bonus)] if feedback.bonus else []
    extra += [_extra("Late", -feedback.penalty)] if feedback.penalty else []
    total = (
        f'<tr><th scope="row">All</th><td></td>{bar_cell(feedback.score, marks.points)}'
        f'<td class="points">{of(feedback.score, marks.points)}</td></tr>'
    )
    skipped = ""
    if marks.skipped:
        points = f"{number(marks.skipped)} points could not be asked for"
        skipped = f"<p>{points} on the machine that marked this: they count neither for nor against you.</p>"
    titles = head("Task", "What", "Share", "Points", bars="Share")
    return (
        f"<table><caption>Points by task</caption>{titles}"
        f"<tbody>{''.join(rows)}</tbody><tfoot>{''.join(extra)}{total}</tfoot></table>{skipped}"
    )


def _row(name: str, title: str, earned: float, points: float) -> str:
    return (
        f'<tr><th scope="row"><a href="#{_anchor(name)}">{escaped(name, 40)}</a></th><td>{escaped(title, 200)}</td>'
        f'{bar_cell(earned, points)}<td class="points">{of(earned, points)}</td></tr>'
    )


def _extra(title: str, points: float) -> str:
    sign = "−" if points < 0 else "+"
    return (
        f'<tr><th scope="row"></th><td>{title}</td><td class="bar"></td>'
        f'<td class="points">{sign}{number(round(abs(points), 2))}</td></tr>'
    )


def _anchor(name: str) -> str:
    return "".join(one if one.isascii() and one.isalnum() else "-" for one in name)


def _task(task: TaskResult, cells: list[tuple[str, Any]], room: Room) -> str:
    heading = f"{task.id} {task.title}: {of(task.earned, task.points)} points"
    notes = [f"<p>Note: {marked_up(plain(note, MAX_REASON))}</p>" for note in task.notes[:MAX_NOTES]]
    checks = "".join(_check(check) for check in task.checks)
    return (
        f'<section aria-labelledby="{_anchor(task.id)}"><h2 id="{_anchor(task.id)}">{escaped(heading, 300)}</h2>'
        f"{''.join(notes)}<table>{head('Result', 'Check', 'Points')}<tbody>{checks}</tbody></table>"
        f"{_work(cells, room)}</section>"
    )


def _check(check: CheckResult) -> str:
    reason = f"<br>{marked_up(plain(check.what, MAX_REASON))}" if check.what else ""
    parts = "".join(
        f"<dt>{escaped(label, 40)}</dt><dd>{marked_up(plain(part, MAX_REASON))}</dd>"
        for label, part in check.parts.items()
    )
    points = "not counted" if check.status == "skipped" else of(check.earned, check.points)
    return (
        f'<tr class="{check.status}">{state(check.status)}<td>{marked_up(plain(check.title, 300))}{reason}'
        f'{f"<dl>{parts}</dl>" if parts else ""}</td><td class="points">{points}</td></tr>'
    )


def _work(cells: list[tuple[str, Any]], room: Room) -> str:
    """The student's own cells with what they show, and what the cells around them show."""
    code = [(role, cell) for role, cell in cells if cell.get("cell_type") == "code"]
    shown = [_cell(role, cell, room) for role, cell in code[:MAX_TASK_CELLS]]
    if len(code) > MAX_TASK_CELLS:
        shown.append(NOT_SHOWN.format(f"{len(code) - MAX_TASK_CELLS:,} more cells are not shown."))
    return "".join(shown)


def _cell(role: str, cell: Any, room: Room) -> str:
    if role != OWN and role not in LOOKED_AT:
        return ""
    outputs = outputs_html(cell, room)
    if role == OWN:
        code = room.take(code_html(cell.get("source", ""))) if room.left else room.full()
        return f'<p class="label">Your cell, as you handed it in</p>{code}{outputs}'
    return f'<p class="label">Shown by a cell of this task when you handed it in</p>{outputs}' if outputs else ""


def _answer(answer: Answer, cells: list[tuple[str, Any]], room: Room) -> str:
    points = "not marked yet" if answer.points is None else f"{of(answer.points, answer.bonus)} points"
    heading = f"{answer.id} {answer.title}: {points}"
    comment = f"<p>{escaped(answer.comment, MAX_REASON)}</p>" if answer.comment else ""
    texts = [cell.get("source", "") for role, cell in cells if role == ANSWER]
    written = "".join(room.take(f'<div class="code"><pre>{escaped(text)}</pre></div>') for text in texts[:4])
    return (
        f'<section><h2 id="{_anchor(answer.id)}">{escaped(heading, 300)}</h2>{comment}'
        f"{f'<p class=label>Your answer</p>{written}' if written else ''}</section>"
    )
