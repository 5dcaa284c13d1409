"""The pages: an overview of what is to be marked, and one item with its answer and its rubric side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlhood.grading.marking.items import MAX_COMMENT, Item, Written, first_unmarked
from mlhood.grading.reports.render import render
from mlhood.grading.reports.sanitize import MAX_CODE, plain

TEMPLATES = Path(__file__).parent / "templates"
# words that few solutions need: a hint where to look first, found by a plain search, which takes no points
RARE = re.compile(r"\b(?:ctypes|eval|exec|gc|inspect|perf_counter|subprocess|threading|_getframe|__globals__)\b")
# shown on the pages, and what page.js does
KEYS = (
    ("0 … 9 .", "points; a digit that would make too many, or a second decimal, begins a new number"),
    ("Backspace", "delete the last digit; without any, the answer is not marked"),
    ("→  n  Enter", "next student"),
    ("←  p", "previous student"),
    ("u", "next one without points"),
    ("a", "undecided task: give the points of its checks"),
    ("↑ ↓", "scroll"),
    ("c", "write a comment; Esc ends it"),
    ("o", "overview"),
)


@dataclass(frozen=True)
class ItemRow:
    """A row of the overview: a question or task, how many of its answers are marked, and which one to open."""

    id: str
    title: str
    kind: str
    marked: int
    count: int
    key: str


@dataclass(frozen=True)
class AnswerLine:
    """A line of an answer, and whether it has one of the `RARE` words."""

    text: str
    rare: bool


def overview_page(items: Mapping[str, Item], gradebook: str, nonce: str) -> str:
    """Return the page that lists questions and undecided tasks."""
    groups: dict[tuple[str, str], list[tuple[str, Item]]] = {}
    for key, item in items.items():
        groups.setdefault((item.id, "undecided task" if item.task else "written answer"), []).append((key, item))
    rows = [
        ItemRow(
            name,
            group[0][1].title,
            kind,
            _marked(item for _, item in group),
            len(group),
            first_unmarked(group) or group[0][0],
        )
        for (name, kind), group in groups.items()
    ]
    return render(
        "overview.html.j2",
        folder=TEMPLATES,
        nonce=nonce,
        rows=rows,
        gradebook=gradebook,
        marked=_marked(items.values()),
        count=len(items),
        next_key=first_unmarked(items.items()),
        keys=KEYS,
    )


def _marked(items) -> int:
    return sum(item.points is not None for item in items)


def item_page(items: Mapping[str, Item], key: str, written: Written, nonce: str, error: str = "") -> str:
    """Return the page of one item."""
    from mlhood.grading.notebooks.questions import synced_questions  # loads the course

    item, keys = items[key], list(items)
    question = None if item.task else synced_questions(item.record.project.id).get(item.id)
    same = [other for other in keys if (items[other].id, bool(items[other].task)) == (item.id, bool(item.task))]
    at = keys.index(key)
    before, after = keys[:at], keys[at + 1 :]
    return render(
        "item.html.j2",
        folder=TEMPLATES,
        nonce=nonce,
        item=item,
        key=key,
        question=question,
        parts=[
            (title, [AnswerLine(line, bool(RARE.search(line))) for line in plain(text, MAX_CODE).split("\n")])
            for title, text in written.parts
        ],
        readable=written.readable,
        position=same.index(key) + 1,
        count=len(same),
        marked=_marked(items[other] for other in same),
        previous=before[-1] if before else "",
        following=after[0] if after else "",
        unmarked=first_unmarked((other, items[other]) for other in after + before),
        max_comment=MAX_COMMENT,
        keys=KEYS,
        error=error,
    )
