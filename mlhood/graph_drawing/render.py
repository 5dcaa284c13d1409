"""Paint: from places to a figure of matplotlib, without its global state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from mlhood.compiler.hir.drawing.families import FAMILIES, Family
from mlhood.graph_drawing.outlines import bars, outline
from mlhood.graph_drawing.placement import PlacedBox, Placement, Route
from mlhood.graph_drawing.scene import NUMBERS, QUANTIZED, REAL, Box
from mlhood.graph_drawing.text_metrics import FONT, Line

PIXELS_AN_INCH = 96.0
_POINT = 72.0 / PIXELS_AN_INCH
MARGIN = 14.0
INKS = _INK, _FAINT, _PALE = "#1a1a1a", "#5c5c5c", "#9a9a9a"
BADGES = {"added": "+", "removed": "−", "changed": "~"}
_KEY_HEIGHT = 20.0
_ROUNDING = 7.0
_DRAWN_AS = {REAL: "floating point", QUANTIZED: "quantised", NUMBERS: "integers, bool"}


def figure_of(placement: Placement, *, key: bool = True, rule: float | None = None) -> Figure:
    """Return the drawing as a figure, a pixel of the placement being 1/96 inch.

    Args:
        placement: Boxes, words and wires with their places.
        key: Whether to say below what colours, outlines and lines mean.
        rule: Where a line from top to bottom parts two drawings.
    """
    entries = list(_key_entries(placement)) if key else []
    width = max(placement.width, 160.0)
    rows = _key_rows(entries, width)
    below = 12.0 + _KEY_HEIGHT * len(rows) if rows else 0.0
    figure = Figure(
        figsize=((width + 2 * MARGIN) / PIXELS_AN_INCH, (placement.height + below + 2 * MARGIN) / PIXELS_AN_INCH),
        facecolor="white",
    )
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-MARGIN, width + MARGIN), ylim=(placement.height + below + MARGIN, -MARGIN))
    axes.set_axis_off()
    for route in placement.routes:
        _wire(axes, route, _is_pale(route.source) and (route.target is None or _is_pale(route.target)))
    if rule is not None:
        _stroke(axes, Path([(rule, 0.0), (rule, placement.height)]), _PALE, 0.8, "-", 1.0)
    for text in placement.texts:
        _words(axes, text.lines, text.left, text.top, pale=text.box is not None and _is_pale(text.box))
    for number, placed in enumerate(placement.boxes):
        _box(axes, placed, box_id(number))
    for i, row in enumerate(rows):
        _key_row(axes, row, placement.height + 16.0 + i * _KEY_HEIGHT)
    return figure


def _is_pale(box: Box) -> bool:
    return box.mark == "same"


def box_id(number: int) -> str:
    """Return by what id an SVG knows the outline of a placement's box."""
    return f"box-{number}"


def _box(axes: Axes, placed: PlacedBox, name: str) -> None:
    box, family = placed.box, FAMILIES[placed.box.family]
    rectangle = placed.left, placed.top, placed.width, placed.height
    edge = _PALE if box.mark == "same" else _INK
    fill = "white" if box.mark in ("same", "removed") else family.colour
    shape = _outlined(axes, outline(family.outline, *rectangle), box.mark, edge, fill)
    shape.set_gid(name)
    if box.mark == "changed":
        inner = outline(family.outline, placed.left + 3, placed.top + 3, placed.width - 6, placed.height - 6)
        shape.set_facecolor("white")
        _outlined(axes, inner, "", edge, fill)
    for bar in bars(family.outline, *rectangle):
        _outlined(axes, bar, "", edge, "none")
    _box_text(axes, placed)
    if box.mark in BADGES:
        _badge(axes, placed.left, placed.top, BADGES[box.mark])


def _outlined(axes: Axes, path: Path, mark: str, edge: str, fill: str) -> PathPatch:
    width, dashes = {"added": (2.6, "-"), "removed": (1.4, (0, (4, 2.5)))}.get(mark, (0.9, "-"))
    patch = PathPatch(path, facecolor=fill, edgecolor=edge, linewidth=width, linestyle=dashes, zorder=4)
    axes.add_patch(patch)
    return patch


def _box_text(axes: Axes, placed: PlacedBox) -> None:
    lines = placed.box.lines
    y = placed.top + (placed.height - sum(line.height for line in lines)) / 2
    for line in lines:
        x = placed.left + (placed.width - line.width) / 2
        _line(axes, line, x, y, pale=placed.box.mark == "same")
        y += line.height


def _badge(axes: Axes, x: float, y: float, sign: str) -> None:
    circle = outline("stadium", x - 7.5, y - 7.5, 15.0, 15.0)
    axes.add_patch(PathPatch(circle, facecolor=_INK, edgecolor="white", linewidth=1.0, zorder=6))
    line = Line(sign, 13.0, bold=True)
    _line(axes, line, x - line.width / 2, y - line.height / 2, colour="white", zorder=7)


def _words(axes: Axes, lines: tuple[Line, ...], left: float, top: float, *, pale: bool) -> None:
    for line in lines:
        _line(axes, line, left, top, pale=pale)
        top += line.height


def _line(
    axes: Axes, line: Line, x: float, y: float, *, pale: bool = False, colour: str = "", zorder: float = 5
) -> None:
    """Write one line, its left end at x, its room beginning at y."""
    axes.text(
        x,
        y + line.height * 0.77,  # the base line
        line.text,
        fontsize=line.size * _POINT,
        fontfamily=FONT,
        fontweight="bold" if line.bold else "normal",
        color=colour or (_PALE if pale else _FAINT if line.faint else _INK),
        va="baseline",
        ha="left",
        parse_math=False,
        zorder=zorder,
    )


def _wire(axes: Axes, route: Route, pale: bool) -> None:
    colour = _PALE if pale else _INK
    points = list(route.points)
    if route.target is not None:
        x, y = points[-1]
        axes.add_patch(PathPatch(_arrow(x, y), facecolor=colour, edgecolor="none", zorder=3))
        points[-1] = (x, y - 5.0)
    _strokes(axes, line_path(points), route.kind, colour)


def _strokes(axes: Axes, path: Path, kind: str, colour: str) -> None:
    if kind == QUANTIZED:
        _stroke(axes, path, colour, 3.2, "-", 1.0)
        _stroke(axes, path, "white", 1.4, "-", 1.1)
    else:
        _stroke(axes, path, colour, 1.1, (0, (1.2, 1.8)) if kind == NUMBERS else "-", 1.0)


def _stroke(axes: Axes, path: Path, colour: str, width: float, dashes: object, zorder: float) -> None:
    style = {"linewidth": width, "linestyle": dashes, "capstyle": "butt", "joinstyle": "round"}
    # snapped to the dots of the picture, one line of two would be thicker than the other
    axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, zorder=zorder, snap=False, **style))


def _arrow(x: float, y: float) -> Path:
    return Path([(x, y), (x - 3.6, y - 7.5), (x + 3.6, y - 7.5), (x, y)], closed=True)


def line_path(points: list[tuple[float, float]]) -> Path:
    """Return a line through the points: in an S where it goes to the side and down, with round corners elsewhere."""
    corners, codes = [points[0]], [Path.MOVETO]
    for i, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        if x != to_x and y != to_y:
            middle = (y + to_y) / 2
            corners += [(x, middle), (to_x, middle), (to_x, to_y)]
            codes += [Path.CURVE4] * 3
            continue
        after = points[i + 2] if i + 2 < len(points) else (to_x, to_y)
        if (x == to_x) != (to_x == after[0]) and (to_x == after[0] or to_y == after[1]):
            corners += [_before((x, y), (to_x, to_y)), (to_x, to_y), _before(after, (to_x, to_y))]
            codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
        else:
            corners.append((to_x, to_y))
            codes.append(Path.LINETO)
    return Path(corners, codes)


def _before(start: tuple[float, float], corner: tuple[float, float]) -> tuple[float, float]:
    """Return the point a little before a corner, or half way to it."""
    length = abs(corner[0] - start[0]) + abs(corner[1] - start[1])
    share = min(0.5, _ROUNDING / length) if length else 0.0
    return corner[0] + (start[0] - corner[0]) * share, corner[1] + (start[1] - corner[1]) * share


def _key_entries(placement: Placement) -> Iterator[tuple[str, str]]:
    """Give what the key explains: families in the order of their table, then wires where there are several kinds."""
    marks = {one.box.mark for one in placement.boxes}
    yield from (("mark", mark) for mark in BADGES if mark in marks)
    present = {one.box.family for one in placement.boxes}
    for name in FAMILIES:
        if name in present:
            yield "family", name
    kinds = {route.kind for route in placement.routes}
    if len(kinds) > 1:
        for kind in _DRAWN_AS:
            if kind in kinds:
                yield "wire", kind


def _key_rows(entries: list[tuple[str, str]], width: float) -> list[list[tuple[float, str, str]]]:
    rows: list[list[tuple[float, str, str]]] = []
    x = 0.0
    for sort, name in entries:
        need = 28.0 + _key_line(sort, name).width
        if not rows or x + need > width:
            rows.append([])
            x = 0.0
        rows[-1].append((x, sort, name))
        x += need + 14.0
    return rows


def _key_line(sort: str, name: str) -> Line:
    words = {"family": lambda: FAMILIES[name].title, "wire": lambda: _DRAWN_AS[name], "mark": lambda: name}[sort]()
    return Line(words, 9.5, faint=True)


def _key_row(axes: Axes, row: list[tuple[float, str, str]], top: float) -> None:
    for x, sort, name in row:
        if sort == "family":
            _swatch(axes, FAMILIES[name], x, top)
        elif sort == "wire":
            _strokes(axes, Path([(x, top + 6.0), (x + 22.0, top + 6.0)]), name, _INK)
        else:
            _badge(axes, x + 14.0, top + 6.0, BADGES[name])
        _words(axes, (_key_line(sort, name),), x + 27.0, top - 0.5, pale=False)


def _swatch(axes: Axes, family: Family, x: float, top: float) -> None:
    for path in (outline(family.outline, x, top, 22.0, 12.0), *bars(family.outline, x, top, 22.0, 12.0)):
        axes.add_patch(PathPatch(path, facecolor=family.colour, edgecolor=_INK, linewidth=0.8, zorder=4))
