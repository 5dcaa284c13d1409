"""Figures of the matrix product's ladder: loop orders, cache blocking, packing, and a register tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import (
    DARK,
    LIGHT_BLUE,
    LIGHT_GREEN,
    LIGHT_YELLOW,
    MUTED,
    SKY,
    SMALL,
    Grid,
    arrow,
    canvas,
)

_BYTES = 4  # of a float32
_WIDTH = 7.0  # of all figures, in inches
_PANELS = ((LIGHT_BLUE, ""), (LIGHT_YELLOW, "//"), (LIGHT_GREEN, ".."))


def loop_orders() -> Figure:
    """Draw how the innermost loop walks through a, b and c of 8 x 8 in the orders i, j, k and i, k, j.

    A cache line is drawn with 4 numbers (a real one holds 16 float32); every row begins with a new line.
    """
    n, line, cell = 8, 4, 0.26
    tall = n * cell + 1.9
    figure, axes = canvas(_WIDTH, 2 * tall + 0.3)
    row = f"along a row: {n} numbers\nin {n // line} cache lines"
    column = f"down a column: {n} numbers\nin {n} cache lines"
    scalar = "one number,\nstays in a register"
    orders = (
        ("i", "j", "k", {"a": row, "b": column, "c": scalar}),
        ("i", "k", "j", {"a": scalar, "b": row, "c": row}),
    )
    for i, (*order, captions) in enumerate(orders):
        top = (2 - i) * tall - 1.0
        _write_loops(axes, top + 0.9, order)
        for j, name in enumerate("abc"):
            grid = Grid(axes, 0.1 + j * 2.3, top, n, n, cell, cell)
            _access_pattern(grid, name, order[-1], line)
            axes.text(grid.centre[0], grid.bottom - 0.07, captions[name], ha="center", va="top", fontsize=9.5)
    note = f"boxes: cache lines, drawn with {line} numbers; grey: fetched by the inner loop"
    axes.text(0.1, 0.1, note, fontsize=9.5, color=MUTED, style="italic")
    patterns = [
        f"order {', '.join(order)}: {'; '.join(f'{name} {caption}' for name, caption in captions.items())}"
        for *order, captions in orders
    ]
    return set_alt_text(figure, f"How the innermost loop walks through three matrices. In {'. In '.join(patterns)}.")


def _write_loops(axes: Axes, y: float, order: Sequence[str]) -> None:
    loops = "\n".join(f"{'  ' * depth}for {name}:" for depth, name in enumerate(order))
    axes.text(0.1, y, f"order {', '.join(order)}", fontsize=11, weight="bold", va="top")
    code = f"{loops}\n      c[i,j] += a[i,k] * b[k,j]"
    axes.text(1.75, y, code, family="monospace", fontsize=9.5, va="top", linespacing=1.2)


def _access_pattern(grid: Grid, name: str, inner: str, line: int) -> None:
    """Draw a matrix in cache lines, and the elements that the innermost loop accesses for fixed outer indices."""
    index = {"a": "ik", "b": "kj", "c": "ij"}[name]
    fixed = {"i": 1, "j": 2, "k": 2}
    iterations = [fixed | {inner: value} for value in range(grid.rows)]
    cells = list(dict.fromkeys((indices[index[0]], indices[index[1]]) for indices in iterations))
    for row, column in cells:
        grid.fill(row, column // line * line, 1, line, "#d9d9d9")
    for row, column in cells:
        grid.fill(row, column, 1, 1, SKY)
    grid.lines()
    for row in range(grid.rows):
        for first in range(0, grid.columns, line):
            grid.outline(row, first, 1, line, lw=1, ec=MUTED)
    if len(cells) == 1:
        grid.axes.plot(*grid.middle(*cells[0]), "o", color=DARK, ms=6)
    else:
        grid.path(cells)
    title = f"{name}[{','.join(index)}]"
    grid.axes.text(grid.centre[0], grid.top + 0.07, title, ha="center", va="bottom", fontsize=10, weight="bold")


def blocking() -> Figure:
    """Draw the working set of a product of 8 x 8: without blocks nearly everything, with them a block of b of 4 x 4."""
    n, block, cell = 8, 4, 0.26
    tall = n * cell + 1.35
    figure, axes = canvas(_WIDTH, 2 * tall)
    cases = (
        ("without blocks", 0, {"a": (1, n), "b": (n, n), "c": (1, n)}),
        (f"blocks of {block} × {block}", block, {"a": (1, block), "b": (block, block), "c": (1, block)}),
    )
    sizes = [sum(rows * columns for rows, columns in in_use.values()) for *_, in_use in cases]
    for i, ((title, side, in_use), size) in enumerate(zip(cases, sizes, strict=True)):
        top = (2 - i) * tall - 1.1
        axes.text(0.1, top + 1.0, title, fontsize=11, weight="bold", va="top")
        axes.text(0.1, top + 0.75, _reuse(side, n, size), fontsize=9.5, va="top", linespacing=1.3)
        for j, name in enumerate("abc"):
            grid = Grid(axes, 0.1 + j * 2.3, top, n, n, cell, cell)
            _blocks(grid, name, in_use[name], side)
    return set_alt_text(
        figure,
        f"The parts in use of three {n} x {n} matrices. Without blocks: a row of a, all of b and a row of c,",
        f"{sizes[0]} numbers. In blocks of {block} x {block}: a block of b, which stays, and pieces of a row",
        f"of a and of c, which move down, {sizes[1]} numbers.",
    )


def _reuse(side: int, n: int, count: int) -> str:
    """Describe the working set of `count` numbers, and how often a block of b of this side (0: none) is used."""
    size = f"{count} numbers, {count * _BYTES} bytes"
    if not side:
        return f"one row of c needs all of b; the next row needs it again.\nIn use: {size}"
    return f"a block of b stays, and all {n} rows of a go past it (arrows);\nthen comes the next block. In use: {size}"


def _blocks(grid: Grid, name: str, in_use: tuple[int, int], side: int) -> None:
    """Draw a matrix, the part of it in use, and where this goes next."""
    colour, hatch = dict(zip("abc", _PANELS, strict=True))[name]
    rows, columns = in_use
    grid.fill(0, 0, rows, columns, colour, hatch or "\\\\")
    grid.lines()
    grid.outline(0, 0, grid.rows, grid.columns, lw=1, ec=MUTED)
    for edge in range(side, grid.rows, side) if side else ():
        grid.outline(0, edge, grid.rows, 0, lw=1, ec=DARK)
        grid.outline(edge, 0, 0, grid.columns, lw=1, ec=DARK)
    grid.outline(0, 0, rows, columns)
    grid.axes.text(grid.centre[0], grid.top + 0.07, name, ha="center", va="bottom", fontsize=10, weight="bold")
    if side and name == "b":
        grid.write((rows - 1) / 2, (columns - 1) / 2, "stays", weight="bold", fontsize=9)
    elif side:
        grid.path([(0.8, (side - 1) / 2), (grid.rows - 1, (side - 1) / 2)])


def packing() -> Figure:
    """Draw the memory layout of b, 6 x 8, and of the two panels of 4 columns that it is packed into."""
    rows, columns, width = 6, 8, 4
    panels = columns // width
    cell = (_WIDTH - 1.7 - 0.3 * panels) / (2 * columns)
    figure, axes = canvas(_WIDTH, rows * cell + 2.1)
    top = rows * cell + 1.75
    b = Grid(axes, 0.1, top, rows, columns, cell, cell)
    owners = [column // width for column in range(columns)]
    _panel(b, [[row * columns + column + 1 for column in range(columns)] for row in range(rows)], owners)
    axes.text(b.left, top + 0.12, f"b, {rows} × {columns}", fontsize=10, weight="bold")
    left, packed = b.right + 1.2, []
    for panel in range(panels):
        grid = Grid(axes, left + panel * (width * cell + 0.3), top, rows, width, cell, cell)
        lanes = range(panel * width, (panel + 1) * width)
        positions = [[row * columns + column + 1 for column in lanes] for row in range(rows)]
        _panel(grid, positions, [panel] * width)
        axes.text(grid.left, top + 0.12, f"panel {panel}", fontsize=10, weight="bold")
        packed += [position for row in positions for position in row]
    arrow(axes, (b.right + 0.3, b.centre[1]), (left - 0.3, b.centre[1]), "pack")
    _strip(axes, 1.5, "b in memory", range(1, rows * columns + 1), owners * rows)
    _strip(axes, 1.0, "packed", packed, [i // (rows * width) for i in range(len(packed))])
    step = f"A step loads {width} numbers of a row."
    text = f"{step} Those of the next step\nare {columns} further in b; packed, they are next."
    axes.text(0.1, 0.33, text, fontsize=9.5)
    axes.text(0.1, 0.08, "numbers: positions in b's memory, from 1", fontsize=9, color=MUTED, style="italic")
    return set_alt_text(
        figure,
        f"b, {rows} x {columns}, is packed into panels of {width} columns, {panels} in all.",
        f"The rows of a panel are {columns} numbers apart in b's memory; packed, they follow one another: positions",
        f"{', '.join(map(str, packed[: 2 * width]))} and so on.",
    )


def _panel(grid: Grid, positions: Sequence[Sequence[int]], owners: Sequence[int]) -> None:
    """Draw positions, each column in the colour of its panel."""
    for column, owner in enumerate(owners):
        colour, hatch = _PANELS[owner % len(_PANELS)]
        grid.fill(0, column, grid.rows, 1, colour, hatch)
    for row, line in enumerate(positions):
        for column, position in enumerate(line):
            _write_position(grid, row, column, position, pad=0.12)
    grid.outline(0, 0, grid.rows, grid.columns, lw=1.2)
    for column in range(1, grid.columns):
        if owners[column] != owners[column - 1]:
            grid.outline(0, column, grid.rows, 0)


def _write_position(grid: Grid, row: int, column: int, position: int, pad: float) -> None:
    grid.write(row, column, position, bbox={"boxstyle": f"round,pad={pad}", "fc": "white", "ec": "none"})


def _strip(axes: Axes, y: float, title: str, positions: Sequence[int], owners: Sequence[int]) -> None:
    """Draw memory as one row of up to 27 cells."""
    most = 27
    axes.text(0.1, y - 0.13, title, fontsize=9, weight="bold", va="center")
    strip = Grid(axes, 1.2, y, 1, min(len(positions), most), 0.2, 0.26)
    for i, (position, owner) in enumerate(zip(positions[:most], owners, strict=False)):
        colour, hatch = _PANELS[owner % len(_PANELS)]
        strip.fill(0, i, 1, 1, colour, hatch)
        _write_position(strip, 0, i, position, pad=0)
        if i and owners[i - 1] != owner:
            strip.outline(0, i, 1, 0, lw=1.8)
    strip.lines()
    strip.outline(0, 0, 1, strip.columns, lw=1)
    if len(positions) > most:
        axes.text(strip.right + 0.05, y - 0.13, "…", fontsize=11, va="center")


def register_tile() -> Figure:
    """Draw one step of the microkernel: a column of a times a row of b, added to a tile of c in 4 x 2 registers."""
    rows, vectors, lanes = 4, 2, 4
    depth, step, cell, left = 5, 2, 0.3, 5.0
    figure, axes = canvas(left + 2.4, (rows + depth) * cell + 1.35)
    tall = (rows + depth) * cell + 1.35
    c = Grid(axes, 2.35, tall - depth * cell - 0.75, rows, vectors * lanes, cell, cell)
    a = Grid(axes, 0.35, c.top, rows, depth, cell, cell)
    b = Grid(axes, c.left, tall - 0.35, depth, vectors * lanes, cell, cell)
    _tile(c, vectors, lanes)
    for grid, operand in ((a, (0, step, rows, 1)), (b, (step, 0, 1, b.columns))):
        grid.fill(0, 0, grid.rows, grid.columns, "white")
        grid.fill(*operand, LIGHT_YELLOW if grid is a else LIGHT_BLUE, "//" if grid is a else "")
        grid.lines()
        grid.outline(*operand)
    for vector in range(1, vectors):
        b.outline(step, vector * lanes, 1, 0)
    for row in range(rows):
        arrow(axes, (a.right + 0.08, a.middle(row, 0)[1]), (c.left - 0.06, c.middle(row, 0)[1]))
    _label_operands(a, b, c, step)
    _counts(axes, left, tall / 2, (rows, vectors, lanes))
    sums = rows * vectors
    return set_alt_text(
        figure,
        f"One step of the microkernel: {rows} numbers of a, each broadcast, times {vectors} vectors of b",
        f"with {lanes} lanes, added to a tile of c in {sums} registers.",
        f"That is {2 * sums * lanes} FLOP for {rows + vectors * lanes} numbers loaded.",
    )


def _tile(c: Grid, vectors: int, lanes: int) -> None:
    """Draw the tile of c, one box per register."""
    c.fill(0, 0, c.rows, c.columns, LIGHT_GREEN)
    c.lines()
    for row in range(c.rows):
        for vector in range(vectors):
            c.outline(row, vector * lanes, 1, lanes, lw=1.8)


def _label_operands(a: Grid, b: Grid, c: Grid, step: int) -> None:
    """Label the three grids and the direction of k."""
    font: dict[str, Any] = {"fontsize": 9, "ha": "center", "weight": "bold"}
    c.axes.text(c.left, c.bottom - 0.1, "tile of c: one box, one register", va="top", fontsize=9, weight="bold")
    c.axes.text(a.centre[0], a.bottom - 0.1, "packed rows of a", va="top", **font)
    c.axes.text(b.centre[0], b.top + 0.08, "packed columns of b", va="bottom", **font)
    a.write(-0.85, step, "k", style="italic", fontsize=10)
    b.write(step, -0.6, "k", style="italic", fontsize=10, ha="right")
    a.path([(-0.85, step + 0.6), (-0.85, step + 1.7)], lw=1)
    x = b.left - 0.18
    arrow(b.axes, (x, b.middle(step + 0.6, 0)[1]), (x, b.middle(step + 2.2, 0)[1]))
    c.axes.text(c.left - 0.03, c.top + 0.05, "broadcast", fontsize=SMALL, ha="right", style="italic")


def _counts(axes: Axes, left: float, middle: float, tile: tuple[int, int, int]) -> None:
    """Write what one step loads and computes."""
    rows, vectors, lanes = tile
    sums, loaded = rows * vectors, rows + vectors * lanes
    entries = [
        ("one step: one k", ""),
        (f"{vectors}", "loads of a vector of b"),
        (f"{rows}", "numbers of a, broadcast"),
        (f"{sums}", "vector multiply-adds"),
        (f"{2 * sums * lanes}", f"FLOP for {loaded} numbers loaded"),
        ("registers", ""),
        (f"{sums}", "hold c until the last k"),
        (f"{vectors + 1}", "hold b and the number of a"),
    ]
    for line, (number, text) in enumerate(entries):
        y = middle + 1.05 - 0.3 * line
        if text:
            axes.text(left + 0.3, y, number, fontsize=9.5, weight="bold", ha="right", va="center")
            axes.text(left + 0.4, y, text, fontsize=9, va="center")
        else:
            axes.text(left, y, number, fontsize=10, weight="bold", va="center")
