"""The report about a class: one page for the instructor."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlhood.files.atomic import write_atomic
from mlhood.grading.checks.marks import CheckResult, TaskResult
from mlhood.grading.checks.submission import format_figure
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook
from mlhood.grading.gradebook.records import MISSING, Record, records
from mlhood.grading.progress import Notify, ignore
from mlhood.grading.reports.outputs import PageBudget
from mlhood.grading.reports.render import render
from mlhood.grading.similarity import Similarity, compare_class

BINS = 5
MAX_HARDEST = 12


@dataclass(frozen=True)
class PointDistribution:
    """The points that a class has earned in one task, or in all of them; `counts` is their histogram."""

    id: str
    title: str
    points: float
    mean: float
    median: float
    counts: Sequence[int]


@dataclass(frozen=True)
class HardCheck:
    """A check that many submissions failed, with the most frequent reason."""

    task: str
    title: str
    failed: int
    total: int
    reason: str


def write_class_report(gradebook: Path, path: Path, given: Iterable[Path], notify: Notify = ignore) -> str:
    """Write the report about a class; return a message about what was written."""
    with Gradebook(gradebook, must_exist=True) as book:
        results, variant_names = records(book), book.versions()
    similarity = compare_class(results, gradebook.parent / SUBMISSIONS_FOLDER, given, notify, variant_names)
    notify(f"writing the page {path}", 0, 1)
    write_atomic(path, class_report(results, similarity).encode("utf-8", "replace"))
    similar = sum(len(result.similar) for result in similarity.values())
    copies = sum(len(result.copies) for result in similarity.values())
    count = sum(record.status != MISSING for record in results)
    return f"{path}: results {count}, groups with similar code {similar}, copies of the course's own source {copies}"


def class_report(results: Sequence[Record], similarity: Mapping[str, Similarity]) -> str:
    """Return the page about the results of all students in all projects, and the similarity of each project."""
    by_project: dict[str, list[Record]] = {}
    for record in results:
        by_project.setdefault(record.project.id, []).append(record)
    return render(
        "class_report.html.j2",
        students=len({record.student for record in results}),
        submissions=sum(record.status != MISSING for record in results),
        graded=sum(record.status == "done" for record in results),
        projects=[_view(group, similarity.get(project, Similarity())) for project, group in by_project.items()],
        budget=PageBudget(),
    )


def _view(results: Sequence[Record], similarity: Similarity) -> dict[str, Any]:
    """Return what the page shows of a project; `late_notes` are what was assumed about lateness."""
    graded = [record for record in results if record.status == "done"]
    return {
        "project": results[0].project,
        "ungraded": [record for record in results if record.status not in {"done", MISSING}],
        "missing": [record for record in results if record.status == MISSING],
        "graded": len(graded),
        "distributions": list(_distributions(graded)) if graded else [],
        "hardest": _hardest(graded),
        "rankings": list(_rankings(graded)),
        "undecided": [record for record in results if record.undecided],
        "late": sorted((r for r in results if r.late.days), key=lambda record: (-record.late.days, record.student)),
        "late_notes": Counter(record.late.note for record in results if record.late.note),
        "similarity": similarity,
    }


def _distributions(graded: Sequence[Record]) -> Iterator[PointDistribution]:
    project = graded[0].project
    yield _distribution("", "all tasks", project.points, [record.earned for record in graded])
    for index, task in enumerate(project.tasks):
        yield _distribution(task.id, task.title, task.points, [record.tasks[index].earned for record in graded])


def _rankings(graded: Sequence[Record]) -> Iterator[tuple[TaskResult, list[tuple[str, str, int]]]]:
    """Yield each open task that somebody has reached a figure in, with what was reached, the best first, without names.

    A row is a place, the figure, and how many reached just that; the place of the course's own is empty. Its figure is
    the median, as inputs differ between students.
    """
    tasks = [task for record in graded for task in record.tasks if task.reached]
    for task in {task.id: task for task in tasks}.values():
        figures = [other.reached for other in tasks if other.id == task.id and other.reached]
        sign = 1 if figures[0].smaller_is_better else -1
        course = statistics.median(figure.course for figure in figures)
        counts = Counter(figure.value for figure in figures)
        rows, place = [], 1
        for value in sorted({*counts, course}, key=lambda value, sign=sign: sign * value):
            rows += [(str(place), format_figure(value), counts[value])] if value in counts else []
            rows += [("", format_figure(value), 0)] if value == course else []
            place += counts[value]
        yield task, rows


def _distribution(task_id: str, title: str, points: float, earned: Sequence[float]) -> PointDistribution:
    bins = [min(int(BINS * score / points), BINS - 1) if points else 0 for score in earned]
    counts = [bins.count(i) for i in range(BINS)]
    return PointDistribution(task_id, title, points, statistics.mean(earned), statistics.median(earned), counts)


def _checks(graded: Iterable[Record]) -> Iterator[tuple[str, CheckResult]]:
    """Yield task and result of every check that was not skipped."""
    for record in graded:
        for task in record.tasks:
            yield from ((task.id, check) for check in task.checks if check.status != "skipped")


def _hardest(graded: Iterable[Record]) -> list[HardCheck]:
    totals: Counter[tuple[str, str]] = Counter()
    reasons: dict[tuple[str, str], Counter[str]] = {}  # of the submissions that failed
    for task, check in _checks(graded):
        totals[task, check.title] += 1
        if check.status == "failed":
            reasons.setdefault((task, check.title), Counter())[check.what] += 1
    checks = [
        HardCheck(task, title, counts.total(), totals[task, title], counts.most_common(1)[0][0])
        for (task, title), counts in reasons.items()
    ]
    return sorted(checks, key=lambda check: (-check.failed / check.total, check.task, check.title))[:MAX_HARDEST]
