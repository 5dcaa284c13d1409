"""Pictures of a sliced convolution: its tiles, and the order in which the nest visits their pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.fit import check
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing
from mlhood.errors import SlicingError
from mlhood.plotting.diagram import (
    DARK,
    LIGHT_BLUE,
    LIGHT_GREEN,
    LIGHT_GREY,
    LIGHT_YELLOW,
    MUTED,
    THIN,
    Grid,
    Point,
    canvas,
)

_MOST_STRIPS = 7
_GAP = 0.3
_MOST_TILES = 24  # more pairs cannot be told apart
_NUMBERED = 0.27  # inches of a cell that three digits fit into

Strips = dict[int, tuple[float, float]]  # number of a tile -> where it begins and ends, in inches


def tiles(problem: Problem, slicing: Slicing) -> Figure:
    """Draw a convolution as the product weights [F, C·KH·KW] x columns [C·KH·KW, P], and its tiles.

    Of each kind of tile one is picked out, all of them in one slice of channels. Where there are more tiles than can
    be drawn, the first ones and the last are. Lengths are not to scale from side to side.

    Args:
        problem: The convolution and its register tile.
        slicing: How it is sliced.

    Raises:
        SlicingError: If the convolution has no such tiles.
    """
    check(problem, slicing, Caches((None, None, None)))
    rows = problem.rows or 1
    deep = _strips(_parts(problem.channels, slicing.k1), 2.2)
    down = _strips(_parts(problem.filters, problem.filter_tile), 1.9)
    right = _strips(_parts(problem.windows // rows, problem.window) * rows, 3.2)
    one, of_weights, of_inputs = (min(1, len(strips) - 1) for strips in (deep, down, right))
    figure, axes = canvas(9.4, 6.1)
    weights, columns, result = (0.6, 2.95), (3.45, 5.65), (3.45, 2.95)
    _band(axes, (weights[0] + deep[one][0], weights[1] - 1.9), deep[one][1] - deep[one][0], 1.9)
    _band(axes, (columns[0], columns[1] - deep[one][1]), 3.2, deep[one][1] - deep[one][0])
    _matrix(axes, weights, down, deep, (of_weights, one), LIGHT_BLUE, "//")
    _matrix(axes, columns, deep, right, (one, of_inputs), LIGHT_GREEN, "\\\\")
    _matrix(axes, result, down, right, (of_weights, of_inputs), LIGHT_GREY, "xx")
    _sides(axes, problem, columns, weights)
    _slice(axes, problem, slicing, [columns[1] - end for end in deep[one]], [weights[0] + end for end in deep[one]])
    _kinds(axes, problem, slicing)
    return figure


def _parts(whole: int, size: int) -> list[int]:
    """Return the sizes of the tiles that a length is cut into; the last may be smaller."""
    return [min(size, whole - start) for start in range(0, whole, size)]


def _strips(sizes: Sequence[int], length: float) -> Strips:
    """Lay tiles out along a side, with a gap for those that are left out."""
    shown = list(range(len(sizes)))
    if len(sizes) > _MOST_STRIPS:
        shown = [*shown[: _MOST_STRIPS - 2], shown[-1]]
    gap = _GAP if len(shown) < len(sizes) else 0.0
    scale = (length - gap) / sum(sizes[tile] for tile in shown)
    strips: Strips = {}
    at = 0.0
    for tile in shown:
        at += gap if tile - 1 not in strips and tile > 0 else 0.0
        strips[tile] = at, at + scale * sizes[tile]
        at = strips[tile][1]
    return strips


def _band(axes: Axes, corner: Point, wide: float, high: float) -> None:
    axes.add_patch(Rectangle(corner, wide, high, fc=LIGHT_YELLOW, lw=0, zorder=0.5))


def _matrix(axes: Axes, corner: Point, down: Strips, right: Strips, picked: Point, colour: str, hatch: str) -> None:
    """Draw a matrix's tiles from its upper left corner, the picked one hatched in heavy lines."""
    left, top = corner
    for row, (begin, end) in down.items():
        for column, (start, stop) in right.items():
            style = {"fc": "none", "ec": THIN, "lw": 0.8, "zorder": 1}
            if (row, column) == picked:
                style = {"fc": colour, "ec": DARK, "lw": 2.4, "zorder": 3, "hatch": hatch}
            axes.add_patch(Rectangle((left + start, top - end), stop - start, end - begin, **style))
    across, along = sum(right[0]) / 2, sum(down[0]) / 2  # beside the middle of the first tile
    for place in _gaps(right):
        axes.text(left + place, top - along, "…", ha="center", va="center", fontsize=14)
    for place in _gaps(down):
        axes.text(left + across, top - place, "…", ha="center", va="center", fontsize=14, rotation=90)


def _gaps(strips: Strips) -> list[float]:
    """Return the middles of the gaps."""
    return [start - _GAP / 2 for tile, (start, _) in strips.items() if tile > 0 and tile - 1 not in strips]


def _sides(axes: Axes, problem: Problem, columns: Point, weights: Point) -> None:
    """Write how long the sides are, and what is multiplied."""
    (high, wide), (tall, broad) = problem.kernel, problem.output
    said = (
        f"F = {problem.filters:,} filters",
        f"C·KH·KW = {problem.channels:,}·{high}·{wide} = {problem.channels * high * wide:,} deep",
        f"P = OH·OW = {tall}·{broad} = {problem.windows:,} windows",
    )
    axes.text(0.1, 5.8, "weights × columns = result", fontsize=11, weight="bold", va="center")
    for line, text in enumerate(said):
        axes.text(0.1, 5.48 - 0.24 * line, text, fontsize=9.5, va="center")
    axes.text(columns[0] + 1.6, columns[1] + 0.1, "columns: P wide", ha="center", va="bottom", fontsize=9)
    axes.text(weights[0] - 0.12, weights[1] - 0.95, "weights: F high", ha="right", va="center", fontsize=9, rotation=90)
    axes.text(columns[0] + 1.6, weights[1] - 2.0, "result: F × P", ha="center", va="top", fontsize=9)


def _slice(axes: Axes, problem: Problem, slicing: Slicing, heights: Sequence[float], places: Sequence[float]) -> None:
    """Mark the slice at both matrices, and say how deep it is."""
    line = {"color": DARK, "lw": 1.5}
    (top, bottom), (left, right) = heights, places
    axes.plot([3.36, 3.28, 3.28, 3.36], [top, top, bottom, bottom], **line)
    axes.plot([left, left, right, right], [3.04, 3.12, 3.12, 3.04], **line)
    (high, wide), count = problem.kernel, -(-problem.channels // slicing.k1)
    whole = "the only slice" if count == 1 else f"one of {count} slices"
    text = (
        f"bracket, yellow: {whole}\nk1 = {slicing.k1} of {problem.channels} channels,\n"
        f"{slicing.k1}·{high}·{wide} = {slicing.k1 * high * wide:,} deep"
    )
    axes.text(0.1, 3.3, text, fontsize=9.5, va="bottom", linespacing=1.4)


def _kinds(axes: Axes, problem: Problem, slicing: Slicing) -> None:
    """Say of each kind of tile how many there are, what one holds, and where the nest keeps it."""
    k1, inputs, weights = slicing.k1, problem.input_tiles, problem.weight_tiles
    depth = f"{k1}·{problem.kernel[0]}·{problem.kernel[1]}"
    stays, passes = ["stays in L1;", f"L3 holds k3 = {slicing.k3:,}"], ["passes by;", f"L2 holds k2 = {slicing.k2:,}"]
    of_input, of_weight = (stays, passes) if slicing.order == "IS" else (passes, stays)
    full = "a full one holds"
    told = [
        f"{inputs:,} in a slice;",
        full,
        f"{depth} × {problem.window} windows",
        f"= {k1 * problem.input_bytes:,} bytes",
    ]
    _kind(axes, (6.85, 5.65), "input tile", (LIGHT_GREEN, "\\\\"), [*told, *of_input])
    one = f"{problem.filter_tile} filters × {problem.window} windows"
    told = [f"{weights:,} × {inputs:,} = {weights * inputs:,};", full, one, f"= {problem.output_bytes:,} bytes"]
    _kind(axes, (6.85, 2.95), "output tile", (LIGHT_GREY, "xx"), [*told, "one for each pair"])
    told = [f"{weights:,} in a slice; {full}",
            f"{problem.filter_tile} filters × {depth} = {k1 * problem.weight_bytes:,} bytes"]  # fmt: skip
    _kind(axes, (0.6, 0.95), "weight tile", (LIGHT_BLUE, "//"), [*told, " ".join(of_weight)])


def _kind(axes: Axes, corner: Point, name: str, look: tuple[str, str], lines: Sequence[str]) -> None:
    (x, y), (colour, hatch) = corner, look
    axes.add_patch(Rectangle((x, y - 0.17), 0.3, 0.17, fc=colour, ec=DARK, hatch=hatch, lw=1.6))
    axes.text(x + 0.4, y - 0.085, name, fontsize=9.5, weight="bold", va="center")
    axes.text(x, y - 0.26, "\n".join(lines), fontsize=9, va="top", linespacing=1.35)


def orders(inputs: int, weights: int, k2: int, k3: int) -> Figure:
    """Draw in which order the nest visits the pairs of input tile and weight tile of one slice, for IS and for WS.

    Args:
        inputs: Input tiles.
        weights: Weight tiles.
        k2: Passing tiles in a group.
        k3: Staying tiles in a group.

    Raises:
        SlicingError: If a count is not one, or there are too many tiles for a picture.
    """
    for name, count in {"inputs": inputs, "weights": weights, "k2": k2, "k3": k3}.items():
        if count < 1:
            raise SlicingError("a count begins at 1", where=name, got=count)
    if max(inputs, weights) > _MOST_TILES:
        raise SlicingError("so many pairs of tiles cannot be told apart in a picture", got=f"{inputs} x {weights}",
                           expected=f"at most {_MOST_TILES} tiles of a kind", todo="draw a smaller case")  # fmt: skip
    cell = min(0.4, 3.8 / inputs, 3.6 / weights)
    tall = max(weights * cell, 0.85)  # as the words beside it
    figure, axes = canvas(9.5, tall + 2.05)
    for place, order in enumerate(ORDERS):
        grid = Grid(axes, 0.65 + 4.8 * place, (tall + weights * cell) / 2 + 1.05, weights, inputs, cell, cell)
        _order(grid, order, k2, k3)
        _tell(grid, order, k2, k3, (tall + 1.93, 0.93))
    return figure


def _order(grid: Grid, order: Order, k2: int, k3: int) -> None:
    """Draw one order: input tiles from left to right, weight tiles downwards."""
    passing, staying = (grid.rows, grid.columns) if order == "IS" else (grid.columns, grid.rows)
    visits = [(p, s) if order == "IS" else (s, p) for s, p in _visits(staying, passing, k2, k3)]
    for place in visits[: min(k2, passing)]:
        grid.fill(*place, 1, 1, LIGHT_YELLOW)
    grid.lines()
    step = max(1, math.ceil(0.2 / grid.wide))
    grid.heads(*([str(i) if i % step == 0 else "" for i in range(count)] for count in (grid.rows, grid.columns)))
    _groups(grid, order, k2, k3)
    if grid.wide >= _NUMBERED:
        for number, place in enumerate(visits, 1):
            grid.write(*place, number)
    else:
        _path(grid, visits)
    axes = grid.axes
    axes.text(grid.centre[0], grid.top + 0.25, "input tiles", fontsize=9, ha="center", va="bottom")
    axes.text(grid.left - 0.3, grid.centre[1], "weight tiles", fontsize=9, ha="right", va="center", rotation=90)


def _tell(grid: Grid, order: Order, k2: int, k3: int, heights: Point) -> None:
    """Write above and below which tiles stay, which pass, and what the lines are."""
    stays, passes = ("input", "weight") if order == "IS" else ("weight", "input")
    numbered, first = grid.wide >= _NUMBERED, min(k2, grid.rows if order == "IS" else grid.columns)
    told = (
        f"heavy lines: groups of k3 = {k3} {stays} tiles, which L3 holds",
        f"dashed lines: groups of k2 = {k2} {passes} tiles, which L2 holds",
        f"yellow, {f'1 to {first}' if numbered else 'at the ring'}: they pass while {stays} tile 0 stays",
        "numbers: order of the visits" if numbered else "solid: from neighbour to neighbour; dotted: jumps",
    )
    left, axes = grid.left - 0.5, grid.axes
    title = f"{order}: {stays} tiles stay in L1, one by one;\n{passes} tiles pass by"
    axes.text(left, heights[0], title, fontsize=10, weight="bold", va="top")
    axes.text(left, heights[1], "\n".join(told), fontsize=9, va="top", linespacing=1.4)


def _visits(staying: int, passing: int, k2: int, k3: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs (staying tile, passing tile) as the nest visits them."""
    for first in range(0, staying, k3):
        for start in range(0, passing, k2):
            for stay in range(first, min(first + k3, staying)):
                for passer in range(start, min(start + k2, passing)):
                    yield stay, passer


def _groups(grid: Grid, order: Order, k2: int, k3: int) -> None:
    """Draw where groups end: those of staying tiles in heavy lines, those of passing ones dashed."""
    heavy, dashed = {"lw": 2.8, "zorder": 3}, {"lw": 1.6, "ls": (0, (4, 2)), "zorder": 2.5}
    across, down = (k3, k2) if order == "IS" else (k2, k3)
    of_columns, of_rows = (heavy, dashed) if order == "IS" else (dashed, heavy)
    for column in range(across, grid.columns, across):
        x = grid.left + column * grid.wide
        grid.axes.plot([x, x], [grid.bottom, grid.top], color=DARK, **of_columns)
    for row in range(down, grid.rows, down):
        y = grid.top - row * grid.high
        grid.axes.plot([grid.left, grid.right], [y, y], color=DARK, **of_rows)
    grid.outline(0, 0, grid.rows, grid.columns)


def _path(grid: Grid, visits: Sequence[tuple[int, int]]) -> None:
    """Draw the way from pair to pair: solid stretches with a head, jumps dotted, a ring where it begins."""
    stretch = [visits[0]]
    grid.axes.plot(*grid.middle(*visits[0]), "o", ms=8, mfc="white", mec=DARK, mew=1.6, zorder=5)
    for before, place in zip(visits, [*visits[1:], None], strict=True):
        if place is not None and abs(place[0] - before[0]) + abs(place[1] - before[1]) == 1:
            stretch.append(place)
            continue
        if len(stretch) > 1:
            grid.path(stretch, lw=1.1)
        if place is not None:
            (x, y), (to_x, to_y) = grid.middle(*before), grid.middle(*place)
            grid.axes.plot([x, to_x], [y, to_y], color=MUTED, lw=0.8, ls=":", zorder=2)
            stretch = [place]
