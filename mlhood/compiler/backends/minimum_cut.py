"""The minimum cut of a flow network by Dinic's algorithm.

Y. Dinitz, Algorithm for solution of a problem of maximum flow in networks with power estimation, 1970. SciPy has one,
too, but loading it takes more time and memory than choosing the layouts of a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

Edges = Mapping[tuple[int, int], int]
Residual = dict[int, dict[int, int]]


def source_side(edges: Edges, source: int, sink: int) -> set[int]:
    """Return the smallest set of vertices with the source that a minimum cut separates from the sink.

    Args:
        edges: The capacity of each edge (from, to), 0 or more.
        source: A vertex.
        sink: Another one.
    """
    residual: Residual = {source: {}, sink: {}}
    for (start, end), capacity in edges.items():
        forward, backward = residual.setdefault(start, {}), residual.setdefault(end, {})
        forward[end] = forward.get(end, 0) + capacity
        backward.setdefault(start, 0)
    while sink in (levels := _levels(residual, source)):
        _saturate(residual, levels, source, sink)
    return set(levels)


def _levels(residual: Residual, source: int) -> dict[int, int]:
    """Return the distance from the source of each vertex that can be reached by edges that are not saturated."""
    levels, reached = {source: 0}, [source]
    for vertex in reached:
        for end, capacity in residual[vertex].items():
            if capacity and end not in levels:
                levels[end] = levels[vertex] + 1
                reached.append(end)
    return levels


def _saturate(residual: Residual, levels: dict[int, int], source: int, sink: int) -> None:
    """Push flow along shortest paths until each of them has a saturated edge."""
    ends = {v: [end for end in residual[v] if levels.get(end) == level + 1] for v, level in levels.items()}
    path = [source]
    while path:
        vertex = path[-1]
        if vertex == sink:
            flow = min(residual[a][b] for a, b in pairwise(path))
            for a, b in pairwise(path):
                residual[a][b] -= flow
                residual[b][a] += flow
            saturated = next(i for i, (a, b) in enumerate(pairwise(path)) if not residual[a][b])
            del path[saturated + 1 :]
        elif not ends[vertex]:
            path.pop()
            if path:
                ends[path[-1]].pop()
        elif residual[vertex][ends[vertex][-1]]:
            path.append(ends[vertex][-1])
        else:
            ends[vertex].pop()
