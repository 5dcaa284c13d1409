"""Find pairs of documents that are suspiciously similar: students with each other, and with the package's source."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from mlhood.grading.similarity.syntax_tokens import SyntaxToken, syntax_tokens

K = 12
WINDOW = 6

# fingerprint -> lines that its tokens are on
Fingerprints = dict[int, frozenset[int]]
MIN_SHARED = 10
MIN_SHARE = 0.5
# a fingerprint of more than a fifth of a class, and of at least seven, is the usual solution
COMMON_SHARE = 0.2
COMMON_COUNT = 6
# everybody writes a loop of three lines in the same way, so a part of a function is evidence only if it is longer
MIN_COPIED = 15
MIN_COPIED_COMPLETELY = 8
COMPLETE_SHARE = 0.9
MIN_UNPARSABLE = 200  # characters; a few words that are not a program are no loss
MIN_GROUP = 3  # documents; two are a pair
MAX_PASSAGES = 3
MAX_PLACES = 8  # of one document that are compared for one fingerprint; cells of one line repeat the same few


@dataclass(frozen=True)
class Document:
    """The code of a student or of the package.

    Args:
        name: Of the student, or of the package's function.
        sources: Source by place, such as a task's id, or a file and a function.
        truncated: Places of which only the beginning is in `sources`.
    """

    name: str
    sources: Mapping[str, str]
    truncated: Sequence[str] = ()


@dataclass(frozen=True)
class Passage:
    """Two places that are similar: their names, sources, and the lines (from 1) that they have in common."""

    places: tuple[str, str]
    sources: tuple[str, str]
    lines: tuple[frozenset[int], frozenset[int]]
    shared: int


@dataclass(frozen=True)
class SimilarPair:
    """Two similar documents.

    Args:
        names: Of the documents.
        shared: Number of common fingerprints.
        share: Their fraction of the smaller document's fingerprints (of the original's, for the package's source).
        passages: The similar places, the longest first.
    """

    names: tuple[str, str]
    shared: int
    share: float
    passages: tuple[Passage, ...]


@dataclass(frozen=True)
class SimilarGroup:
    """Documents whose code is the same but for what the comparison ignores, and the evidence for two of them."""

    names: tuple[str, ...]
    evidence: SimilarPair


@dataclass(frozen=True)
class _Indexed:
    """A document with the fingerprints of each place, without those that are no evidence."""

    document: Document
    places: Mapping[str, Fingerprints]

    @property
    def all(self) -> frozenset[int]:
        return frozenset(fingerprint for prints in self.places.values() for fingerprint in prints)

    def without(self, excluded: frozenset[int]) -> _Indexed:
        remaining = {
            location: {fingerprint: lines for fingerprint, lines in prints.items() if fingerprint not in excluded}
            for location, prints in self.places.items()
        }
        return _Indexed(self.document, remaining)


def winnow(tokens: Sequence[SyntaxToken]) -> Fingerprints:
    """Return the fingerprints of a token sequence, with the lines of each; one shorter than K has none.

    S. Schleimer, D. Wilkerson, A. Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003,
    section 3.1: hash every K consecutive tokens (a K-gram); of every WINDOW consecutive hashes keep the minimum, the
    rightmost one of several. A common passage of K + WINDOW - 1 tokens is always found, one shorter than K never.
    """
    kinds = [token.kind for token in tokens]
    hashes = [_hash(kinds[i : i + K]) for i in range(len(tokens) - K + 1)]
    selected: dict[int, set[int]] = {}
    for start in range(max(len(hashes) - WINDOW + 1, min(len(hashes), 1))):
        window = range(start, min(start + WINDOW, len(hashes)))
        position = min(window, key=lambda i: (hashes[i], -i))
        selected.setdefault(hashes[position], set()).update(token.line for token in tokens[position : position + K])
    return {fingerprint: frozenset(lines) for fingerprint, lines in selected.items()}


def _hash(kinds: Sequence[str]) -> int:
    text = " ".join(kinds)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())


@dataclass(frozen=True)
class Reduced:
    """What a comparison needs of a source: its fingerprints, and whether it has any tokens."""

    fingerprints: Fingerprints
    has_tokens: bool


@cache
def reduced(source: str) -> Reduced:
    """Reduce a source, once: most cells are the course's, and the same in the whole class. `cache_clear` forgets."""
    tokens = syntax_tokens(source)
    return Reduced(winnow(tokens), bool(tokens))


def prepare(document: Document) -> None:
    """Reduce the sources of a document now: that is nearly all of the time of a comparison."""
    for source in document.sources.values():
        reduced(source)


def similar_groups(
    documents: Sequence[Document], base: Iterable[str] = ()
) -> tuple[list[SimilarGroup], list[SimilarPair]]:
    """Return groups of at least three documents that are the same, and pairs that share half of the smaller one.

    The largest group and the most similar pair come first. The documents are of one project and have unique names. What
    `base`, the sources given by the course, contains is no evidence, nor is what many have on their own: of a group
    only the first document counts, and is compared with the others.
    """
    excluded = _base_fingerprints(base)
    indexed = [_index(document).without(excluded) for document in sorted(documents, key=lambda document: document.name)]
    same: dict[frozenset[int], list[_Indexed]] = defaultdict(list)
    for index in indexed:
        same[index.all if len(index.all) >= MIN_SHARED else frozenset({id(index)})].append(index)
    groups = [members for members in same.values() if len(members) >= MIN_GROUP]
    repeated = {id(index) for members in groups for index in members[1:]}
    pairs = _pairs(_distinctive([index for index in indexed if id(index) not in repeated]))
    return sorted(map(_group, groups), key=lambda group: (-len(group.names), group.names)), pairs


def _group(members: Sequence[_Indexed]) -> SimilarGroup:
    first, second = members[:2]
    return SimilarGroup(tuple(index.document.name for index in members), _pair(first, second, len(first.all), 1.0))


def _pairs(documents: Iterable[_Indexed]) -> list[SimilarPair]:
    indexed = {index.document.name: index for index in documents}
    prints = {name: index.all for name, index in indexed.items()}
    holders: dict[int, list[str]] = defaultdict(list)
    for name in sorted(indexed):
        for fingerprint in prints[name]:
            holders[fingerprint].append(name)
    shared = Counter(pair for names in holders.values() for pair in combinations(names, 2))
    shares = {(a, b): count / min(len(prints[a]), len(prints[b])) for (a, b), count in shared.items()}
    pairs = [
        _pair(indexed[a], indexed[b], count, shares[a, b])
        for (a, b), count in shared.items()
        if count >= MIN_SHARED and shares[a, b] >= MIN_SHARE
    ]
    return sorted(pairs, key=_rank)


def package_copies(
    documents: Sequence[Document], originals: Iterable[Document], base: Iterable[str] = ()
) -> list[SimilarPair]:
    """Return the documents that share half of a longer original's fingerprints, or nearly all of a shorter one's.

    The originals are the package's, one for each function (see `package_functions`); `base` as in `similar_groups`.
    """
    excluded = _base_fingerprints(base)
    sources = {original.name: _index(original).without(excluded) for original in originals}
    holders: dict[int, list[str]] = defaultdict(list)
    for name, source in sources.items():
        for fingerprint in source.all:
            holders[fingerprint].append(name)
    pairs = []
    for index in _distinctive([_index(document).without(excluded) for document in documents]):
        shared = Counter(name for fingerprint in index.all for name in holders.get(fingerprint, ()))
        for name, count in shared.items():
            share = count / len(sources[name].all)
            partial = count >= MIN_COPIED and share >= MIN_SHARE
            if partial or (count >= MIN_COPIED_COMPLETELY and share >= COMPLETE_SHARE):
                pairs.append(_pair(index, sources[name], count, share))
    return sorted(pairs, key=_rank)


def unparsable(documents: Iterable[Document]) -> list[tuple[str, str]]:
    """Return the documents and places that could not be compared: not Python, or nested too deeply."""
    return [
        (document.name, location)
        for document in documents
        for location, source in document.sources.items()
        if len(source) >= MIN_UNPARSABLE and not reduced(source).has_tokens
    ]


def _rank(pair: SimilarPair) -> tuple[float, int, tuple[str, str]]:
    return -pair.share, -pair.shared, pair.names


def _distinctive(indexed: Sequence[_Indexed]) -> list[_Indexed]:
    """Return the documents with the fingerprints that are evidence: not those common to many."""
    counts = Counter(fingerprint for index in indexed for fingerprint in index.all)
    limit = max(COMMON_COUNT, COMMON_SHARE * len(indexed))
    common = frozenset(fingerprint for fingerprint, count in counts.items() if count > limit)
    return [index.without(common) for index in indexed]


def _base_fingerprints(base: Iterable[str]) -> frozenset[int]:
    return frozenset(fingerprint for source in base for fingerprint in reduced(source).fingerprints)


def _index(document: Document) -> _Indexed:
    return _Indexed(document, {location: reduced(source).fingerprints for location, source in document.sources.items()})


def _pair(a: _Indexed, b: _Indexed, shared: int, share: float) -> SimilarPair:
    """Return a pair with the places that have most in common, each place of `a` once."""
    places: dict[int, list[str]] = defaultdict(list)
    for place, prints in b.places.items():
        for fingerprint in prints:
            if len(places[fingerprint]) < MAX_PLACES:
                places[fingerprint].append(place)
    counts = Counter(
        (place, other)
        for place, prints in a.places.items()
        for fingerprint in prints
        for other in places.get(fingerprint, ())
    )
    best: dict[str, str] = {}  # the place of `b` for each of `a`
    for (place, other), _ in counts.most_common():
        best.setdefault(place, other)
    passages = tuple(_passage(a, place, b, other) for place, other in list(best.items())[:MAX_PASSAGES])
    return SimilarPair((a.document.name, b.document.name), shared, share, passages)


def _passage(a: _Indexed, place_a: str, b: _Indexed, place_b: str) -> Passage:
    prints_a, prints_b = a.places[place_a], b.places[place_b]
    common = prints_a.keys() & prints_b.keys()
    lines = (
        frozenset(line for fingerprint in common for line in prints_a[fingerprint]),
        frozenset(line for fingerprint in common for line in prints_b[fingerprint]),
    )
    sources = a.document.sources[place_a], b.document.sources[place_b]
    return Passage((place_a, place_b), sources, lines, len(common))
