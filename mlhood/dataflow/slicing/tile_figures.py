"""Figures of a sliced convolution: its tiles, and the order in which the nest visits their pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlhood.dataflow.slicing.analysis import check
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import (
    DARK,
    LIGHT_BLUE,
    LIGHT_GREEN,
    LIGHT_GREY,
    LIGHT_YELLOW,
    THIN,
    Grid,
    Point,
    canvas,
)

_MAX_STRIPS = 7
_GAP = 0.3

Strips = dict[int, tuple[float, float]]  # index of a tile -> its start and end in inches


def tiles(problem: Problem, slicing: Slicing) -> Figure:
    """Draw a convolution as the product weights [F, C·KH·KW] x columns [C·KH·KW, P], and its tiles.

    One tile of each kind is highlighted, all of them in the same slice of channels. If there are too many tiles, only
    the first ones and the last are drawn. Each side has its own scale.

    Args:
        problem: The convolution and its register tile.
        slicing: How it is sliced.

    Raises:
        SlicingError: If the tile sizes are out of range.
    """
    check(problem, slicing, Caches((None, None, None)))
    rows = problem.rows or 1
    deep = _strips(_parts(problem.channels, slicing.k1), 2.2)
    down = _strips(_parts(problem.filters, problem.filter_tile), 1.9)
    right = _strips(_parts(problem.windows // rows, problem.window) * rows, 3.2)
    k, weight, window = (min(1, len(strips) - 1) for strips in (deep, down, right))
    figure, axes = canvas(6.9, 6.75)
    weights, columns, result = (0.6, 3.6), (3.45, 6.3), (3.45, 3.6)
    begin, end = deep[k]
    _band(axes, (weights[0] + begin, weights[1] - 1.9), end - begin, 1.9)
    _band(axes, (columns[0], columns[1] - end), 3.2, end - begin)
    _matrix(axes, weights, down, deep, (weight, k), LIGHT_BLUE, "//")
    _matrix(axes, columns, deep, right, (k, window), LIGHT_GREEN, "\\\\")
    _matrix(axes, result, down, right, (weight, window), LIGHT_GREY, "xx")
    _dimensions(axes, problem, columns, weights)
    ys, xs = (columns[1] - begin, columns[1] - end), (weights[0] + begin, weights[0] + end)
    _slice_brackets(axes, problem, slicing, ys, xs)
    _legend(axes, problem, slicing)
    stationary = "input tile" if slicing.order == "IS" else "weight tile"
    return set_alt_text(
        figure,
        f"A convolution as weights of {problem.filters} filters times columns of {problem.windows} windows.",
        f"Marked: a weight tile of {problem.filter_tile} filters, an input tile of {problem.window} windows and their",
        f"output tile, in a slice of {slicing.k1} of {problem.channels} channels. The {stationary} stays in L1.",
    )


def _parts(length: int, size: int) -> list[int]:
    """Return the sizes of the tiles that a length is divided into; the last may be smaller."""
    return [min(size, length - start) for start in range(0, length, size)]


def _strips(sizes: Sequence[int], length: float) -> Strips:
    """Place tiles along a side, with a gap for omitted ones."""
    shown = list(range(len(sizes)))
    if len(sizes) > _MAX_STRIPS:
        shown = [*shown[: _MAX_STRIPS - 2], shown[-1]]
    gap = _GAP if len(shown) < len(sizes) else 0.0
    scale = (length - gap) / sum(sizes[tile] for tile in shown)
    strips: Strips = {}
    start = 0.0
    for tile in shown:
        start += gap if tile - 1 not in strips and tile > 0 else 0.0
        strips[tile] = start, start + scale * sizes[tile]
        start = strips[tile][1]
    return strips


def _band(axes: Axes, corner: Point, width: float, height: float) -> None:
    axes.add_patch(Rectangle(corner, width, height, fc=LIGHT_YELLOW, lw=0, zorder=0.5))


def _matrix(axes: Axes, corner: Point, down: Strips, right: Strips, marked: Point, colour: str, hatch: str) -> None:
    """Draw a matrix's tiles from its upper left corner, the highlighted one hatched with a heavy outline."""
    left, top = corner
    for row, (begin, end) in down.items():
        for column, (start, stop) in right.items():
            style = {"fc": "none", "ec": THIN, "lw": 0.8, "zorder": 1}
            if (row, column) == marked:
                style = {"fc": colour, "ec": DARK, "lw": 2.4, "zorder": 3, "hatch": hatch}
            axes.add_patch(Rectangle((left + start, top - end), stop - start, end - begin, **style))
    across, along = sum(right[0]) / 2, sum(down[0]) / 2  # beside the middle of the first tile
    for gap in _gaps(right):
        axes.text(left + gap, top - along, "…", ha="center", va="center", fontsize=14)
    for gap in _gaps(down):
        axes.text(left + across, top - gap, "…", ha="center", va="center", fontsize=14, rotation=90)


def _gaps(strips: Strips) -> list[float]:
    """Return the centres of the gaps."""
    return [start - _GAP / 2 for tile, (start, _) in strips.items() if tile > 0 and tile - 1 not in strips]


def _dimensions(axes: Axes, problem: Problem, columns: Point, weights: Point) -> None:
    """Write the product and the sizes of its dimensions."""
    (kh, kw), (oh, ow) = problem.kernel, problem.output
    lines = (
        f"F = {problem.filters:,} filters",
        f"C·KH·KW = {problem.channels:,}·{kh}·{kw} = {problem.channels * kh * kw:,} deep",
        f"P = OH·OW = {oh}·{ow} = {problem.windows:,} windows",
    )
    axes.text(0.1, 6.45, "weights × columns = result", fontsize=11, weight="bold", va="center")
    for i, line in enumerate(lines):
        axes.text(0.1, 6.13 - 0.24 * i, line, fontsize=9.5, va="center")
    axes.text(columns[0] + 1.6, columns[1] + 0.1, "columns: P wide", ha="center", va="bottom", fontsize=9)
    axes.text(weights[0] - 0.12, weights[1] - 0.95, "weights: F high", ha="right", va="center", fontsize=9, rotation=90)
    axes.text(columns[0] + 1.6, weights[1] - 2.0, "result: F × P", ha="center", va="top", fontsize=9)


def _slice_brackets(axes: Axes, problem: Problem, slicing: Slicing, ys: Point, xs: Point) -> None:
    """Draw the slice's brackets at both matrices, and write its depth."""
    line = {"color": DARK, "lw": 1.5}
    (top, bottom), (left, right) = ys, xs
    axes.plot([3.36, 3.28, 3.28, 3.36], [top, top, bottom, bottom], **line)
    axes.plot([left, left, right, right], [3.69, 3.77, 3.77, 3.69], **line)
    (kh, kw), count = problem.kernel, -(-problem.channels // slicing.k1)
    text = (
        f"bracket, yellow: {'the only slice' if count == 1 else f'one of {count} slices'}\n"
        f"k1 = {slicing.k1} of {problem.channels} channels,\n"
        f"{slicing.k1}·{kh}·{kw} = {slicing.k1 * kh * kw:,} deep"
    )
    axes.text(0.1, 3.95, text, fontsize=9.5, va="bottom", linespacing=1.4)


def _legend(axes: Axes, problem: Problem, slicing: Slicing) -> None:
    """Write for each kind of tile how many there are, what one holds, and which cache holds them."""
    k1, inputs, weights = slicing.k1, problem.input_tiles, problem.weight_tiles
    depth = f"{k1}·{problem.kernel[0]}·{problem.kernel[1]}"
    stationary = ["stationary in L1;", f"L3 holds k3 = {slicing.k3:,}"]
    streamed = ["streamed;", f"L2 holds k2 = {slicing.k2:,}"]
    input_role, weight_role = (stationary, streamed) if slicing.order == "IS" else (streamed, stationary)
    input_size = [f"{depth} × {problem.window} windows", f"= {k1 * problem.input_bytes:,} bytes"]
    lines = [f"{inputs:,} in a slice;", "a full one holds", *input_size, *input_role]
    _legend_entry(axes, (2.55, 1.4), "input tile", (LIGHT_GREEN, "\\\\"), lines)
    output_size = [f"{problem.filter_tile} filters × {problem.window} windows", f"= {problem.output_bytes:,} bytes"]
    lines = [f"{weights:,} × {inputs:,} = {weights * inputs:,};", "a full one holds", *output_size, "one per pair"]
    _legend_entry(axes, (4.8, 1.4), "output tile", (LIGHT_GREY, "xx"), lines)
    weight_size = [f"{problem.filter_tile} filters × {depth}", f"= {k1 * problem.weight_bytes:,} bytes"]
    lines = [f"{weights:,} in a slice;", "a full one holds", *weight_size, *weight_role]
    _legend_entry(axes, (0.1, 1.4), "weight tile", (LIGHT_BLUE, "//"), lines)


def _legend_entry(axes: Axes, corner: Point, name: str, style: tuple[str, str], lines: Sequence[str]) -> None:
    (x, y), (colour, hatch) = corner, style
    axes.add_patch(Rectangle((x, y - 0.17), 0.3, 0.17, fc=colour, ec=DARK, hatch=hatch, lw=1.6))
    axes.text(x + 0.4, y - 0.085, name, fontsize=9.5, weight="bold", va="center")
    axes.text(x, y - 0.26, "\n".join(lines), fontsize=9, va="top", linespacing=1.35)


def orders(inputs: int, weights: int, k2: int, k3: int) -> Figure:
    """Draw in which order the nest visits the pairs of input tile and weight tile of one slice, for IS and for WS.

    Args:
        inputs: Number of input tiles, up to 14: more are illegible.
        weights: Number of weight tiles, up to 13.
        k2: Streamed tiles in a group.
        k3: Stationary tiles in a group.
    """
    cell = min(0.4, 3.8 / inputs, 3.6 / weights)
    height = max(weights * cell, 0.85)  # of the text beside it
    panel = height + 2.05
    figure, axes = canvas(4.9, 2 * panel)
    for order, bottom in zip(ORDERS, (panel, 0), strict=True):
        grid = Grid(axes, 0.65, bottom + (height + weights * cell) / 2 + 1.05, weights, inputs, cell, cell)
        _order(grid, order, k2, k3)
        _captions(grid, order, k2, k3, (bottom + height + 1.93, bottom + 0.93))
    return set_alt_text(
        figure,
        f"The order in which {inputs} input tiles meet {weights} weight tiles, in groups of k2 = {k2} streamed and",
        f"k3 = {k3} stationary ones, as pairs (input tile, weight tile).",
        *(f"{order}: {_first_pairs(order, inputs, weights, k2, k3)}." for order in ORDERS),
    )


def _first_pairs(order: Order, inputs: int, weights: int, k2: int, k3: int) -> str:
    stationary, streamed = (inputs, weights) if order == "IS" else (weights, inputs)
    pairs = list(_visits(stationary, streamed, k2, k3))
    text = ", ".join(f"({s}, {p})" if order == "IS" else f"({p}, {s})" for s, p in pairs[:8])
    return text + (", and so on" if len(pairs) > 8 else "")


def _order(grid: Grid, order: Order, k2: int, k3: int) -> None:
    """Draw one order: input tiles from left to right, weight tiles downwards."""
    streamed, stationary = (grid.rows, grid.columns) if order == "IS" else (grid.columns, grid.rows)
    visits = [(p, s) if order == "IS" else (s, p) for s, p in _visits(stationary, streamed, k2, k3)]
    for cell in visits[: min(k2, streamed)]:
        grid.fill(*cell, 1, 1, LIGHT_YELLOW)
    grid.lines()
    grid.heads(range(grid.rows), range(grid.columns))
    _groups(grid, order, k2, k3)
    for visit, cell in enumerate(visits, 1):
        grid.write(*cell, visit)
    axes = grid.axes
    axes.text(grid.centre[0], grid.top + 0.25, "input tiles", fontsize=9, ha="center", va="bottom")
    axes.text(grid.left - 0.3, grid.centre[1], "weight tiles", fontsize=9, ha="right", va="center", rotation=90)


def _captions(grid: Grid, order: Order, k2: int, k3: int, heights: Point) -> None:
    """Write above and below which tiles are stationary, which are streamed, and what the lines mean."""
    stationary, streamed = ("input", "weight") if order == "IS" else ("weight", "input")
    first = min(k2, grid.rows if order == "IS" else grid.columns)
    lines = (
        f"heavy lines: groups of k3 = {k3} {stationary} tiles, which L3 holds",
        f"dashed lines: groups of k2 = {k2} {streamed} tiles, which L2 holds",
        f"yellow, 1 to {first}: streamed past {stationary} tile 0",
        "numbers: order of the visits",
    )
    left, axes = grid.left - 0.5, grid.axes
    title = f"{order}: one {stationary} tile at a time is stationary in L1;\n{streamed} tiles are streamed"
    axes.text(left, heights[0], title, fontsize=10, weight="bold", va="top")
    axes.text(left, heights[1], "\n".join(lines), fontsize=9, va="top", linespacing=1.4)


def _visits(stationary: int, streamed: int, k2: int, k3: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs (stationary tile, streamed tile) in the order of the nest."""
    for group3 in range(0, stationary, k3):
        for group2 in range(0, streamed, k2):
            for s in range(group3, min(group3 + k3, stationary)):
                for p in range(group2, min(group2 + k2, streamed)):
                    yield s, p


def _groups(grid: Grid, order: Order, k2: int, k3: int) -> None:
    """Draw the boundaries of groups: stationary ones in heavy lines, streamed ones dashed."""
    heavy, dashed = {"lw": 2.8, "zorder": 3}, {"lw": 1.6, "ls": (0, (4, 2)), "zorder": 2.5}
    across, down = (k3, k2) if order == "IS" else (k2, k3)
    column_style, row_style = (heavy, dashed) if order == "IS" else (dashed, heavy)
    for column in range(across, grid.columns, across):
        x = grid.left + column * grid.wide
        grid.axes.plot([x, x], [grid.bottom, grid.top], color=DARK, **column_style)
    for row in range(down, grid.rows, down):
        y = grid.top - row * grid.high
        grid.axes.plot([grid.left, grid.right], [y, y], color=DARK, **row_style)
    grid.outline(0, 0, grid.rows, grid.columns)
