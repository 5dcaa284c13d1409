"""The report about a class: one page for the instructor."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlhood.files.atomic import write_atomic
from mlhood.grading.checks.marks import CheckResult
from mlhood.grading.checks.submission import Reached, format_figure
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook
from mlhood.grading.gradebook.project_spec import ProjectSpec
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


@dataclass(frozen=True)
class Rank:
    """A row of a ranking: what was reached, how many reached just that, and whether it is the course's own."""

    place: int
    value: str
    count: int
    course: bool = False


@dataclass(frozen=True)
class Ranking:
    """What a class has reached in an open task, the best first, without names; `figure` has the unit."""

    id: str
    title: str
    figure: str
    rows: Sequence[Rank]


@dataclass(frozen=True)
class ProjectView:
    """What the page shows of a project.

    `reasons` are those of failed checks with their frequency; `late_notes`, what was assumed about lateness.
    """

    project: ProjectSpec
    ungraded: Sequence[Record]
    missing: Sequence[Record]
    graded: int
    distributions: Sequence[PointDistribution]
    hardest: Sequence[HardCheck]
    rankings: Sequence[Ranking]
    reasons: Counter[str]
    undecided: Sequence[Record]
    late: Sequence[Record]
    late_notes: Counter[str]
    similarity: Similarity


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


def _view(results: Sequence[Record], similarity: Similarity) -> ProjectView:
    graded = [record for record in results if record.status == "done"]
    return ProjectView(
        results[0].project,
        [record for record in results if record.status not in {"done", MISSING}],
        [record for record in results if record.status == MISSING],
        len(graded),
        list(_distributions(graded)) if graded else [],
        _hardest(graded),
        list(_rankings(graded)),
        Counter(check.what for _, check in _checks(graded) if check.status == "failed"),
        [record for record in results if record.undecided],
        sorted((r for r in results if r.late.days), key=lambda record: (-record.late.days, record.student)),
        Counter(record.late.note for record in results if record.late.note),
        similarity,
    )


def _distributions(graded: Sequence[Record]) -> Iterator[PointDistribution]:
    project = graded[0].project
    yield _distribution("", "all tasks", project.points, [record.earned for record in graded])
    for index, task in enumerate(project.tasks):
        yield _distribution(task.id, task.title, task.points, [record.tasks[index].earned for record in graded])


def _rankings(graded: Sequence[Record]) -> Iterator[Ranking]:
    """Yield the ranking of each open task that somebody has reached a figure in."""
    reached: dict[tuple[str, str], list[Reached]] = {}
    for record in graded:
        for task in record.tasks:
            if task.reached:
                reached.setdefault((task.id, task.title), []).append(task.reached)
    for (task_id, title), figures in reached.items():
        yield Ranking(task_id, title, figures[0].figure, list(_ranks(figures)))


def _ranks(figures: Sequence[Reached]) -> Iterator[Rank]:
    """Yield a row for each figure, and one for the course's own: the median, as inputs differ between students."""
    sign = 1 if figures[0].smaller_is_better else -1
    course = statistics.median(figure.course for figure in figures)
    counts = Counter(figure.value for figure in figures)
    values = sorted({*counts, course}, key=lambda value: sign * value)
    for value in values:
        place = 1 + sum(count for other, count in counts.items() if sign * other < sign * value)
        if value in counts:
            yield Rank(place, format_figure(value), counts[value])
        if value == course:
            yield Rank(place, format_figure(value), 0, course=True)


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
