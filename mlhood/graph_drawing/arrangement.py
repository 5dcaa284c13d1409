"""One part of a drawing in layers: the room of each vertex, columns, places from left to right, heights of layers."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.graph_drawing.columns import cuts
from mlhood.graph_drawing.layers import Layered
from mlhood.graph_drawing.node_sizes import BEND, frame, slots
from mlhood.graph_drawing.scene import Box, Wire
from mlhood.graph_drawing.x_coordinates import Piece, abscissae


@dataclass(frozen=True)
class Level:
    """Heights of one layer: room for arrows, the boxes, labels below, and the gap to the next layer."""

    head: float
    body: float
    foot: float
    gap: float

    @property
    def band(self) -> float:
        """Height that belongs to the boxes of the layer."""
        return self.head + self.body + self.foot

    def joined(self, other: Level) -> Level:
        """Return heights that hold both layers."""
        return Level(*(max(pair) for pair in zip(self._numbers, other._numbers, strict=True)))

    @property
    def _numbers(self) -> tuple[float, ...]:
        return self.head, self.body, self.foot, self.gap


class Arrangement:
    """One part in layers, with places from left to right.

    Args:
        boxes: The boxes.
        wires: The wires, by numbers of these boxes.
        layers: Their layers.
        columns: Into how many columns they are cut.
    """

    def __init__(self, boxes: list[Box], wires: list[Wire], layers: Layered, columns: int) -> None:
        self.boxes = boxes
        self.wires = wires
        self.rows = layers.rows
        self.paths = layers.paths
        self.row_of = {vertex: i for i, row in enumerate(self.rows) for vertex in row}
        self.frames = {vertex: frame(boxes[vertex]) if vertex < len(boxes) else BEND for vertex in self.row_of}
        self.main = self._main_wires()
        self.trunk = self._trunk()
        self.slots = self._slots()
        heads = self._columns(columns)
        self.columns = [range(*pair) for pair in zip([0, *heads], [*heads, len(self.rows)], strict=True)]
        self.x: dict[int, float] = {}
        for column in self.columns:
            self.x |= abscissae([self.rows[i] for i in column], self.frames, self._pieces(column))
        self.levels = [self._level(i, side) for i, side in enumerate(self._sideways())]

    def _slots(self) -> list[float]:
        """Return where each wire arrives, from the middle of its box: in the order in which the wires come."""
        rank = {vertex: i for row in self.rows for i, vertex in enumerate(row)}
        arriving: dict[int, list[int]] = {}
        for number, wire in enumerate(self.wires):
            arriving.setdefault(wire.target, []).append(number)
        places = [0.0] * len(self.wires)
        for target, numbers in arriving.items():
            numbers.sort(key=lambda number: (rank[self.paths[number][-2]], self.wires[number].port))
            main = next(i for i, number in enumerate(numbers) if number in self.main)
            for number, place in zip(numbers, slots(len(numbers), main, self.frames[target].step), strict=True):
                places[number] = place
        return places

    def _main_wires(self) -> set[int]:
        """Return for each box the wire that arrives after the longest way: where it should stand below."""
        depth = [0] * len(self.boxes)
        main: dict[int, int] = {}
        for number, wire in sorted(enumerate(self.wires), key=lambda pair: pair[1].target):
            if wire.target not in main or depth[wire.source] >= depth[wire.target]:
                main[wire.target] = number
                depth[wire.target] = depth[wire.source] + 1
        return set(main.values())

    def _trunk(self) -> set[int]:
        """Return for each box the wire that begins the longest way: what should stand below it."""
        length = [0] * len(self.boxes)
        trunk: dict[int, int] = {}
        for number, wire in sorted(enumerate(self.wires), key=lambda pair: -pair[1].source):
            if wire.source not in trunk or length[wire.target] >= length[wire.source]:
                trunk[wire.source] = number
                length[wire.source] = length[wire.target] + 1
        return set(trunk.values())

    def _columns(self, count: int) -> list[int]:
        if count <= 1:
            return []
        heights = [max(one.head + one.body + one.foot for one in map(self.frames.get, row) if one) for row in self.rows]
        return cuts([height + 24.0 for height in heights], [len(values) for values in self.crossing()], count)

    def crossing(self) -> list[dict[tuple[int, int], None]]:
        """Return which values go from each layer to the next."""
        values: list[dict[tuple[int, int], None]] = [{} for _ in self.rows]
        for wire, path in zip(self.wires, self.paths, strict=True):
            for vertex in path[:-1]:
                values[self.row_of[vertex]][wire.source, wire.port] = None
        return values

    def ends(self, number: int, step: int) -> Piece:
        """Return one piece of a wire: its vertices, and how far from their middles it leaves and arrives."""
        wire, path = self.wires[number], self.paths[number]
        leaves = self.frames[wire.source].stems[wire.port] if step == 0 else 0.0
        arrives = self.slots[number] if step == len(path) - 2 else 0.0
        return path[step], leaves, path[step + 1], arrives

    def _pieces(self, column: range) -> dict[Piece, float]:
        pieces: dict[Piece, float] = {}
        for number, path in enumerate(self.paths):
            for step in range(len(path) - 1):
                if self.row_of[path[step]] in column and self.row_of[path[step + 1]] in column:
                    piece = self.ends(number, step)
                    pieces[piece] = max(pieces.get(piece, 0.0), self._weight(number, piece))
        return pieces

    def _weight(self, number: int, piece: Piece) -> float:
        bends = sum(vertex >= len(self.boxes) for vertex in (piece[0], piece[2]))
        if bends:
            return (2.0, 8.0)[bends - 1]
        return 1.0 + 2.0 * (number in self.main) + 3.0 * (number in self.trunk)

    def _level(self, row: int, sideways: float) -> Level:
        frames = [self.frames[vertex] for vertex in self.rows[row]]
        heights = (max((getattr(one, part) for one in frames), default=0.0) for part in ("head", "body", "foot"))
        return Level(*heights, gap=12.0 + (8.0 if sideways > 1 else 0.0) + min(62.0, 0.11 * sideways))

    def _sideways(self) -> list[float]:
        """Return for each layer how far wires go to the side below it: the further, the higher the gap."""
        far = [0.0] * len(self.rows)
        for number, path in enumerate(self.paths):
            for step in range(len(path) - 1):
                upper, leaves, lower, arrives = self.ends(number, step)
                row = self.row_of[upper]
                if not any(column.start == row + 1 for column in self.columns):
                    far[row] = max(far[row], abs(self.x[upper] + leaves - self.x[lower] - arrives))
        return far
