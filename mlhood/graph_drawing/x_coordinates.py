"""Horizontal positions of the vertices in each layer (Gansner et al. 1993, section 4, as a linear program).

Minimise the sum over wires of weight · |x of one end - x of the other|, where neighbours in a layer keep their order
and their distance. The straighter a segment should be, the larger its weight: largest between two bends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from mlhood.graph_drawing.node_sizes import NodeSize

_DISTANCE = 16.0  # between neighbours in a layer
Segment = tuple[int, float, int, float]  # upper vertex, offset where the wire leaves, lower vertex, where it arrives


def x_coordinates(
    layers: Sequence[Sequence[int]], sizes: Mapping[int, NodeSize], segments: Mapping[Segment, float]
) -> dict[int, float]:
    """Return the x of the middle of each vertex.

    Args:
        layers: Vertices of each layer from left to right.
        sizes: Size of each vertex.
        segments: Weight of each segment of a wire between neighbouring layers.
    """
    vertices = [vertex for layer in layers for vertex in layer]
    column_of = {vertex: i for i, vertex in enumerate(vertices)}
    entries: list[tuple[int, int, float]] = []
    bounds: list[float] = []
    for layer in layers:
        for first, second in pairwise(layer):
            entries += [(len(bounds), column_of[first], 1.0), (len(bounds), column_of[second], -1.0)]
            bounds.append(-(sizes[first].right + _DISTANCE + sizes[second].left))
    for i, (upper, leaves, lower, arrives) in enumerate(segments):
        for sign in (1.0, -1.0):  # the length is at least the difference, whichever end is further right
            row, length = len(bounds), len(vertices) + i
            entries += [(row, column_of[upper], sign), (row, column_of[lower], -sign), (row, length, -1.0)]
            bounds.append(sign * (arrives - leaves))
    if not bounds:
        return dict.fromkeys(vertices, 0.0)
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), (len(bounds), len(vertices) + len(segments))).tocsr()
    cost = np.r_[np.zeros(len(vertices)), list(segments.values())]
    solution = linprog(cost, matrix, bounds, bounds=(0, None), method="highs-ds")
    return {vertex: round(float(x), 2) for vertex, x in zip(vertices, solution.x, strict=False)}
