"""A connected component in layers: sizes of its vertices, x coordinates and heights of the layers.

The x coordinates are the solution of a linear program (Gansner et al. 1993, section 4): minimise the sum over wires of
weight · |x of one end - x of the other|, where neighbours in a layer keep their order and their distance. The
straighter a segment should be, the larger its weight: largest between two bends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from mlhood.graph_drawing.layers import Layering
from mlhood.graph_drawing.scene import Box, Wire
from mlhood.graph_drawing.shapes import BEND_SIZE, NodeSize, arrow_offsets, node_size

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


@dataclass(frozen=True)
class LayerHeights:
    """Heights of one layer: space for arrows, the boxes, labels below, and the gap to the next layer."""

    head: float = 0.0
    body: float = 0.0
    foot: float = 0.0
    gap: float = 0.0

    @property
    def band(self) -> float:
        """Height of the layer without the gap."""
        return self.head + self.body + self.foot

    def joined(self, other: LayerHeights) -> LayerHeights:
        """Return heights that are sufficient for both layers."""
        parts = ("head", "body", "foot", "gap")
        return LayerHeights(*(max(getattr(self, part), getattr(other, part)) for part in parts))


class Arrangement:
    """One component in layers, with x coordinates.

    Args:
        boxes: The boxes.
        wires: The wires, by indices into these boxes.
        layering: Their layers.
    """

    def __init__(self, boxes: list[Box], wires: list[Wire], layering: Layering) -> None:
        self.boxes = boxes
        self.wires = wires
        self.layers = layering.layers
        self.paths = layering.paths
        self.layer_of = {vertex: i for i, layer in enumerate(self.layers) for vertex in layer}
        self.sizes = dict.fromkeys(self.layer_of, BEND_SIZE) | dict(enumerate(map(node_size, boxes)))
        # the wire that ends the longest path to a box, or begins the longest from it: both boxes should share their x
        self.main = _last_of_longest_paths([(wire.source, wire.target) for wire in wires])
        self.trunk = _last_of_longest_paths([(-wire.target, -wire.source) for wire in wires])
        self.arrow_offsets = self._arrow_offsets()
        self.x = x_coordinates(self.layers, self.sizes, self._segments())
        self.heights = [self._heights(i, distance) for i, distance in enumerate(self._sideways_distances())]

    def _arrow_offsets(self) -> list[float]:
        """Return where each wire arrives, relative to the middle of its box: in the order in which the wires come."""
        position = {vertex: i for layer in self.layers for i, vertex in enumerate(layer)}
        arriving: dict[int, list[int]] = {}
        for i, wire in enumerate(self.wires):
            arriving.setdefault(wire.target, []).append(i)
        offsets = [0.0] * len(self.wires)
        for target, indices in arriving.items():
            indices.sort(key=lambda i: (position[self.paths[i][-2]], self.wires[i].port))
            main = next(rank for rank, i in enumerate(indices) if i in self.main)
            distance = self.sizes[target].arrow_distance
            for i, offset in zip(indices, arrow_offsets(len(indices), main, distance), strict=True):
                offsets[i] = offset
        return offsets

    def segment(self, wire: int, step: int) -> Segment:
        """Return one segment of a wire: its vertices, and at which offsets from their middles it leaves and arrives."""
        source, path = self.wires[wire], self.paths[wire]
        leaves = self.sizes[source.source].port_offsets[source.port] if step == 0 else 0.0
        arrives = self.arrow_offsets[wire] if step == len(path) - 2 else 0.0
        return path[step], leaves, path[step + 1], arrives

    def _segments(self) -> dict[Segment, float]:
        segments: dict[Segment, float] = {}
        for i, path in enumerate(self.paths):
            for step in range(len(path) - 1):
                segment = self.segment(i, step)
                segments[segment] = max(segments.get(segment, 0.0), self._weight(i, segment))
        return segments

    def _weight(self, wire: int, segment: Segment) -> float:
        bends = sum(vertex >= len(self.boxes) for vertex in (segment[0], segment[2]))
        if bends:
            return (2.0, 8.0)[bends - 1]
        return 1.0 + 2.0 * (wire in self.main) + 3.0 * (wire in self.trunk)

    def _heights(self, layer: int, sideways: float) -> LayerHeights:
        sizes = [self.sizes[vertex] for vertex in self.layers[layer]]
        heights = (max((getattr(size, part) for size in sizes), default=0.0) for part in ("head", "body", "foot"))
        return LayerHeights(*heights, gap=12.0 + (8.0 if sideways > 1 else 0.0) + min(62.0, 0.11 * sideways))

    def _sideways_distances(self) -> list[float]:
        """Return how far wires run sideways below each layer: the further, the larger the gap."""
        distances = [0.0] * len(self.layers)
        for i, path in enumerate(self.paths):
            for step in range(len(path) - 1):
                upper, leaves, lower, arrives = self.segment(i, step)
                layer = self.layer_of[upper]
                distances[layer] = max(distances[layer], abs(self.x[upper] + leaves - self.x[lower] - arrives))
        return distances


def _last_of_longest_paths(edges: Sequence[tuple[int, int]]) -> set[int]:
    """Return for each vertex the index of the edge that ends the longest path to it; sources are less than targets."""
    depth: Counter[int] = Counter()
    last: dict[int, int] = {}
    for i, (source, target) in sorted(enumerate(edges), key=lambda pair: pair[1][1]):
        if target not in last or depth[source] >= depth[target]:
            last[target] = i
            depth[target] = depth[source] + 1
    return set(last.values())
