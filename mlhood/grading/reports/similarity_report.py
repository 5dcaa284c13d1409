"""The part of the class report about similar submissions, with the passages side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlhood.grading.reports.highlight import highlight_python
from mlhood.grading.reports.outputs import Fragment, Fragments, PageBudget
from mlhood.grading.similarity.class_similarity import Similarity
from mlhood.grading.similarity.compare import Passage, SimilarPair

MAX_PAIRS = 50
MAX_SHOWN = 15
MAX_UNPARSABLE = 20


@dataclass(frozen=True)
class Side:
    """One side of a passage: who wrote it, where, and the code."""

    name: str
    place: str
    code: Fragment


@dataclass(frozen=True)
class Evidence:
    """The passages that two documents share; or a note if the page has reached its largest size."""

    pair: SimilarPair
    passages: Sequence[Sequence[Side]]
    notes: Fragments = ()


@dataclass(frozen=True)
class PairTable:
    """A table of pairs, how many more there are, and the evidence for the first ones."""

    caption: str
    columns: tuple[str, str]
    pairs: Sequence[SimilarPair]
    hidden: int
    evidence: Sequence[Evidence]


@dataclass(frozen=True)
class SimilarityView:
    """What the page shows of a comparison."""

    tables: Sequence[PairTable]
    unparsable: Sequence[tuple[str, str]]
    hidden: int


def similarity_view(similarity: Similarity, budget: PageBudget) -> SimilarityView:
    """Return pairs of students, copies of the package's source, and what could not be compared."""
    tables = [
        _table("Pairs of students", ("First", "Second"), similarity.pairs, budget),
        _table("Copies of the package's source", ("Student", "Function"), similarity.copies, budget),
    ]
    unparsable = similarity.unparsable
    return SimilarityView(
        [table for table in tables if table.pairs],
        unparsable[:MAX_UNPARSABLE],
        max(len(unparsable) - MAX_UNPARSABLE, 0),
    )


def _table(caption: str, columns: tuple[str, str], pairs: Sequence[SimilarPair], budget: PageBudget) -> PairTable:
    evidence = [_evidence(pair, budget) for pair in pairs[:MAX_SHOWN] if budget.remaining]
    return PairTable(caption, columns, pairs[:MAX_PAIRS], max(len(pairs) - MAX_PAIRS, 0), evidence)


def _evidence(pair: SimilarPair, budget: PageBudget) -> Evidence:
    passages = [_sides(pair, passage) for passage in pair.passages]
    code = [side.code for sides in passages for side in sides]
    admitted = budget.admit(code)
    return Evidence(pair, passages) if admitted is code else Evidence(pair, [], admitted)


def _sides(pair: SimilarPair, passage: Passage) -> list[Side]:
    return [
        Side(name, place, Fragment("code", highlight_python(source, lines)))
        for name, place, source, lines in zip(pair.names, passage.places, passage.sources, passage.lines, strict=True)
    ]
