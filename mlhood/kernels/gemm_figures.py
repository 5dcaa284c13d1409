"""Pictures of the matrix product's ladder: the order of loops, blocks, packing, and a tile in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlhood.kernels.figure_checks import check_at_most, check_counts
from mlhood.plotting.diagram import (
    DARK,
    LIGHT_BLUE,
    LIGHT_GREEN,
    LIGHT_YELLOW,
    MUTED,
    SKY,
    SMALL,
    THIN,
    Grid,
    arrow,
    canvas,
)

_BYTES = 4  # of a float32
_PANELS = ((LIGHT_BLUE, ""), (LIGHT_YELLOW, "//"), (LIGHT_GREEN, ".."))


def loop_orders(n: int = 8, line: int = 4) -> Figure:
    """Draw how the innermost loop walks through a, b and c in the orders i, j, k and i, k, j.

    Args:
        n: Rows and columns of all three.
        line: Numbers in a cache line, as drawn (a real one has 16 float32); every row begins with a line.

    Raises:
        KernelError: This cannot be drawn.
    """
    check_counts(4, n=n)
    check_counts(line=line)
    check_at_most("rows", n, 16)
    cell = min(0.26, 2.2 / n)
    tall = max(n * cell + 1.05, 1.9)
    figure, axes = canvas(9.6, 2 * tall + 0.3)
    lines = -(-n // line)
    row = f"along a row: {n} numbers\nin {_many(lines, 'cache line')}"
    column = f"down a column: {n} numbers\nin {_many(n, 'cache line')}"
    one = "one number,\nstays in a register"
    orders = (("i", "j", "k", {"a": row, "b": column, "c": one}), ("i", "k", "j", {"a": one, "b": row, "c": row}))
    for number, (*order, says) in enumerate(orders):
        top = (2 - number) * tall - 0.1
        _nest(axes, 0.1, top - n * cell / 2, order)
        for place, name in enumerate("abc"):
            grid = Grid(axes, 2.35 + place * 2.55, top, n, n, cell, cell)
            _walk(grid, name, order[-1], line)
            axes.text(grid.centre[0], grid.bottom - 0.07, says[name], ha="center", va="top", fontsize=9)
    axes.text(0.1, 0.1, f"boxes: cache lines, drawn with {line} numbers; grey: brought into the cache by this walk",
              fontsize=9, color=MUTED, style="italic")  # fmt: skip
    return figure


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _nest(axes: Axes, x: float, y: float, order: Sequence[str]) -> None:
    """Write the loops, and that the innermost one is the one drawn."""
    code = "\n".join(f"{'  ' * depth}for {name}:" for depth, name in enumerate(order))
    axes.text(x, y + 0.42, f"order {', '.join(order)}", fontsize=11, weight="bold", va="bottom")
    axes.text(x, y + 0.3, f"{code}\n      c[i,j] +=\n        a[i,k] * b[k,j]", family="monospace", fontsize=SMALL,
              va="top", linespacing=1.35)  # fmt: skip


def _walk(grid: Grid, name: str, inner: str, line: int) -> None:
    """Draw a matrix in cache lines, and what the innermost loop touches for one choice of the others."""
    index = {"a": "ik", "b": "kj", "c": "ij"}[name]
    fixed = {"i": 1, "j": 2, "k": 2}
    steps = [fixed | {inner: step} for step in range(grid.rows)]
    places = list(dict.fromkeys((at[index[0]], at[index[1]]) for at in steps))
    for row, column in places:
        first = column // line * line
        grid.fill(row, first, 1, min(line, grid.columns - first), "#d9d9d9")
    for row, column in places:
        grid.fill(row, column, 1, 1, SKY)
    grid.lines()
    for row in range(grid.rows):
        for first in range(0, grid.columns, line):
            grid.outline(row, first, 1, min(line, grid.columns - first), lw=1, ec=MUTED)
    if len(places) == 1:
        grid.axes.plot(*grid.middle(*places[0]), "o", color=DARK, ms=6)
    else:
        grid.path(places)
    title = f"{name}[{','.join(index)}]"
    grid.axes.text(grid.centre[0], grid.top + 0.07, title, ha="center", va="bottom", fontsize=10, weight="bold")


def blocking(n: int = 8, block: int = 4) -> Figure:
    """Draw what has to stay in the cache until it is used again: without blocks nearly everything, with them little.

    Args:
        n: Rows and columns of all three matrices.
        block: Rows and columns of a block.

    Raises:
        KernelError: This cannot be drawn.
    """
    check_counts(n=n, block=block)
    check_at_most("rows", n, 16)
    check_at_most("rows in a block", block, n)
    cell = min(0.26, 2.2 / n)
    tall = max(n * cell + 0.7, 1.7)
    figure, axes = canvas(9.6, 2 * tall)
    parts = {"a": (1, n), "b": (n, n), "c": (1, n)}
    cases = (
        ("without blocks", n, parts),
        (f"blocks of {block} × {block}", block, dict.fromkeys("abc", (block, block))),
    )
    for number, (title, side, used) in enumerate(cases):
        top = (2 - number) * tall - 0.25
        total = sum(rows * columns for rows, columns in used.values())
        axes.text(0.1, top, title, fontsize=11, weight="bold", va="top")
        axes.text(0.1, top - 0.3, _reuse(n, side, total, number == 1), fontsize=9, va="top", linespacing=1.4)
        for place, name in enumerate("abc"):
            grid = Grid(axes, 2.75 + place * 2.4, top, n, n, cell, cell)
            _blocks(grid, name, used[name], side if number else 0)
    return figure


def _reuse(n: int, side: int, total: int, blocked: bool) -> str:
    """Say how much is in use at a time, and how often each number is."""
    size = f"{total} numbers, {total * _BYTES} bytes"
    if not blocked:
        return f"one row of c needs all of b;\nthe next row needs it again.\nIn use: {size}"
    work = 2 * side**3
    serves = f"each number serves {_many(side, 'time')}\nbefore the next come (arrows)"
    return f"three blocks are in use:\n{size}.\n{work} FLOP are done with them;\n{serves}"


def _blocks(grid: Grid, name: str, used: tuple[int, int], side: int) -> None:
    """Draw a matrix, what of it is in use, and where the next block lies."""
    colour, hatch = dict(zip("abc", _PANELS, strict=True))[name]
    rows, columns = used
    grid.fill(0, 0, rows, columns, colour, hatch or "\\\\")
    grid.lines()
    grid.outline(0, 0, grid.rows, grid.columns, lw=1, ec=MUTED)
    for edge in range(side, grid.rows, side) if side else ():
        grid.outline(0, edge, grid.rows, 0, lw=1, ec=DARK)
        grid.outline(edge, 0, 0, grid.columns, lw=1, ec=DARK)
    grid.outline(0, 0, rows, columns)
    if side and side < grid.columns and name in "bc":
        grid.path([((side - 1) / 2, (side - 1) / 2), ((side - 1) / 2, side + (min(side, grid.columns - side) - 1) / 2)])
    grid.axes.text(grid.centre[0], grid.top + 0.07, name, ha="center", va="bottom", fontsize=10, weight="bold")
    if side and name == "a":
        grid.write((rows - 1) / 2, (columns - 1) / 2, "stays", weight="bold", fontsize=9)


def packing(rows: int = 6, columns: int = 8, width: int = 4) -> Figure:
    """Draw b as it lies in memory, and the panels that packing makes of it.

    Args:
        rows: K.
        columns: N.
        width: Of a panel; the last one is filled up with zeros.

    Raises:
        KernelError: This cannot be drawn.
    """
    check_counts(rows=rows, columns=columns, width=width)
    check_at_most("rows", rows, 12)
    check_at_most("numbers", rows * columns, 99)
    panels = -(-columns // width)
    check_at_most("columns, with the zeros and b itself", columns + panels * width, 24)
    cell = min(0.34, (9.5 - 1.6 - 0.3 * panels) / (columns + panels * width))
    figure, axes = canvas(9.6, rows * cell + 1.95)
    top = rows * cell + 1.6
    b = Grid(axes, 0.1, top, rows, columns, cell, cell)
    owners = [column // width for column in range(columns)]
    _panel(b, [[_source(row, column, columns) for column in range(columns)] for row in range(rows)], owners)
    axes.text(b.left, top + 0.12, f"b, {rows} × {columns}", fontsize=10, weight="bold")
    left, packed = b.right + 1.2, []
    for panel in range(panels):
        grid = Grid(axes, left + panel * (width * cell + 0.3), top, rows, width, cell, cell)
        lanes = range(panel * width, (panel + 1) * width)
        numbers = [[_source(row, column, columns) for column in lanes] for row in range(rows)]
        _panel(grid, numbers, [panel] * width)
        axes.text(grid.left, top + 0.12, f"panel {panel}" if width > 1 else str(panel), fontsize=10, weight="bold")
        packed += [number for row in numbers for number in row]
    arrow(axes, (b.right + 0.3, b.centre[1]), (left - 0.3, b.centre[1]), "pack")
    _strip(axes, 1.35, "b in memory", range(1, rows * columns + 1), owners * rows)
    _strip(axes, 0.85, "packed", packed, [place // (rows * width) for place in range(len(packed))])
    step = f"A step takes {_many(width, 'number')} of a row."
    axes.text(0.1, 0.3, f"{step} In b the next step's lie {columns} further; packed, they follow.", fontsize=9)
    zeros = "; 0: filled in" if columns % width else ""
    axes.text(0.1, 0.08, f"numbers: places in b's memory, from 1 on{zeros}", fontsize=9, color=MUTED, style="italic")
    return figure


def _source(row: int, column: int, columns: int) -> int:
    """Return where a number of a panel lies in b, from 1 on; 0 where a zero is filled in."""
    return row * columns + column + 1 if column < columns else 0


def _panel(grid: Grid, numbers: Sequence[Sequence[int]], owners: Sequence[int]) -> None:
    """Draw numbers, each column as the panel it belongs to, over a ribbon in the order of memory."""
    for column, owner in enumerate(owners):
        colour, hatch = _PANELS[owner % len(_PANELS)]
        grid.fill(0, column, grid.rows, 1, colour, hatch)
    places = [(row, column) for row in range(grid.rows) for column in (0, grid.columns - 1)]
    grid.path(places, color="white", lw=9, alpha=0.75, zorder=1.5)
    grid.path(places, color=THIN, lw=1, zorder=1.6)
    for row, line in enumerate(numbers):
        for column, number in enumerate(line):
            _number(grid, row, column, number)
    grid.outline(0, 0, grid.rows, grid.columns, lw=1.2)
    for column in range(1, grid.columns):
        if owners[column] != owners[column - 1]:
            grid.outline(0, column, grid.rows, 0)


def _number(grid: Grid, row: int, column: int, number: int, pad: float = 0.12) -> None:
    font: dict[str, Any] = {} if number else {"style": "italic", "color": MUTED}
    patch = {"boxstyle": f"round,pad={pad}", "fc": "white", "ec": "none"}
    grid.write(row, column, number, bbox=patch, **font)


def _strip(axes: Axes, y: float, title: str, numbers: Sequence[int], owners: Sequence[int]) -> None:
    """Draw memory as one row of cells, as far as there is room."""
    most = 40
    axes.text(0.1, y - 0.13, title, fontsize=9, weight="bold", va="center")
    strip = Grid(axes, 1.2, y, 1, min(len(numbers), most), 0.2, 0.26)
    for place, (number, owner) in enumerate(zip(numbers[:most], owners, strict=False)):
        colour, hatch = _PANELS[owner % len(_PANELS)]
        strip.fill(0, place, 1, 1, colour, hatch)
        _number(strip, 0, place, number, pad=0)
        if place and owners[place - 1] != owner:
            strip.outline(0, place, 1, 0, lw=1.8)
    strip.lines()
    strip.outline(0, 0, 1, strip.columns, lw=1)
    if len(numbers) > most:
        axes.text(strip.right + 0.05, y - 0.13, "…", fontsize=11, va="center")


def register_tile(rows: int = 4, vectors: int = 2, lanes: int = 4) -> Figure:
    """Draw one step of the microkernel: a column of a times a row of b, added to a tile of c that stays in registers.

    Args:
        rows: Of the tile: numbers of a that each fill a vector.
        vectors: Of b, side by side in the tile.
        lanes: Numbers in a vector.

    Raises:
        KernelError: This cannot be drawn.
    """
    check_counts(rows=rows, vectors=vectors, lanes=lanes)
    check_at_most("rows", rows, 32)
    check_at_most("columns (vectors times lanes)", vectors * lanes, 48)
    depth, now = 5, 2
    wide, high = min(0.34, 4.0 / (vectors * lanes)), 0.3
    tall = max((rows + depth) * high + 1.35, 3.9)
    figure, axes = canvas(9.6, tall)
    c = Grid(axes, 2.45, tall - depth * high - 0.75, rows, vectors * lanes, wide, high)
    a = Grid(axes, 0.35, c.top, rows, depth, high, high)
    b = Grid(axes, c.left, tall - 0.35, depth, vectors * lanes, wide, high)
    _tile(c, vectors, lanes)
    for grid, place in ((a, (0, now, rows, 1)), (b, (now, 0, 1, b.columns))):
        grid.fill(0, 0, grid.rows, grid.columns, "white")
        grid.fill(*place, LIGHT_YELLOW if grid is a else LIGHT_BLUE, "//" if grid is a else "")
        grid.lines()
        grid.outline(*place)
    for vector in range(1, vectors):
        b.outline(now, vector * lanes, 1, 0)
    for row in range(rows):
        arrow(axes, (a.right + 0.08, a.middle(row, 0)[1]), (c.left - 0.06, c.middle(row, 0)[1]))
    _axes_of_tile(a, b, c, now)
    _counts(axes, max(c.right + 0.6, 6.6), tall / 2, (rows, vectors, lanes))
    return figure


def _tile(c: Grid, vectors: int, lanes: int) -> None:
    """Draw the tile of c: one register a box."""
    c.fill(0, 0, c.rows, c.columns, LIGHT_GREEN)
    c.lines()
    for row in range(c.rows):
        for vector in range(vectors):
            c.outline(row, vector * lanes, 1, lanes, lw=1.8)


def _axes_of_tile(a: Grid, b: Grid, c: Grid, now: int) -> None:
    """Write what the three grids are, and which way k goes."""
    font: dict[str, Any] = {"fontsize": 9, "ha": "center", "weight": "bold"}
    c.axes.text(c.left, c.bottom - 0.1, "tile of c: one box, one register", va="top", fontsize=9, weight="bold")
    c.axes.text(a.centre[0], a.bottom - 0.1, "packed rows of a", va="top", **font)
    c.axes.text(b.centre[0], b.top + 0.08, "packed columns of b", va="bottom", **font)
    a.write(-0.85, now, "k", style="italic", fontsize=10)
    b.write(now, -0.6, "k", style="italic", fontsize=10, ha="right")
    a.path([(-0.85, now + 0.6), (-0.85, now + 2.2)], lw=1)
    x = b.left - 0.18
    arrow(b.axes, (x, b.middle(now + 0.6, 0)[1]), (x, b.middle(now + 2.2, 0)[1]))
    c.axes.text(c.left - 0.03, c.top + 0.05, "each fills\na vector", fontsize=SMALL, ha="right", style="italic")


def _counts(axes: Axes, left: float, middle: float, tile: tuple[int, int, int]) -> None:
    """Write what one step loads and what it computes."""
    rows, vectors, lanes = tile
    sums, loaded = rows * vectors, rows + vectors * lanes
    says = [
        ("one step: one k", ""),
        (f"{vectors}", f"{'load' if vectors == 1 else 'loads'} of a vector of b"),
        (f"{rows}", f"{'number' if rows == 1 else 'numbers'} of a, each in all lanes"),
        (f"{sums}", "vector multiply-adds"),
        (f"{2 * sums * lanes}", f"FLOP for {loaded} numbers loaded"),
        ("registers", ""),
        (f"{sums}", "hold c up to the last k"),
        (f"{vectors + 1}", "hold b and the number of a"),
    ]
    for line, (number, text) in enumerate(says):
        y = middle + 1.05 - 0.3 * line
        if text:
            axes.text(left + 0.3, y, number, fontsize=9.5, weight="bold", ha="right", va="center")
            axes.text(left + 0.4, y, text, fontsize=9, va="center")
        else:
            axes.text(left, y, number, fontsize=10, weight="bold", va="center")
