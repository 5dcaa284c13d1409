"""The report about a class: one page for the instructor, without scripts, that needs no network."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mlhood.grading.checks.marks import CheckResult
from mlhood.grading.gradebook.records import Record
from mlhood.grading.reports.marks_text import marked_up, number
from mlhood.grading.reports.outputs import Room
from mlhood.grading.reports.page import bar_cell, head, page
from mlhood.grading.reports.sanitize import escaped, plain
from mlhood.grading.reports.similarity_report import alike_html
from mlhood.grading.similarity.class_similarity import Likeness

BINS = 5
HIGHEST = 2.2  # rem of the highest bar of a task
HARDEST = 12
REASONS = 12
MAX_NAME = 100
MAX_REASON = 300
TITLE = "Machine Learning under the hood: the class"
NOTHING = Likeness()


def class_report(found: Sequence[Record], alike: Mapping[str, Likeness]) -> str:
    """The page.

    Args:
        found: The results of all students in all projects.
        alike: Who has written the same, by project.
    """
    by_project: dict[str, list[Record]] = {}
    for one in found:
        by_project.setdefault(one.plan.id, []).append(one)
    students = len({one.student for one in found})
    graded = sum(one.status == "done" for one in found)
    summary = f'<p class="sum">{students} students, {len(found)} submissions, {graded} of them graded</p>'
    room = Room()
    body = (_project(records, alike.get(project, NOTHING), room) for project, records in by_project.items())
    return page(TITLE, summary, "\n".join(body))


def _project(records: Sequence[Record], alike: Likeness, room: Room) -> str:
    plan = records[0].plan
    graded = [one for one in records if one.status == "done"]
    parts = [f"<section><h2>{escaped(plan.id)}: {escaped(plan.title)}</h2>", _not_graded(records)]
    if graded:
        parts += [_distribution(graded), _hardest(graded), _reasons(graded)]
    return "\n".join([*parts, _late(records), alike_html(alike, room), "</section>"])


def _not_graded(records: Sequence[Record]) -> str:
    return "\n".join(
        f'<p class="alert">{escaped(one.student, MAX_NAME)} ({escaped(one.handed.source, MAX_NAME)}): '
        f"{escaped(one.status)}: {escaped(one.reason, MAX_REASON)}</p>"
        for one in records
        if one.status != "done"
    )


def _distribution(graded: Sequence[Record]) -> str:
    titles = head("Task", "Title", "Mean", "Median", "None … all of the points", numbers=("Mean", "Median"))
    rows = [_spread("", "all tasks", [one.earned for one in graded], graded[0].plan.points)]
    for place, task in enumerate(graded[0].plan.tasks):
        rows.append(_spread(task.id, task.title, [one.tasks[place].earned for one in graded], task.points))
    caption = f"Points of {len(graded)} submissions; a bar for those with up to a fifth of the points, two fifths, …"
    return f"<h3>Points</h3><table><caption>{caption}</caption>{titles}<tbody>{''.join(rows)}</tbody></table>"


def _spread(name: str, title: str, earned: Sequence[float], points: float) -> str:
    counts = Counter(min(int(BINS * one / points), BINS - 1) if points else 0 for one in earned)
    heights = [HIGHEST * counts[place] / max(counts.values()) for place in range(BINS)]
    bars = "".join(
        f'<span>{counts[place]}<i style="height:{height:.2f}rem"></i></span>' for place, height in enumerate(heights)
    )
    return (
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(title, MAX_NAME)}</td>'
        f'<td class="points">{statistics.mean(earned):.1f} / {number(points)}</td>'
        f'<td class="points">{number(statistics.median(earned))}</td>'
        f'<td><div class="bins">{bars}</div></td></tr>'
    )


def _asked(graded: Iterable[Record]) -> Iterable[tuple[str, CheckResult]]:
    """Task and result of every check that was asked."""
    for task in (task for one in graded for task in one.tasks):
        yield from ((task.id, check) for check in task.checks if check.status != "skipped")


def _hardest(graded: Sequence[Record]) -> str:
    asked: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    reasons: dict[tuple[str, str], Counter[str]] = {}
    for task, check in _asked(graded):
        key = task, check.title
        asked[key] += 1
        if check.status == "failed":
            failed[key] += 1
            reasons.setdefault(key, Counter())[check.what] += 1
    hardest = sorted(failed, key=lambda key: (-failed[key] / asked[key], key))[:HARDEST]
    if not hardest:
        return "<h3>Hardest checks</h3><p>No check has failed.</p>"
    rows = "".join(
        f'<tr><th scope="row">{escaped(key[0])}</th><td>{marked_up(plain(key[1], MAX_REASON))}</td>'
        f'{bar_cell(failed[key], asked[key])}<td class="points">{failed[key]} of {asked[key]}</td>'
        f"<td>{marked_up(plain(reasons[key].most_common(1)[0][0], MAX_REASON))}</td></tr>"
        for key in hardest
    )
    titles = head("Task", "Check", "Share", "Failed", "Most frequent reason", bars="Share", numbers=("Failed",))
    return f"<h3>Hardest checks</h3><table>{titles}<tbody>{rows}</tbody></table>"


def _reasons(graded: Sequence[Record]) -> str:
    """What failed checks say, over all tasks: a fault of the course shows here as one that many have."""
    said = Counter(check.what for _, check in _asked(graded) if check.status == "failed")
    if not said:
        return ""
    shown = {
        marked_up(plain(reason, MAX_REASON)) or "no reason given": count for reason, count in said.most_common(REASONS)
    }
    rows = "".join(f'<tr><td>{reason}</td><td class="points">{count}</td></tr>' for reason, count in shown.items())
    caption = f"{said.total()} checks failed for {len(said)} reasons"
    titles = head("Reason", "Checks", numbers=("Checks",))
    return f"<h3>Reasons</h3><table><caption>{caption}</caption>{titles}<tbody>{rows}</tbody></table>"


def _late(records: Sequence[Record]) -> str:
    late = [one for one in records if one.late.days]
    if not late:
        return ""
    rows = "".join(
        f'<tr><td>{escaped(one.student, MAX_NAME)}</td><td class="points">{one.late.days}</td>'
        f'<td class="points">−{number(round(one.penalty, 2))}</td></tr>'
        for one in sorted(late, key=lambda one: (-one.late.days, one.student))
    )
    titles = head("Student", "Days begun", "Points", numbers=("Days begun", "Points"))
    return f"<h3>Late</h3><table><caption>{len(late)} late</caption>{titles}<tbody>{rows}</tbody></table>"
