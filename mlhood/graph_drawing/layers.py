"""Layers of a drawing, and the order within each (Sugiyama et al. 1981; Gansner et al. 1993, sections 2 and 3).

1. Each vertex is assigned a rank below all that it reads, so that the edges are as short as possible in total: a
   linear program whose solution is integral.
2. A value whose wire passes through layers gets a bend in each, one for all its users.
3. Sweeps down and up sort each layer by the mean position of the neighbours; the order with the fewest crossings wins.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csgraph

from mlhood.errors import DrawingError
from mlhood.graph_drawing.scene import Scene, Wire

_SWEEPS = 16
_MAX_BENDS = 4000


@dataclass
class Layering:
    """Vertices in layers.

    Args:
        layers: The vertices of each layer from left to right; those from the number of boxes on are bends.
        paths: For each wire its vertices, one for each layer.
    """

    layers: list[list[int]]
    paths: list[tuple[int, ...]]


def connected_components(count: int, wires: Sequence[Wire]) -> list[list[int]]:
    """Return the indices of the boxes of each connected component, in ascending order."""
    ends = [wire.source for wire in wires], [wire.target for wire in wires]
    _, labels = csgraph.connected_components(coo_array((np.ones(len(wires)), ends), (count, count)), directed=False)
    return [np.flatnonzero(labels == label).tolist() for label in dict.fromkeys(labels)]


def assign_ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the rank of each vertex: minimise the total length of the edges, each at least one rank long.

    Args:
        count: Number of vertices of one connected component.
        edges: Pairs of source and target.

    Raises:
        DrawingError: The graph has a cycle.
    """
    edges = list(dict.fromkeys(edges))
    if not edges:
        return [0] * count
    pairs = np.array(edges)
    in_degree, out_degree = (np.bincount(pairs[:, side], minlength=count) for side in (1, 0))
    # Where a branch has slack, it is put where the branch begins or ends, so that a chain stays together.
    weight = np.where(in_degree[pairs[:, 1]] > 1, 0.8, np.where(out_degree[pairs[:, 0]] > 1, 0.9, 1.0))
    row = np.arange(len(edges))
    ones = np.ones(len(edges))
    # source - target <= -1
    matrix = coo_array((np.r_[ones, -ones], (np.r_[row, row], np.r_[pairs[:, 0], pairs[:, 1]])), (len(edges), count))
    cost = np.bincount(pairs[:, 1], weight, count) - np.bincount(pairs[:, 0], weight, count)
    solution = linprog(cost, matrix.tocsr(), -ones, bounds=(0, count), method="highs-ds")
    if solution.x is None:
        raise DrawingError("the graph has a cycle, so it has no layers")
    ranks = np.rint(solution.x).astype(int)
    return (ranks - ranks.min()).tolist()


def assign_joint_ranks(first: Scene, second: Scene) -> tuple[list[int], list[int]] | None:
    """Return ranks for two scenes such that boxes of both have the same; None if the scenes order them differently."""
    boxes = {box.key: box for box in (*first.boxes, *second.boxes)}
    index = {key: i for i, key in enumerate(boxes)}
    edges = [
        (index[scene.boxes[wire.source].key], index[scene.boxes[wire.target].key])
        for scene in (first, second)
        for wire in scene.wires
    ]
    ranks = [0] * len(index)
    for members in connected_components(len(index), [Wire(source, 0, target, 0) for source, target in edges]):
        local = {member: i for i, member in enumerate(members)}
        try:
            local_ranks = assign_ranks(len(members), [(local[a], local[b]) for a, b in edges if a in local])
        except DrawingError:
            return None
        for member, rank in zip(members, local_ranks, strict=True):
            ranks[member] = rank
    return [ranks[index[box.key]] for box in first.boxes], [ranks[index[box.key]] for box in second.boxes]


def arrange_layers(count: int, wires: Sequence[Wire], ranks: Sequence[int]) -> Layering:
    """Return the vertices in layers, ordered such that few wires cross.

    Raises:
        DrawingError: So many values pass through so many layers that the lines cannot be followed.
    """
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for vertex in range(count):
        layers[ranks[vertex]].append(vertex)
    paths = _paths(count, wires, ranks, layers)
    segments = dict.fromkeys(pair for path in paths for pair in pairwise(path))
    above, below = ({vertex: list[int]() for layer in layers for vertex in layer} for _ in range(2))
    for upper, lower in segments:
        below[upper].append(lower)
        above[lower].append(upper)
    return Layering(_reduce_crossings(_initial_order(layers, below, count), above, below), paths)


def _paths(count: int, wires: Sequence[Wire], ranks: Sequence[int], layers: list[list[int]]) -> list[tuple[int, ...]]:
    """Return the vertices of each wire; bends are added to the layers."""
    bends_of: dict[tuple[int, int], list[int]] = {}
    paths = []
    limit = count + _MAX_BENDS
    for wire in wires:
        bends = bends_of.setdefault((wire.source, wire.port), [])
        start, needed = ranks[wire.source] + 1, ranks[wire.target] - ranks[wire.source] - 1
        while len(bends) < needed:
            layers[start + len(bends)].append(count)
            bends.append(count)
            count += 1
            if count > limit:
                raise DrawingError(
                    "too many values pass by other nodes to be drawn as lines that can be followed",
                    todo="draw a part of the graph: draw(graph, part=[names of nodes])",
                )
        paths.append((wire.source, *bends[:needed], wire.target))
    return paths


def _initial_order(layers: list[list[int]], below: dict[int, list[int]], boxes: int) -> list[list[int]]:
    """Return the layers in the order in which a depth-first search visits the vertices.

    The branch through the most boxes comes first: the main path is on the left, what bypasses it on the right.
    """
    length = {vertex: 0 for layer in layers for vertex in layer}
    for vertex in (vertex for layer in reversed(layers) for vertex in layer):
        length[vertex] = max((length[other] for other in below[vertex]), default=0) + (vertex < boxes)
    visited: dict[int, int] = {}
    for layer in layers:
        for start in layer:
            pending = [start]
            while pending:
                vertex = pending.pop()
                if vertex not in visited:
                    visited[vertex] = len(visited)
                    following = sorted(below[vertex], key=lambda other: -length[other])
                    pending += [other for other in reversed(following) if other not in visited]
    return [sorted(layer, key=visited.__getitem__) for layer in layers]


def _reduce_crossings(
    layers: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]]
) -> list[list[int]]:
    best, fewest = layers, _count_crossings(layers, below)
    layers = [list(layer) for layer in layers]
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        downwards = sweep % 2 == 0
        order = range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1)
        for i in order:
            fixed = layers[i - 1] if downwards else layers[i + 1]
            layers[i] = _sort_by_mean(layers[i], fixed, above if downwards else below)
        crossings = _count_crossings(layers, below)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    return best


def _sort_by_mean(layer: list[int], fixed: list[int], neighbours: dict[int, list[int]]) -> list[int]:
    """Return a layer sorted by the mean position of the neighbours; a vertex without any keeps its position."""
    position = {vertex: i for i, vertex in enumerate(fixed)}
    stretch = max(len(fixed) - 1, 1) / max(len(layer) - 1, 1)
    mean = {
        vertex: sum(position[other] for other in neighbours[vertex]) / len(neighbours[vertex])
        if neighbours[vertex]
        else i * stretch
        for i, vertex in enumerate(layer)
    }
    return sorted(layer, key=mean.__getitem__)


def _count_crossings(layers: list[list[int]], below: dict[int, list[int]]) -> int:
    """Return how many pairs of wires cross between neighbouring layers."""
    total = 0
    for upper, lower in pairwise(layers):
        position = {vertex: i for i, vertex in enumerate(lower)}
        seen: list[int] = []
        for vertex in upper:
            ends = sorted(position[other] for other in below[vertex])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
