"""Pairs that are suspiciously alike: students among each other, and students with the package's own source."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mlhood.grading.similarity.syntax_tokens import shape
from mlhood.grading.similarity.winnowing import Fingerprints, fingerprints

LEAST_SHARED = 10
LEAST_SHARE = 0.5
# what more than a fifth of a class has, but at least seven, is how one does it
MANY_SHARE = 0.2
MANY_LEAST = 6
# a loop of three lines is written one way by everybody, so a part of a function tells only if it is longer
LEAST_COPIED = 15
LEAST_WHOLE = 8
WHOLE = 0.9
LEAST_READ = 200  # characters: a few words that are no program are no loss
MOST_PASSAGES = 3


@dataclass(frozen=True)
class Work:
    """What somebody has written: source by place, such as a task's id or a file and a function."""

    name: str
    sources: Mapping[str, str]


@dataclass(frozen=True)
class Passage:
    """Two places that are alike: their names, sources, and the lines (from 1) that they have in common."""

    places: tuple[str, str]
    sources: tuple[str, str]
    lines: tuple[frozenset[int], frozenset[int]]
    shared: int


@dataclass(frozen=True)
class Pair:
    """Two that are alike.

    Args:
        names: Who.
        shared: Fingerprints in common.
        share: Which share that is of the smaller one's (for the package's source: of the source's).
        passages: Where, the longest first.
    """

    names: tuple[str, str]
    shared: int
    share: float
    passages: tuple[Passage, ...]


@dataclass(frozen=True)
class _Marked:
    """A work with the fingerprints of each place, less what tells nothing."""

    work: Work
    places: Mapping[str, Fingerprints]

    @property
    def all(self) -> frozenset[int]:
        return frozenset(mark for found in self.places.values() for mark in found)

    def without(self, known: Iterable[int]) -> _Marked:
        known = frozenset(known)
        kept = {
            place: {mark: lines for mark, lines in found.items() if mark not in known}
            for place, found in self.places.items()
        }
        return _Marked(self.work, kept)


def alike(works: Sequence[Work], given: Iterable[str] = ()) -> list[Pair]:
    """The pairs of works that share half of the smaller one's fingerprints, the most alike first.

    Args:
        works: Of one project, a name once.
        given: Sources that the course has given; what stands there tells nothing, nor does what many have.
    """
    own = {one.work.name: one for one in _own(works, _known(given))}
    sizes = {name: len(one.all) for name, one in own.items()}
    holders: dict[int, list[str]] = defaultdict(list)
    for name in sorted(own):
        for mark in own[name].all:
            holders[mark].append(name)
    shared = Counter(pair for names in holders.values() for pair in combinations(names, 2))
    kept = [
        _pair(own[a], own[b], count, count / min(sizes[a], sizes[b]))
        for (a, b), count in shared.items()
        if count >= LEAST_SHARED and count / min(sizes[a], sizes[b]) >= LEAST_SHARE
    ]
    return sorted(kept, key=_most_alike)


def copied(works: Sequence[Work], sources: Iterable[Work], given: Iterable[str] = ()) -> list[Pair]:
    """The works that hold half of a longer source's fingerprints or nearly all of a shorter one's, best first.

    Args:
        works: Of students, of one project.
        sources: Of the package, a work for each function (see `own_source`).
        given: Sources that the course has given; what stands there tells nothing, nor does what many have.
    """
    known = _known(given)
    originals = [_marked(source).without(known) for source in sources]
    holders: dict[int, list[_Marked]] = defaultdict(list)
    for original in originals:
        for mark in original.all:
            holders[mark].append(original)
    pairs = []
    for one in _own(works, known):
        shared = Counter(original.work.name for mark in one.all for original in holders.get(mark, ()))
        for original in (original for original in originals if shared[original.work.name]):
            count = shared[original.work.name]
            if _is_copy(count, count / len(original.all)):
                pairs.append(_pair(one, original, count, count / len(original.all)))
    return sorted(pairs, key=_most_alike)


def unread(works: Iterable[Work]) -> list[tuple[str, str]]:
    """Who has sources that could not be compared, and where: no Python, or nested too deep to be read here."""
    return [
        (work.name, place)
        for work in works
        for place, source in work.sources.items()
        if len(source) >= LEAST_READ and not shape(source)
    ]


def _most_alike(pair: Pair) -> tuple[float, int, tuple[str, str]]:
    return -pair.share, -pair.shared, pair.names


def _is_copy(shared: int, share: float) -> bool:
    return (shared >= LEAST_COPIED and share >= LEAST_SHARE) or (shared >= LEAST_WHOLE and share >= WHOLE)


def _own(works: Sequence[Work], known: frozenset[int]) -> list[_Marked]:
    """The works with what is their own: neither known nor what many have."""
    marked = [_marked(work).without(known) for work in works]
    counts = Counter(mark for one in marked for mark in one.all)
    many = max(MANY_LEAST, MANY_SHARE * len(marked))
    return [one.without(mark for mark in one.all if counts[mark] > many) for one in marked]


def _known(given: Iterable[str]) -> frozenset[int]:
    return frozenset(mark for source in given for mark in fingerprints(source))


def _marked(work: Work) -> _Marked:
    return _Marked(work, {place: fingerprints(source) for place, source in work.sources.items()})


def _pair(one: _Marked, other: _Marked, shared: int, share: float) -> Pair:
    found = [_passage(one, here, other, there) for here in one.places for there in other.places]
    passages = sorted((passage for passage in found if passage.shared), key=lambda passage: -passage.shared)
    best: dict[str, Passage] = {}
    for passage in passages:
        best.setdefault(passage.places[0], passage)
    return Pair((one.work.name, other.work.name), shared, share, tuple(best.values())[:MOST_PASSAGES])


def _passage(one: _Marked, here: str, other: _Marked, there: str) -> Passage:
    both = one.places[here].keys() & other.places[there].keys()
    lines = [
        frozenset(line for mark in both for line in marked.places[place][mark])
        for marked, place in ((one, here), (other, there))
    ]
    sources = one.work.sources[here], other.work.sources[there]
    return Passage((here, there), sources, (lines[0], lines[1]), len(both))
