"""The report about a class: one page for the instructor, without scripts, that needs no network."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from mlhood.grading.classroom.likeness import Pair
from mlhood.grading.classroom.records import Record
from mlhood.grading.feedback import marked_up, number
from mlhood.grading.report import STYLE

BINS = 5
HARDEST = 12
MOST_PAIRS = 50
MORE_STYLE = """
.bins { display: flex; align-items: flex-end; gap: 2px; height: 2.2rem; }
.bins i { flex: 1; background: var(--soft); min-height: 1px; }
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="mlhood">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Report about the class</title>
<style>{style}</style>
</head>
<body>
<header><h1>Machine Learning under the hood: the class</h1>
<p class="sum">{summary}</p></header>
<main>
{body}
</main>
</body>
</html>
"""


def class_report(found: Sequence[Record], pairs: Mapping[str, Sequence[Pair]]) -> str:
    """The page.

    Args:
        found: The results of all students in all projects.
        pairs: Students whose work is alike, by project.
    """
    by_project: dict[str, list[Record]] = {}
    for one in found:
        by_project.setdefault(one.plan.id, []).append(one)
    students = len({one.student for one in found})
    graded = sum(one.status == "done" for one in found)
    summary = f"{students} students, {len(found)} submissions, {graded} of them graded"
    body = "\n".join(_project(records, pairs.get(project, ())) for project, records in by_project.items())
    return PAGE.format(style=STYLE + MORE_STYLE, summary=summary, body=body)


def _project(records: Sequence[Record], pairs: Sequence[Pair]) -> str:
    plan = records[0].plan
    graded = [one for one in records if one.status == "done"]
    parts = [f"<section><h2>{escape(plan.id)}: {escape(plan.title)}</h2>", _not_graded(records)]
    if graded:
        parts += [_distribution(graded), _hardest(graded)]
    return "\n".join([*parts, _pairs(pairs), "</section>"])


def _not_graded(records: Sequence[Record]) -> str:
    return "\n".join(
        f'<p class="alert">{escape(one.student)} ({escape(one.handed.source)}): {one.status}: {escape(one.reason)}</p>'
        for one in records
        if one.status != "done"
    )


def _distribution(graded: Sequence[Record]) -> str:
    head = '<th scope="col">Task</th><th scope="col">Title</th><th class="points" scope="col">Mean</th>'
    head += '<th class="points" scope="col">Median</th><th scope="col">None … all of the points</th>'
    rows = [_spread("", "all tasks", [one.earned for one in graded], graded[0].plan.points)]
    for place, task in enumerate(graded[0].plan.tasks):
        rows.append(_spread(task.id, task.title, [one.tasks[place].earned for one in graded], task.points))
    caption = f"Points of {len(graded)} submissions"
    return f"<h3>Points</h3><table><caption>{caption}</caption><thead><tr>{head}</tr></thead>{''.join(rows)}</table>"


def _spread(name: str, title: str, earned: Sequence[float], points: float) -> str:
    counts = Counter(min(int(BINS * one / points), BINS - 1) if points else 0 for one in earned)
    told = ", ".join(f"{counts[place]}" for place in range(BINS))
    bars = "".join(f'<i style="height:{100 * counts[place] / len(earned):.0f}%"></i>' for place in range(BINS))
    return (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(title)}</td>'
        f'<td class="points">{statistics.mean(earned):.1f} / {number(points)}</td>'
        f'<td class="points">{number(statistics.median(earned))}</td>'
        f'<td><div class="bins" role="img" aria-label="in fifths: {told}">{bars}</div>{told}</td></tr>'
    )


def _hardest(graded: Sequence[Record]) -> str:
    asked: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    reasons: dict[tuple[str, str], Counter[str]] = {}
    for task in (task for one in graded for task in one.tasks):
        for check in (check for check in task.checks if check.status != "skipped"):
            key = task.id, check.title
            asked[key] += 1
            if check.status == "failed":
                failed[key] += 1
                reasons.setdefault(key, Counter())[check.what] += 1
    hardest = sorted(failed, key=lambda key: (-failed[key] / asked[key], key))[:HARDEST]
    if not hardest:
        return "<h3>Hardest checks</h3><p>No check has failed.</p>"
    rows = "".join(
        f'<tr><th scope="row">{escape(key[0])}</th><td>{marked_up(key[1])}</td>'
        f'<td class="points">{failed[key]} of {asked[key]}</td>'
        f"<td>{marked_up(reasons[key].most_common(1)[0][0][:300])}</td></tr>"
        for key in hardest
    )
    head = "<tr><th>Task</th><th>Check</th><th>Failed</th><th>Most frequent reason</th></tr>"
    return f"<h3>Hardest checks</h3><table><thead>{head}</thead>{rows}</table>"


def _pairs(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return "<h3>Alike</h3><p>No two submissions are suspiciously alike.</p>"
    rows = "".join(
        f"<tr><td>{escape(pair.first)}</td><td>{escape(pair.second)}</td>"
        f'<td class="points">{pair.share:.0%}</td><td class="points">{pair.shared}</td></tr>'
        for pair in pairs[:MOST_PAIRS]
    )
    head = "<tr><th>One</th><th>Other</th><th>Share in common</th><th>Fingerprints in common</th></tr>"
    note = "A hint to look, not a proof: read both before you speak to anybody."
    return f'<h3>Alike</h3><p class="soft">{note}</p><table><thead>{head}</thead>{rows}</table>'
