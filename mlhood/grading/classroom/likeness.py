"""Pairs of submissions that are suspiciously alike, whatever names, numbers and comments were changed.

A submission becomes the sequence of the kinds of its syntax trees' nodes, and that a set of fingerprints: hashes of
K nodes in a row, of which every window of W keeps the smallest (S. Schleimer, D. Wilkerson, A. Aiken, "Winnowing:
Local Algorithms for Document Fingerprinting", SIGMOD 2003, section 3). So every passage of K + W - 1 nodes that two
have in common is found. What the course has given, and what many have, tells nothing and is left out.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

K = 14
WINDOW = 8
LEAST_SHARED = 8
LEAST_SHARE = 0.5
MANY_SHARE = 0.2
MANY_LEAST = 6
MAX_SOURCE = 200_000
MAX_NODES = 100_000
# they stand with every name or say how it is used, and would only water the sequence down
SILENT = (ast.Load, ast.Store, ast.Del, ast.arguments, ast.Expr)


@dataclass(frozen=True)
class Pair:
    """Two submissions: how many fingerprints they share, and which share that is of the smaller one."""

    first: str
    second: str
    shared: int
    share: float


def shape(source: str) -> list[str]:
    """The kinds of a program's nodes, depth first; names, literals, docstrings and comments leave no trace.

    Source that does not parse, or is absurdly large, has none.
    """
    if len(source) > MAX_SOURCE:
        return []
    lines = ["pass" if line.lstrip().startswith(("%", "!")) else line for line in source.split("\n")]  # IPython's own
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [type(node).__name__ for node in _depth_first(tree) if not isinstance(node, SILENT)][:MAX_NODES]


def _depth_first(tree: ast.AST) -> Iterator[ast.AST]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(node, clean=False):
            children.remove(node.body[0])
        waiting.extend(reversed(children))


def fingerprints(kinds: list[str]) -> frozenset[int]:
    """The winnowed hashes of a sequence of kinds; a sequence shorter than K has none."""
    hashes = [_hash(kinds[at : at + K]) for at in range(len(kinds) - K + 1)]
    windows = range(max(len(hashes) - WINDOW + 1, min(len(hashes), 1)))
    return frozenset(min(hashes[at : at + WINDOW]) for at in windows)


def _hash(kinds: list[str]) -> int:
    return int.from_bytes(hashlib.blake2b(" ".join(kinds).encode(), digest_size=8).digest())


def fingerprints_of(sources: Iterable[str]) -> frozenset[int]:
    """The fingerprints of several cells or files, each for itself."""
    return frozenset().union(*(fingerprints(shape(source)) for source in sources))


def alike(submissions: Mapping[str, frozenset[int]], given: frozenset[int] = frozenset()) -> list[Pair]:
    """The pairs that share at least half of the smaller one's fingerprints, the most alike first.

    Args:
        submissions: Fingerprints by name.
        given: Fingerprints of what the course has given.
    """
    counts = Counter(mark for marks in submissions.values() for mark in marks)
    many = max(MANY_LEAST, MANY_SHARE * len(submissions))
    common = {mark for mark, count in counts.items() if count > many}
    own = {name: marks - given - common for name, marks in submissions.items()}
    holders: dict[int, list[str]] = defaultdict(list)
    for name, marks in sorted(own.items()):
        for mark in marks:
            holders[mark].append(name)
    shared = Counter(pair for names in holders.values() for pair in combinations(names, 2))
    pairs = [Pair(a, b, count, count / min(len(own[a]), len(own[b]))) for (a, b), count in shared.items()]
    kept = [pair for pair in pairs if pair.shared >= LEAST_SHARED and pair.share >= LEAST_SHARE]
    return sorted(kept, key=lambda pair: (-pair.share, -pair.shared, pair.first, pair.second))
