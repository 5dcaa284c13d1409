"""Marks as text for terminals and logs.

What passed is indicated by a word and a sign, never by colour alone.
"""

from __future__ import annotations

from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult, Unasked

SIGNS = {"passed": "✓", "failed": "✗", "skipped": "–", "undecided": "?"}


def format_points(points: float) -> str:
    """Return points without unnecessary decimals: 4, 2.5."""
    return f"{points:g}"


def points_bar(earned: float, points: float) -> str:
    """Return a bar of ten block characters, filled in proportion to the points earned."""
    filled = round(10 * earned / points) if points else 0
    return "█" * filled + "░" * (10 - filled)


def score_line(result: TaskResult) -> str:
    """`P1.1 The layers of LeNet: 8 of 10 points`, or `not asked` if this machine could run none of the checks."""
    return f"{result.id} {result.title}: {score_words(result)}"


def score_words(result: TaskResult) -> str:
    """`8 of 10 points`, or `not asked`."""
    return f"{format_points(result.earned)} of {format_points(result.points)} points" if result.asked else "not asked"


def unasked_text(unasked: Unasked) -> str:
    """`P1.7, 10 points: no browser was found`."""
    return f"{', '.join(unasked.tasks)}, {format_points(unasked.points)} points: {unasked.reason}"


def check_lines(check: CheckResult) -> list[str]:
    """Return a check's result, and the reason below it if it did not pass."""
    lines = [f"  {SIGNS[check.status]} {check.title} ({check.status}, {format_points(check.points)})"]
    if check.what:
        lines.append(f"      {check.what}")
    indent = "\n        "  # a student's output stays visibly within its check
    lines += [f"      {label}: {part.replace(chr(10), indent)}" for label, part in check.parts.items()]
    return lines


def task_text(result: TaskResult) -> str:
    """Return a task's result."""
    lines = [score_line(result), *(f"  note: {note}" for note in result.notes)]
    for check in result.checks:
        lines += check_lines(check)
    return "\n".join(lines)


def summary_text(marks: Marks) -> str:
    """Return a line for each task of a submission, and the sum."""
    width = max(len(task.title) for task in marks.tasks)
    rows = [(task.id, task.title, task.earned, task.points) for task in marks.tasks]
    lines = [_summary_line(*row, width) for row in [*rows, ("", "all tasks", marks.earned, marks.points)]]
    lines += [f"not asked on this machine: {unasked_text(unasked)}" for unasked in marks.unasked]
    lines += [f"{task.id} is undecided: {task.why_undecided}" for task in marks.tasks if task.undecided]
    return "\n".join(lines)


def _summary_line(task_id: str, title: str, earned: float, points: float, width: int) -> str:
    share = f"{points_bar(earned, points)}  {format_points(earned):>4} of {format_points(points)}"
    return f"{task_id:6} {title:{width}}  {share if points else 'not asked'}"


def full_text(marks: Marks) -> str:
    """Return every check of every task, then the summary."""
    return "\n\n".join([*(task_text(task) for task in marks.tasks), summary_text(marks)])
