"""Where the vertices of each layer stand from left to right (Gansner et al. 1993, section 4, as a linear program).

Minimise the sum over wires of weight |x of one end - x of the other|, where neighbours in a layer keep their order and
their distance. The straighter a wire's piece should be, the more it weighs: most between two bends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from mlhood.graph_drawing.node_sizes import Frame

APART = 16.0
Piece = tuple[int, float, int, float]  # upper vertex, where the wire leaves it, lower vertex, where it arrives


def abscissae(
    rows: Sequence[Sequence[int]], frames: Mapping[int, Frame], pieces: Mapping[Piece, float]
) -> dict[int, float]:
    """Return the x of the middle of each vertex.

    Args:
        rows: Vertices of each layer from left to right.
        frames: Room of each vertex.
        pieces: Weight of each piece of wire between neighbouring layers.
    """
    vertices = [vertex for row in rows for vertex in row]
    number = {vertex: i for i, vertex in enumerate(vertices)}
    entries: list[tuple[int, int, float]] = []
    limits: list[float] = []
    for row in rows:
        for first, second in pairwise(row):
            entries += [(len(limits), number[first], 1.0), (len(limits), number[second], -1.0)]
            limits.append(-(frames[first].right + APART + frames[second].left))
    for i, (upper, leaves, lower, arrives) in enumerate(pieces):
        for sign in (1.0, -1.0):  # the length is at least the difference, whichever is further right
            line, length = len(limits), len(vertices) + i
            entries += [(line, number[upper], sign), (line, number[lower], -sign), (line, length, -1.0)]
            limits.append(sign * (arrives - leaves))
    if not limits:
        return dict.fromkeys(vertices, 0.0)
    line, column, value = zip(*entries, strict=True)
    matrix = coo_array((value, (line, column)), (len(limits), len(vertices) + len(pieces))).tocsr()
    cost = np.r_[np.zeros(len(vertices)), list(pieces.values())]
    solution = linprog(cost, matrix, limits, bounds=(0, None), method="highs-ds")
    return {vertex: round(float(x), 2) for vertex, x in zip(vertices, solution.x, strict=False)}
