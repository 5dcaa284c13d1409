"""Layers of a drawing, and the order within each (Sugiyama et al. 1981; Gansner et al. 1993, sections 2 and 3).

1. Each vertex gets a layer below all that it reads, such that the edges together are as short as can be: a linear
   program whose solution is whole numbers.
2. A value that passes layers on its way gets a bend in each, one for all its readers.
3. Sweeps down and up sort each layer by the mean place of the neighbours; the order with the fewest crossings stays.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from mlhood.errors import CompilerError
from mlhood.graph_drawing.scene import Scene, Wire

_SWEEPS = 16
_MOST_BENDS = 4000


@dataclass
class Layered:
    """Vertices in layers.

    Args:
        rows: The vertices of each layer from left to right; those not below the number of boxes are bends.
        paths: For each wire the vertices it goes through, one a layer.
    """

    rows: list[list[int]]
    paths: list[tuple[int, ...]]


def components(count: int, wires: Sequence[Wire]) -> list[list[int]]:
    """Return the numbers of the boxes that hang together, each part in order."""
    parent = list(range(count))

    def root(vertex: int) -> int:
        while parent[vertex] != vertex:
            parent[vertex] = parent[parent[vertex]]
            vertex = parent[vertex]
        return vertex

    for wire in wires:
        first, second = sorted((root(wire.source), root(wire.target)))
        parent[second] = first
    parts: dict[int, list[int]] = {}
    for vertex in range(count):
        parts.setdefault(root(vertex), []).append(vertex)
    return list(parts.values())


def ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each vertex: minimise the sum of lengths with each edge at least one layer long.

    Args:
        count: Number of vertices, which hang together or lie alone.
        edges: From which vertex to which; without a cycle.
    """
    edges = list(dict.fromkeys(edges))
    if not edges:
        return [0] * count
    pairs = np.array(edges)
    arriving, leaving = (np.bincount(pairs[:, side], minlength=count) for side in (1, 0))
    # Where a branch has slack, it goes to where the branch begins or ends: a chain stays together.
    weight = np.where(arriving[pairs[:, 1]] > 1, 0.8, np.where(leaving[pairs[:, 0]] > 1, 0.9, 1.0))
    row = np.arange(len(edges))
    ones = np.ones(len(edges))
    # source - target <= -1
    matrix = coo_array((np.r_[ones, -ones], (np.r_[row, row], np.r_[pairs[:, 0], pairs[:, 1]])), (len(edges), count))
    cost = np.bincount(pairs[:, 1], weight, count) - np.bincount(pairs[:, 0], weight, count)
    solution = linprog(cost, matrix.tocsr(), -ones, bounds=(0, count), method="highs-ds")
    if solution.x is None:
        raise CompilerError("the graph has a cycle, so it has no layers", where="drawing")
    found = np.rint(solution.x).astype(int)
    return (found - found.min()).tolist()


def joint_ranks(first: Scene, second: Scene) -> tuple[list[int], list[int]] | None:
    """Return layers for two drawings such that what is in both stands at the same height.

    None where that cannot be, because one of them has in front what the other has behind.
    """
    number = {box.key: i for i, box in enumerate({box.key: box for box in (*first.boxes, *second.boxes)}.values())}
    edges = [
        (number[scene.boxes[wire.source].key], number[scene.boxes[wire.target].key])
        for scene in (first, second)
        for wire in scene.wires
    ]
    rank = [0] * len(number)
    for members in components(len(number), [Wire(source, 0, target, 0) for source, target in edges]):
        local = {member: i for i, member in enumerate(members)}
        try:
            found = ranks(len(members), [(local[a], local[b]) for a, b in edges if a in local])
        except CompilerError:
            return None
        for member, place in zip(members, found, strict=True):
            rank[member] = place
    return [rank[number[box.key]] for box in first.boxes], [rank[number[box.key]] for box in second.boxes]


def layered(count: int, wires: Sequence[Wire], rank: Sequence[int]) -> Layered:
    """Return the vertices in layers, ordered such that few wires cross.

    Raises:
        CompilerError: So many values pass so many layers that nobody could follow the lines.
    """
    rows: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    for vertex in range(count):
        rows[rank[vertex]].append(vertex)
    paths = _paths(count, wires, rank, rows)
    segments = dict.fromkeys(pair for path in paths for pair in pairwise(path))
    above: dict[int, list[int]] = {vertex: [] for row in rows for vertex in row}
    below: dict[int, list[int]] = {vertex: [] for row in rows for vertex in row}
    for upper, lower in segments:
        below[upper].append(lower)
        above[lower].append(upper)
    return Layered(_ordered(_first_order(rows, below, count), above, below), paths)


def _paths(count: int, wires: Sequence[Wire], rank: Sequence[int], rows: list[list[int]]) -> list[tuple[int, ...]]:
    trunks: dict[tuple[int, int], list[int]] = {}
    paths = []
    most = count + _MOST_BENDS
    for wire in wires:
        bends = trunks.setdefault((wire.source, wire.port), [])
        start, needed = rank[wire.source] + 1, rank[wire.target] - rank[wire.source] - 1
        while len(bends) < needed:
            rows[start + len(bends)].append(count)
            bends.append(count)
            count += 1
            if count > most:
                raise _tangled()
        paths.append((wire.source, *bends[:needed], wire.target))
    return paths


def _tangled() -> CompilerError:
    return CompilerError(
        "too many values pass by other nodes to be drawn as lines that an eye can follow",
        where="drawing",
        todo="draw a part of the graph: draw(graph, part=[names of nodes])",
    )


def _first_order(rows: list[list[int]], below: dict[int, list[int]], boxes: int) -> list[list[int]]:
    """Return the layers in the order in which a walk, one branch after the other, meets the vertices.

    The branch through the most boxes comes first: the trunk stands left, what passes it by right.
    """
    length = {vertex: 0 for row in rows for vertex in row}
    for vertex in (vertex for row in reversed(rows) for vertex in row):
        length[vertex] = max((length[other] for other in below[vertex]), default=0) + (vertex < boxes)
    met: dict[int, int] = {}
    for row in rows:
        for start in row:
            pending = [start]
            while pending:
                vertex = pending.pop()
                if vertex not in met:
                    met[vertex] = len(met)
                    following = sorted(below[vertex], key=lambda other: -length[other])
                    pending += [other for other in reversed(following) if other not in met]
    return [sorted(row, key=met.__getitem__) for row in rows]


def _ordered(rows: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]]) -> list[list[int]]:
    best, fewest = rows, _crossings(rows, below)
    rows = [list(row) for row in rows]
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        downwards = sweep % 2 == 0
        order = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
        for level in order:
            beside = rows[level - 1] if downwards else rows[level + 1]
            rows[level] = _by_mean(rows[level], beside, above if downwards else below)
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _by_mean(row: list[int], beside: list[int], neighbours: dict[int, list[int]]) -> list[int]:
    """Return a layer sorted by the mean place of the neighbours; a vertex without any keeps its place."""
    place = {vertex: i for i, vertex in enumerate(beside)}
    stretch = max(len(beside) - 1, 1) / max(len(row) - 1, 1)
    mean = {
        vertex: sum(place[other] for other in neighbours[vertex]) / len(neighbours[vertex])
        if neighbours[vertex]
        else i * stretch
        for i, vertex in enumerate(row)
    }
    return sorted(row, key=mean.__getitem__)


def _crossings(rows: list[list[int]], below: dict[int, list[int]]) -> int:
    """Return how many pairs of wires cross between neighbouring layers."""
    total = 0
    for upper, lower in pairwise(rows):
        place = {vertex: i for i, vertex in enumerate(lower)}
        seen: list[int] = []
        for vertex in upper:
            ends = sorted(place[other] for other in below[vertex])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
