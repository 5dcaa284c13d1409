"""Places for boxes, labels and wires: layers from top to bottom, cut into columns where the drawing is long.

All lengths are pixels at 96 to the inch, and y grows downwards. In a layer, boxes stand on a common middle line; above
them is room for arrows, below for the labels of what leaves. Wires run straight down beside and between the boxes of a
layer and bend only in the gaps between layers, so that none runs through a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlhood.compiler.hir.drawing.abscissae import Piece, abscissae
from mlhood.compiler.hir.drawing.columns import column_count, cuts
from mlhood.compiler.hir.drawing.frames import BEND, LABEL_GAP, frame, slots, word_line
from mlhood.compiler.hir.drawing.layers import Layered, components, layered, ranks
from mlhood.compiler.hir.drawing.lettering import Line
from mlhood.compiler.hir.drawing.scene import Box, Scene, Wire

WIDEST = 1040.0  # of which a page of GitHub shows about 900, so that it makes the letters a little smaller
BETWEEN = 34.0  # from one column or part to the next
_LANE = 10.0
_CLEAR = 12.0


@dataclass(frozen=True)
class PlacedBox:
    """A box and the rectangle that it fills."""

    box: Box
    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class PlacedText:
    """Words beside a wire: the left end and the top of the first line."""

    lines: tuple[Line, ...]
    left: float
    top: float


@dataclass(frozen=True)
class Route:
    """A wire's way: straight where two points differ in x or in y only, and in an S where in both.

    Args:
        points: From the box that makes the value to the one that reads it.
        kind: As in `Port`.
        wire: Which wire it is; None for the stump of a value that leaves a box and that nothing reads.
    """

    points: tuple[tuple[float, float], ...]
    kind: str
    wire: Wire | None


@dataclass
class Placement:
    """Everything with its place, in a picture of this width and height."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[PlacedBox] = field(default_factory=list)
    texts: list[PlacedText] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)

    def add(self, other: Placement, right: float, down: float) -> None:
        """Put another placement into this one."""
        self.boxes += [
            PlacedBox(one.box, one.left + right, one.top + down, one.width, one.height) for one in other.boxes
        ]
        self.texts += [PlacedText(one.lines, one.left + right, one.top + down) for one in other.texts]
        self.routes += [
            Route(tuple((x + right, y + down) for x, y in one.points), one.kind, one.wire) for one in other.routes
        ]
        self.width = max(self.width, right + other.width)
        self.height = max(self.height, down + other.height)


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


def place(scene: Scene, columns: int | None = None) -> Placement:
    """Give everything its place: parts that hang together one beside the other, each in layers.

    Args:
        scene: What to draw.
        columns: Into how many columns a part is cut; chosen by its height and width if left out.

    Raises:
        CompilerError: Too many values pass by other nodes to be drawn.
    """
    whole = Placement()
    right = top = 0.0
    for members in components(len(scene.boxes), scene.wires):
        part = _part(scene, members, columns)
        if right and right + part.width > WIDEST:
            right, top = 0.0, whole.height + BETWEEN
        whole.add(part, right, top)
        right += part.width + BETWEEN
    return whole


def _part(scene: Scene, members: list[int], columns: int | None) -> Placement:
    local = {member: i for i, member in enumerate(members)}
    boxes = [scene.boxes[member] for member in members]
    wires = [
        Wire(local[wire.source], wire.port, local[wire.target], wire.slot)
        for wire in scene.wires
        if wire.source in local
    ]
    rank = ranks(len(boxes), [(wire.source, wire.target) for wire in wires])
    layers = layered(len(boxes), wires, rank)
    if columns is not None:
        return Arrangement(boxes, wires, layers, columns).placed()
    height = sum(level.band + level.gap for level in Arrangement(boxes, wires, layers, 1).levels)
    for count in range(column_count(height), 1, -1):
        placement = Arrangement(boxes, wires, layers, count).placed()
        if placement.width <= WIDEST:
            return placement
    return Arrangement(boxes, wires, layers, 1).placed()


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
        self.levels = [self._level(i) for i in range(len(self.rows))]

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
        return cuts([height + 24.0 for height in heights], [len(values) for values in self._crossing()], count)

    def _crossing(self) -> list[dict[tuple[int, int], None]]:
        """Return which values go from each layer to the next."""
        values: list[dict[tuple[int, int], None]] = [{} for _ in self.rows]
        for wire, path in zip(self.wires, self.paths, strict=True):
            for vertex in path[:-1]:
                values[self.row_of[vertex]][wire.source, wire.port] = None
        return values

    def _ends(self, number: int, step: int) -> Piece:
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
                    piece = self._ends(number, step)
                    pieces[piece] = max(pieces.get(piece, 0.0), self._weight(number, piece))
        return pieces

    def _weight(self, number: int, piece: Piece) -> float:
        bends = sum(vertex >= len(self.boxes) for vertex in (piece[0], piece[2]))
        if bends:
            return (2.0, 8.0)[bends - 1]
        return 1.0 + 2.0 * (number in self.main) + 3.0 * (number in self.trunk)

    def _level(self, row: int) -> Level:
        frames = [self.frames[vertex] for vertex in self.rows[row]]
        heights = (max(getattr(one, part) for one in frames) for part in ("head", "body", "foot"))
        return Level(*heights, gap=16.0)

    def widen_gaps(self) -> None:
        """Make gaps higher in which wires go far to the side."""
        far = [0.0] * len(self.rows)
        for number, path in enumerate(self.paths):
            for step in range(len(path) - 1):
                upper, leaves, lower, arrives = self._ends(number, step)
                row = self.row_of[upper]
                if not any(column.start == row + 1 for column in self.columns):
                    far[row] = max(far[row], abs(self.x[upper] + leaves - self.x[lower] - arrives))
        self.levels = [
            Level(level.head, level.body, level.foot, 12.0 + min(70.0, (8.0 if side > 1 else 0.0) + 0.11 * side))
            for level, side in zip(self.levels, far, strict=True)
        ]

    def placed(self) -> Placement:
        """Return everything with its place."""
        self.widen_gaps()
        return self.at(self.levels)

    def at(self, levels: Sequence[Level]) -> Placement:
        """Return everything with its place, the layers as high as said."""
        return _Sheet(self, levels).placement


class _Sheet:
    """Turns an arrangement into places."""

    def __init__(self, plan: Arrangement, levels: Sequence[Level]) -> None:
        self.plan = plan
        self.levels = levels
        crossing = plan._crossing()
        self.lanes = [list(crossing[column.stop - 1]) for column in plan.columns[:-1]]
        self.x = dict(plan.x)
        self.top: dict[int, float] = {}
        self.edges: list[float] = []  # right edge of each column
        self.bottoms: list[float] = []  # lower edge of each column
        self.placement = Placement()
        self._place_columns()
        self._sort_lanes()
        for vertex, box in enumerate(plan.boxes):
            self._box(vertex, box)
        self._routes()

    def _place_columns(self) -> None:
        header = max((_CLEAR + _LANE * len(lanes) for lanes in self.lanes), default=0.0)
        left = 0.0
        for number, column in enumerate(self.plan.columns):
            vertices = [vertex for row in column for vertex in self.plan.rows[row]]
            start = min(self.plan.x[vertex] - self.plan.frames[vertex].left for vertex in vertices)
            end = max(self.plan.x[vertex] + self.plan.frames[vertex].right for vertex in vertices)
            self.x |= {vertex: self.plan.x[vertex] - start + left for vertex in vertices}
            y = header
            for row in column:
                self.top[row] = y
                y += self.levels[row].band + self.levels[row].gap
            bottom = y - self.levels[column.stop - 1].gap
            self.edges.append(left + end - start)
            self.bottoms.append(bottom)
            lanes = len(self.lanes[number]) if number < len(self.lanes) else 0
            self.placement.width = self.edges[-1]
            self.placement.height = max(self.placement.height, bottom + (_CLEAR + _LANE * lanes if lanes else 0.0))
            left = self.edges[-1] + 2 * _CLEAR + _LANE * lanes

    def _sort_lanes(self) -> None:
        """Let the value that is furthest right take the inmost lane, so that the lanes of a cut do not cross."""
        for column, lanes in zip(self.plan.columns, self.lanes, strict=False):
            at = {}
            for number, path in enumerate(self.plan.paths):
                wire = self.plan.wires[number]
                for step, vertex in enumerate(path[:-1]):
                    if self.plan.row_of[vertex] == column.stop - 1:
                        at[wire.source, wire.port] = self.x[vertex] + self.plan._ends(number, step)[1]
            lanes.sort(key=lambda value: -at[value])

    def _box(self, vertex: int, box: Box) -> None:
        one, level = self.plan.frames[vertex], self.levels[self.plan.row_of[vertex]]
        top = self.top[self.plan.row_of[vertex]] + level.head + (level.body - one.body) / 2
        self.placement.boxes.append(PlacedBox(box, self.x[vertex] - one.width / 2, top, one.width, one.body))
        end = self.top[self.plan.row_of[vertex]] + level.band
        for stem, port in zip(one.stems, box.ports, strict=True):
            x = self.x[vertex] + stem
            self.placement.texts.append(PlacedText(port.label, x + LABEL_GAP, top + one.body + 3))
            self.placement.routes.append(Route(((x, top + one.body), (x, end)), port.kind, None))

    def _routes(self) -> None:
        for number, wire in enumerate(self.plan.wires):
            points: list[tuple[float, float]] = []
            for step in range(len(self.plan.paths[number]) - 1):
                points += self._piece(number, step)
            target = self._placed(wire.target)
            points.append((points[-1][0], target.top))
            source = self._placed(wire.source)
            points.insert(0, (points[0][0], source.top + source.height))
            kind = source.box.ports[wire.port].kind
            self.placement.routes.append(Route(tuple(points), kind, wire))
            self._word(wire, points[-1])

    def _placed(self, vertex: int) -> PlacedBox:
        return self.placement.boxes[vertex]

    def _piece(self, number: int, step: int) -> list[tuple[float, float]]:
        upper, leaves, lower, arrives = self.plan._ends(number, step)
        row = self.plan.row_of[upper]
        start = (self.x[upper] + leaves, self.top[row] + self.levels[row].band)
        end = (self.x[lower] + arrives, self.top[row + 1])
        cut = next((i for i, column in enumerate(self.plan.columns[:-1]) if column.stop == row + 1), None)
        if cut is None:
            return [start, end]
        wire = self.plan.wires[number]
        lane = self.lanes[cut].index((wire.source, wire.port))
        below = self.bottoms[cut] + _CLEAR + _LANE * lane
        beside = self.edges[cut] + _CLEAR + _LANE * lane
        above = end[1] - _CLEAR - _LANE * (len(self.lanes[cut]) - 1 - lane)
        return [start, (start[0], below), (beside, below), (beside, above), (end[0], above), end]

    def _word(self, wire: Wire, tip: tuple[float, float]) -> None:
        word = self.plan.boxes[wire.target].slots[wire.slot]
        if word:
            line = word_line(word)
            self.placement.texts.append(PlacedText((line,), tip[0] + LABEL_GAP, tip[1] - line.height - 2))
