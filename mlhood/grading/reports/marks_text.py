"""Marks as people read them: text for terminals and logs, HTML for notebooks and reports.

What passed is said in words and by a sign, never by colour alone.
"""

from __future__ import annotations

import re
from html import escape

from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult

SIGNS = {"passed": "✓", "failed": "✗", "skipped": "–"}


def number(points: float) -> str:
    """Points without a needless decimal: 4, 2.5."""
    return f"{points:g}"


def bar(earned: float, points: float, width: int = 10) -> str:
    """A bar of text, full where points were earned."""
    filled = round(width * earned / points) if points else 0
    return "█" * filled + "░" * (width - filled)


def score_line(result: TaskResult) -> str:
    """`P1.1 The layers of LeNet: 8 of 10 points`."""
    return f"{result.id} {result.title}: {number(result.earned)} of {number(result.points)} points"


def check_lines(check: CheckResult) -> list[str]:
    """A check's result, and below it the reason where it did not pass."""
    lines = [f"  {SIGNS[check.status]} {check.title} ({check.status}, {number(check.points)})"]
    if check.what:
        lines.append(f"      {check.what}")
    indent = "\n        "  # what a student's code says stays within its own lines
    lines += [f"      {label}: {part.replace(chr(10), indent)}" for label, part in check.parts.items()]
    return lines


def task_text(result: TaskResult) -> str:
    """A task's result as text."""
    lines = [score_line(result), *(f"  note: {note}" for note in result.notes)]
    for check in result.checks:
        lines += check_lines(check)
    return "\n".join(lines)


def task_html(result: TaskResult) -> str:
    """A task's result as HTML that survives a sanitiser: tables and words, no scripts, no needed styles."""
    notes = "".join(f"<p><i>note: {marked_up(note)}</i></p>" for note in result.notes)
    rows = "".join(_check_row(check) for check in result.checks)
    sign = SIGNS["passed" if result.full else "failed"]
    return f"<p><b>{sign} {escape(score_line(result))}</b></p>{notes}<table>{rows}</table>"


def marked_up(text: str) -> str:
    """Text as HTML; what stands between backticks is set as code, and lines stay lines."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)).replace("\n", "<br>")


def _check_row(check: CheckResult) -> str:
    reason = f"<br>{marked_up(check.what)}" if check.what else ""
    reason += "".join(f"<br><b>{escape(label)}:</b> {marked_up(part)}" for label, part in check.parts.items())
    return (
        f'<tr><td style="text-align:left">{SIGNS[check.status]} {check.status}</td>'
        f'<td style="text-align:left">{marked_up(check.title)}{reason}</td>'
        f"<td>{number(check.earned)} / {number(check.points)}</td></tr>"
    )


def summary_text(marks: Marks) -> str:
    """All tasks of a submission, a line each, and the sum."""
    width = max(len(task.title) for task in marks.tasks)
    rows = [(task.id, task.title, task.earned, task.points) for task in marks.tasks]
    lines = [_summary_line(*row, width) for row in [*rows, ("", "all tasks", marks.earned, marks.points)]]
    reasons = dict.fromkeys(check.what for task in marks.tasks for check in task.checks if check.status == "skipped")
    lines += [f"not asked for here ({number(marks.skipped)} points): {reason}" for reason in reasons]
    return "\n".join(lines)


def _summary_line(task_id: str, title: str, earned: float, points: float, width: int) -> str:
    share = f"{bar(earned, points)}  {number(earned):>4} of {number(points)}" if points else "skipped"
    return f"{task_id:6} {title:{width}}  {share}"


def full_text(marks: Marks) -> str:
    """Every check of every task, then the summary."""
    return "\n\n".join([*(task_text(task) for task in marks.tasks), summary_text(marks)])
