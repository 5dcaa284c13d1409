"""What a PDF shows of a graph: where its words are, what is painted, and whether that is the drawing of the graph.

A file can contain the words of a graph without a drawing of it. What a reader sees is one box per node with the name of
its operator, in the order of the graph, and lines from each box to the next.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.rpc.limited import IsolatedCallError, run_isolated

MAX_ITEMS = 20_000  # words or shapes; Netron's drawing of ResNet-50 has a tenth of these
MAX_PART_OF_PAGE = 0.3  # what is larger is a background
CONNECTED = 0.8  # part of the neighbours on a page that a line has to join
NODE_LIMIT = 1000
# where the nodes may follow each other: which bounds become left, top, right and bottom, and their sign
TURNS = {
    "down": ([0, 1, 2, 3], 1),
    "right": ([1, 0, 3, 2], 1),
    "up": ([2, 3, 0, 1], -1),
    "left": ([3, 2, 1, 0], -1),
}


@dataclass(frozen=True)
class PdfDrawing:
    """Words and painted shapes of a PDF, in points from the upper left corner of the page, after its rotation.

    Attributes:
        words: Texts, one for each row of `places`.
        places: Page, x and y of the start of each word [words, 3].
        shapes: Page and bounding box (left, top, right, bottom) of each painted path [shapes, 5].
        sizes: Width and height of each page [pages, 2].
    """

    words: tuple[str, ...]
    places: np.ndarray
    shapes: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True)
class _NodeBox:
    """A drawn node: its operator, its page and its bounding box (left, top, right, bottom)."""

    operator: str
    page: int
    bounds: np.ndarray


def check_drawing(pdf: Path, model: Path, *texts: str, what: str, hint: str) -> None:
    """Check that a PDF is a drawing of the graph in an ONNX file.

    Args:
        pdf: The PDF.
        model: The ONNX file.
        texts: What it shows besides.
        what: The PDF's name in messages.
        hint: What to do otherwise.

    Raises:
        CheckFailed: It is not, or one of the files cannot be read.
    """
    try:
        answer = run_isolated("mlhood.grading.projects.p1.drawing:_read", pdf.read_bytes(), model.read_bytes())
    except IsolatedCallError as failure:
        expect.fail(f"{what} is not a PDF that can be read", got=str(failure))
    words, places, shapes, sizes, nodes = answer
    shown = "".join(words)  # a font may draw a part of a word apart
    for text in texts:
        expect.true(text in shown, f"{what} does not show the graph: it lacks the text `{text}`", hint=hint)
    _check(PdfDrawing(tuple(words), places, shapes, sizes), [(str(op), sources) for op, sources in nodes], what, hint)


def _check(drawing: PdfDrawing, nodes: Sequence[tuple[str, list[int]]], what: str, hint: str) -> None:
    what = f"{what} does not show the graph"
    boxes = _boxes(drawing, {operator for operator, _ in nodes})
    counts = Counter(box.operator for box in boxes)
    for operator, times in Counter(operator for operator, _ in nodes).items():
        few, expected = f"{what}: too few nodes of `{operator}` are drawn", f"{times} boxes with this text"
        expect.true(counts[operator] >= times, few, expected=expected, got=counts[operator], hint=hint)
    path = _longest_path(nodes)
    beside = {operator for index, (operator, _) in enumerate(nodes) if index not in path}
    want = [operator for operator, _ in (nodes[index] for index in path) if operator not in beside]
    on_path = [box for box in boxes if box.operator in want]
    lines = {direction: _in_order(on_path, direction) for direction in TURNS}
    direction = next((name for name, line in lines.items() if _shows(line, want)), "")
    expected, got = ", ".join(want), ", ".join(box.operator for box in lines["down"])
    disordered = f"{what}: its nodes are not drawn in the order of the graph"
    expect.true(direction in lines, disordered, expected=expected, got=got, hint=hint)
    pairs = [(a, b) for a, b in pairwise(lines[direction]) if a.page == b.page]
    shapes = _turned(drawing.shapes[:, 1:], direction)
    joined = sum(_joined(shapes[drawing.shapes[:, 0] == a.page], a, b) for a, b in pairs)
    enough = joined >= CONNECTED * len(pairs) if not beside else joined > 0
    unconnected = f"{what}: no lines are drawn between its nodes"
    expect.true(enough, unconnected, expected=f"{len(pairs)} lines", got=joined, hint=hint)


def _boxes(drawing: PdfDrawing, operators: set[str]) -> list[_NodeBox]:
    """The boxes that are drawn around the name of one operator, and of no other."""
    if not len(drawing.shapes):
        return []
    named = [(word, place) for word, place in zip(drawing.words, drawing.places, strict=True) if word in operators]
    extents = drawing.shapes[:, 3:] - drawing.shapes[:, 1:3]
    areas = extents.prod(axis=1)
    limits = MAX_PART_OF_PAGE * drawing.sizes.prod(axis=1)[drawing.shapes[:, 0].astype(int)]
    closed = (extents.min(axis=1) > 2) & (areas < limits)
    boxes: dict[tuple[float, ...], list[str]] = {}
    page, left, top, right, bottom = drawing.shapes.T
    for word, (number, x, y) in named:
        inside = (page == number) & (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
        around = np.flatnonzero(closed & inside)
        if len(around):
            smallest = around[np.argmin(areas[around])]
            boxes.setdefault(tuple(drawing.shapes[smallest]), []).append(word)
    return [_NodeBox(words[0], int(box[0]), np.array(box[1:])) for box, words in boxes.items() if len(words) == 1]


def _in_order(boxes: list[_NodeBox], direction: str) -> list[_NodeBox]:
    """The boxes from page to page and along a direction, turned such that it goes down."""
    turned = [replace(box, bounds=_turned(box.bounds, direction)) for box in boxes]
    return sorted(turned, key=lambda box: (box.page, box.bounds[1]))


def _shows(line: list[_NodeBox], operators: list[str]) -> bool:
    """Whether boxes have these operators and are one after the other, not beside each other."""
    after = all(a.page < b.page or a.bounds[3] < b.bounds[1] for a, b in pairwise(line))
    return after and [box.operator for box in line] == operators


def _turned(bounds: np.ndarray, direction: str) -> np.ndarray:
    """Turn bounding boxes (left, top, right, bottom) [..., 4] such that a direction goes down."""
    columns, sign = TURNS[direction]
    return bounds[..., columns] * sign


def _joined(shapes: np.ndarray, first: _NodeBox, second: _NodeBox) -> bool:
    """Whether a line ends at the second box that begins between it and the first, and lies before both."""
    begin, end = first.bounds[3], second.bounds[1]
    gap = end - begin
    left, top, right, bottom = shapes.T
    lines = (np.abs(bottom - end) <= 0.3 * gap) & (top >= first.bounds[1]) & (top <= end - 0.2 * gap)
    lines &= (left <= second.bounds[2]) & (right >= second.bounds[0])
    return bool(gap > 0 and lines.any())


def _longest_path(nodes: Sequence[tuple[str, list[int]]]) -> list[int]:
    """The indices of the nodes on the longest path through the graph."""
    before: list[int | None] = []
    length: list[int] = []
    for _, sources in nodes:
        longest = max(sources, key=lambda index: length[index], default=None)
        before.append(longest)
        length.append(1 if longest is None else length[longest] + 1)
    path: list[int] = []
    index = int(np.argmax(length)) if length else None
    while index is not None:
        path.append(index)
        index = before[index]
    return path[::-1]


def _read(pdf: bytes, model: bytes) -> tuple[Any, ...]:
    """Read both files; this runs in an isolated process."""
    import io

    import pypdf

    reader = _ShapeReader()
    for number, page in enumerate(pypdf.PdfReader(io.BytesIO(pdf)).pages):
        reader.read(number, page)
    return (*reader.result(), _nodes(model))


def _nodes(model: bytes) -> list[tuple[str, list[int]]]:
    """Operator and sources of each node; Netron draws constants inside the nodes that use them."""
    import onnx

    graph = onnx.load_model_from_string(model).graph
    if len(graph.node) > NODE_LIMIT:
        raise ValueError(f"the graph has more than {NODE_LIMIT} nodes")
    nodes, writer = [], {}
    for node in graph.node:
        if node.op_type != "Constant":
            sources = sorted({writer[name] for name in node.input if name in writer})
            writer |= dict.fromkeys(node.output, len(nodes))
            nodes.append((node.op_type, sources))
    return nodes


class _ShapeReader:
    """Collects the words and painted shapes of pages, with pypdf's interpreter of their content.

    The matrices that pypdf passes begin anew in each form that a page uses, so they are multiplied by those outside.
    """

    def __init__(self) -> None:
        self._words: list[str] = []
        self._places: list[tuple[float, float, float]] = []
        self._shapes: list[tuple[float, ...]] = []
        self._sizes: list[tuple[float, float]] = []

    def result(self) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
        """The parts of a `PdfDrawing`."""
        places, shapes = np.array(self._places, float).reshape(-1, 3), np.array(self._shapes, float).reshape(-1, 5)
        return self._words, places, shapes, np.array(self._sizes, float).reshape(-1, 2)

    def read(self, number: int, page: Any) -> None:
        """Add what a page shows."""
        self._number, self._outer, self._path = number, [np.eye(3)], []
        self._in_front = False  # whether the next text was collected before the form in which we are
        self._turn, width, height = _to_upper_left(page)
        self._sizes.append((width, height))
        page.extract_text(
            visitor_text=self._text, visitor_operand_before=self._before, visitor_operand_after=self._after
        )

    def _before(self, operator: bytes, operands: Any, matrix: Any, _text_matrix: Any) -> None:
        name = operator.decode("latin1")
        if name in ("m", "l", "c", "v", "y", "re"):
            self._path += [self._place(point, _matrix(matrix) @ self._outer[-1]) for point in _points(name, operands)]
        elif name in ("f", "F", "f*", "B", "B*", "b", "b*", "S", "s"):
            self._paint()
        elif name == "n":
            self._path = []
        elif name == "Do":
            self._outer.append(_matrix(matrix) @ self._outer[-1])
            self._in_front = True

    def _after(self, operator: bytes, _operands: Any, _matrix: Any, _text_matrix: Any) -> None:
        if operator == b"Do":
            self._outer.pop()
            self._in_front = False

    def _paint(self) -> None:
        if self._path:
            points = np.array(self._path)
            self._shapes.append((self._number, *points.min(axis=0), *points.max(axis=0)))
        self._path = []
        _limit(self._shapes)

    def _text(self, text: str, matrix: Any, text_matrix: Any, _font: Any, _size: Any) -> None:
        outer = self._outer[-2] if self._in_front else self._outer[-1]
        self._in_front = False
        x, y = self._place((0.0, 0.0), _matrix(text_matrix) @ _matrix(matrix) @ outer)
        width, height = self._sizes[-1]
        if 0 <= x <= width and 0 <= y <= height:
            for word in unicodedata.normalize("NFKC", text).splitlines():  # fonts draw "fi" as one glyph
                self._words.append(word.strip())
                self._places.append((self._number, x, y))
        _limit(self._words)

    def _place(self, point: tuple[float, float], matrix: np.ndarray) -> tuple[float, float]:
        x, y, _ = np.array([*point, 1.0]) @ matrix @ self._turn
        return float(x), float(y)


def _limit(items: list[Any]) -> None:
    if len(items) > MAX_ITEMS:
        raise ValueError(f"the PDF has more than {MAX_ITEMS} words or shapes")


def _matrix(six: Any) -> np.ndarray:
    a, b, c, d, e, f = map(float, six)
    return np.array([[a, b, 0], [c, d, 0], [e, f, 1]])


def _points(operator: str, operands: Any) -> Iterator[tuple[float, float]]:
    numbers = [float(value) for value in operands]
    if operator == "re":
        x, y, width, height = numbers
        numbers = [x, y, x + width, y + height]
    yield from zip(numbers[::2], numbers[1::2], strict=True)


def _to_upper_left(page: Any) -> tuple[np.ndarray, float, float]:
    """Return the matrix from a page's coordinates to those from the upper left corner, and the page's size."""
    left, bottom, right, top = (float(value) for value in page.mediabox)
    width, height = right - left, top - bottom
    quarter = int(page.rotation) // 90 % 4
    turned = {
        0: [[1, 0, 0], [0, -1, 0], [-left, top, 1]],
        1: [[0, 1, 0], [1, 0, 0], [-bottom, -left, 1]],
        2: [[-1, 0, 0], [0, 1, 0], [right, -bottom, 1]],
        3: [[0, -1, 0], [-1, 0, 0], [top, right, 1]],
    }[quarter]
    return np.array(turned, float), *((width, height) if quarter % 2 == 0 else (height, width))
