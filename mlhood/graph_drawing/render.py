"""From positions to a matplotlib figure, without matplotlib's global state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from mlhood.graph_drawing.layout import PlacedBox, Placement, Route
from mlhood.graph_drawing.scene import Box, NodeStyle, StyleSheet, WireStyle
from mlhood.graph_drawing.shapes import bars, outline
from mlhood.graph_drawing.text_metrics import FONT, Line

PIXELS_PER_INCH = 96.0
MARGIN = 14.0
INKS = _INK, _FAINT, _PALE = "#1a1a1a", "#5c5c5c", "#9a9a9a"
_BADGES = {"added": "+", "removed": "−", "changed": "~"}
_KEY_HEIGHT = 20.0
_CORNER_RADIUS = 7.0
_ARROW_WIDTH, _ARROW_LENGTH = 7.2, 7.5
KeyEntry = NodeStyle | WireStyle | str  # a mark


def render(
    placement: Placement,
    styles: StyleSheet,
    *,
    divider: float | None = None,
    upward: Iterable[Route] = (),
) -> Figure:
    """Return a drawing as a figure, a pixel of the placement being 1/96 inch.

    Args:
        placement: Positions of boxes, text and wires.
        styles: All styles, in the order in which the key explains those in use.
        divider: x of a vertical line that separates two drawings.
        upward: Further wires, whose arrows are at their beginning and point upwards.
    """
    entries = list(_key_entries(placement, styles))
    width = max(placement.width, 160.0)
    rows = _key_rows(entries, width)
    key_height = 12.0 + _KEY_HEIGHT * len(rows) if rows else 0.0
    height = placement.height + key_height
    figure = Figure(
        figsize=((width + 2 * MARGIN) / PIXELS_PER_INCH, (height + 2 * MARGIN) / PIXELS_PER_INCH), facecolor="white"
    )
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-MARGIN, width + MARGIN), ylim=(height + MARGIN, -MARGIN))
    axes.set_axis_off()
    for route in placement.routes:
        _draw_wire(axes, route)
    if divider is not None:
        _stroke(axes, Path([(divider, 0.0), (divider, placement.height)]), _PALE, 0.8, "-", 1.0)
    for text in placement.texts:
        top = text.top
        for line in text.lines:
            _draw_line(axes, line, text.left, top, pale=text.box is not None and _is_pale(text.box))
            top += line.height
    for i, placed in enumerate(placement.boxes):
        _draw_box(axes, placed, box_id(i))
    for i, row in enumerate(rows):
        _draw_key_row(axes, row, placement.height + 16.0 + i * _KEY_HEIGHT)
    for route in upward:
        (x, y), *rest = route.points
        axes.add_patch(PathPatch(_arrow_head(x, y, up=True), facecolor=_INK, edgecolor="none", zorder=3))
        _stroke(axes, line_path([(x, y + 5.0), *rest]), _INK, 1.1, "-", 1.0)
    return figure


def box_id(index: int) -> str:
    """Return the id that the outline of a box has in an SVG."""
    return f"box-{index}"


def _is_pale(box: Box) -> bool:
    return box.mark == "same"


def _draw_box(axes: Axes, placed: PlacedBox, name: str) -> None:
    box, style = placed.box, placed.box.style
    rectangle = placed.left, placed.top, placed.width, placed.height
    edge = _PALE if _is_pale(box) else _INK
    fill = "white" if box.mark in ("same", "removed") else style.color
    patch = _draw_outline(axes, outline(style.shape, *rectangle), edge, fill, box.mark)
    patch.set_gid(name)
    if box.mark == "changed":
        inner = outline(style.shape, placed.left + 3, placed.top + 3, placed.width - 6, placed.height - 6)
        patch.set_facecolor("white")
        _draw_outline(axes, inner, edge, fill)
    for bar in bars(style.shape, *rectangle):
        _draw_outline(axes, bar, edge, "none")
    y = placed.top + (placed.height - sum(line.height for line in box.lines)) / 2
    for line in box.lines:
        _draw_line(axes, line, placed.left + (placed.width - line.width) / 2, y, pale=_is_pale(box))
        y += line.height
    if box.mark in _BADGES:
        _draw_badge(axes, placed.left, placed.top, _BADGES[box.mark])


def _draw_outline(axes: Axes, path: Path, edge: str, fill: str, mark: str = "") -> PathPatch:
    width, dashes = {"added": (2.6, "-"), "removed": (1.4, (0, (4, 2.5)))}.get(mark, (0.9, "-"))
    patch = PathPatch(path, facecolor=fill, edgecolor=edge, linewidth=width, linestyle=dashes, zorder=4)
    axes.add_patch(patch)
    return patch


def _draw_badge(axes: Axes, x: float, y: float, sign: str) -> None:
    circle = outline("stadium", x - 7.5, y - 7.5, 15.0, 15.0)
    axes.add_patch(PathPatch(circle, facecolor=_INK, edgecolor="white", linewidth=1.0, zorder=6))
    line = Line(sign, 13.0, bold=True)
    _draw_line(axes, line, x - line.width / 2, y - line.height / 2, color="white", zorder=7)


def _draw_line(
    axes: Axes, line: Line, x: float, y: float, *, pale: bool = False, color: str = "", zorder: float = 5
) -> None:
    """Draw a line of text whose left end is x and whose top is y."""
    axes.text(
        x,
        y + line.height * 0.77,  # the baseline
        line.text,
        fontsize=line.size * 72.0 / PIXELS_PER_INCH,
        fontfamily=FONT,
        fontweight="bold" if line.bold else "normal",
        color=color or (_PALE if pale else _FAINT if line.faint else _INK),
        va="baseline",
        ha="left",
        parse_math=False,
        zorder=zorder,
    )


def _draw_wire(axes: Axes, route: Route) -> None:
    color = _PALE if _is_pale(route.source) and (route.target is None or _is_pale(route.target)) else _INK
    points = list(route.points)
    if route.target is not None:
        x, y = points[-1]
        axes.add_patch(PathPatch(_arrow_head(x, y), facecolor=color, edgecolor="none", zorder=3))
        points[-1] = (x, y - 5.0)
    _draw_pattern(axes, line_path(points), route.style, color)


def _draw_pattern(axes: Axes, path: Path, style: WireStyle, color: str) -> None:
    if style.pattern == "double":
        _stroke(axes, path, color, 3.2, "-", 1.0)
        _stroke(axes, path, "white", 1.4, "-", 1.1)
    else:
        _stroke(axes, path, color, 1.1, (0, (1.2, 1.8)) if style.pattern == "dotted" else "-", 1.0)


def _stroke(axes: Axes, path: Path, color: str, width: float, dashes: object, zorder: float) -> None:
    style = {"linewidth": width, "linestyle": dashes, "capstyle": "butt", "joinstyle": "round"}
    # snapped to whole dots, one line of a pair would be thicker than the other
    axes.add_patch(PathPatch(path, fill=False, edgecolor=color, zorder=zorder, snap=False, **style))


def _arrow_head(x: float, y: float, *, up: bool = False) -> Path:
    base = y + _ARROW_LENGTH if up else y - _ARROW_LENGTH
    return Path([(x, y), (x - _ARROW_WIDTH / 2, base), (x + _ARROW_WIDTH / 2, base), (x, y)], closed=True)


def line_path(points: list[tuple[float, float]]) -> Path:
    """Return a line through the points: S-shaped where both x and y change, with round corners elsewhere."""
    vertices, codes = [points[0]], [Path.MOVETO]
    for i, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        if x != to_x and y != to_y:
            middle = (y + to_y) / 2
            vertices += [(x, middle), (to_x, middle), (to_x, to_y)]
            codes += [Path.CURVE4] * 3
            continue
        after = points[i + 2] if i + 2 < len(points) else (to_x, to_y)
        if (x == to_x) != (to_x == after[0]) and (to_x == after[0] or to_y == after[1]):
            vertices += [_before_corner((x, y), (to_x, to_y)), (to_x, to_y), _before_corner(after, (to_x, to_y))]
            codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
        else:
            vertices.append((to_x, to_y))
            codes.append(Path.LINETO)
    return Path(vertices, codes)


def _before_corner(start: tuple[float, float], corner: tuple[float, float]) -> tuple[float, float]:
    """Return the point one radius before a corner, or half way to it."""
    length = abs(corner[0] - start[0]) + abs(corner[1] - start[1])
    share = min(0.5, _CORNER_RADIUS / length) if length else 0.0
    return corner[0] + (start[0] - corner[0]) * share, corner[1] + (start[1] - corner[1]) * share


def _key_entries(placement: Placement, styles: StyleSheet) -> Iterator[KeyEntry]:
    """Yield what the key explains: marks, styles of boxes, and styles of wires if there are several."""
    marks = {placed.box.mark for placed in placement.boxes}
    yield from (mark for mark in _BADGES if mark in marks)
    used = {placed.box.style for placed in placement.boxes}
    yield from (style for style in styles.nodes if style in used)
    wires = {route.style for route in placement.routes}
    if len(wires) > 1:
        yield from (style for style in styles.wires if style in wires)


def _key_rows(entries: list[KeyEntry], width: float) -> list[list[tuple[float, KeyEntry]]]:
    rows: list[list[tuple[float, KeyEntry]]] = []
    x = 0.0
    for entry in entries:
        needed = 28.0 + _key_line(entry).width
        if not rows or x + needed > width:
            rows.append([])
            x = 0.0
        rows[-1].append((x, entry))
        x += needed + 14.0
    return rows


def _key_line(entry: KeyEntry) -> Line:
    return Line(entry if isinstance(entry, str) else entry.title, 9.5, faint=True)


def _draw_key_row(axes: Axes, row: list[tuple[float, KeyEntry]], top: float) -> None:
    for x, entry in row:
        if isinstance(entry, NodeStyle):
            for path in (outline(entry.shape, x, top, 22.0, 12.0), *bars(entry.shape, x, top, 22.0, 12.0)):
                axes.add_patch(PathPatch(path, facecolor=entry.color, edgecolor=_INK, linewidth=0.8, zorder=4))
        elif isinstance(entry, WireStyle):
            _draw_pattern(axes, Path([(x, top + 6.0), (x + 22.0, top + 6.0)]), entry, _INK)
        else:
            _draw_badge(axes, x + 14.0, top + 6.0, _BADGES[entry])
        _draw_line(axes, _key_line(entry), x + 27.0, top - 0.5)
