"""Figures of P3's last part: threads and memories of a GPU, who touches which address, and tiles in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlhood.gpu.report import SECTOR, WORD, Access, Report
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import (
    DARK,
    LIGHT_BLUE,
    LIGHT_GREEN,
    LIGHT_GREY,
    LIGHT_YELLOW,
    MUTED,
    SKY,
    Grid,
    arrow,
    box,
    canvas,
)

SHOWN = 16  # rows and columns of a matrix in `lanes`


def hierarchy() -> Figure:
    """Draw a grid of blocks, a block of threads with its first warp, and the memories that they can reach."""
    figure, axes = canvas(9.6, 3.75)
    grid = Grid(axes, 0.1, 3.3, 4, 4, 0.5, 0.5)
    grid.fill(1, 2, 1, 1, LIGHT_BLUE)
    grid.lines()
    grid.outline(1, 2, 1, 1)
    _caption(grid, "grid", "one block for\neach tile of c")
    block = Grid(axes, 3.1, 3.3, 16, 16, 0.125, 0.125)
    block.fill(0, 0, 16, 16, LIGHT_BLUE)
    block.fill(0, 0, 2, 16, LIGHT_YELLOW, "//")
    block.lines()
    block.outline(0, 0, 2, 16)
    _caption(block, "block: 16 x 16 threads", "a warp is 32 threads with\nconsecutive numbers: x first, then y")
    arrow(axes, (grid.middle(1, 2)[0] + 0.3, grid.middle(1, 2)[1]), (3.02, grid.middle(1, 2)[1]))
    for y, height, colour, title, text in (
        (2.65, 0.65, LIGHT_GREEN, "registers", "of one thread: sums, indices"),
        (1.75, 0.65, LIGHT_YELLOW, "shared memory", "of one block: 32 banks of 4 bytes"),
        (0.85, 0.65, LIGHT_GREY, "global memory", "of all: sectors of 32 bytes"),
    ):
        box(axes, 5.9, y, 3.6, height, f"{title}\n{text}", colour, fontsize=10)
    axes.text(5.9, 3.42, "memories, fastest first", fontsize=10.5, weight="bold")
    axes.text(
        5.9,
        0.72,
        "A barrier waits for all threads of a block.\nNothing waits for another block.",
        fontsize=9.5,
        va="top",
    )
    return set_alt_text(
        figure,
        "A grid has a block for each tile of c; a block has 16 by 16 threads, of which the first two rows are a warp.",
        "A thread has registers, a block has shared memory in 32 banks, and all blocks share global memory.",
    )


def _caption(grid: Grid, title: str, text: str) -> None:
    grid.axes.text(grid.left, grid.top + 0.12, title, fontsize=10.5, weight="bold")
    grid.axes.text(grid.left, grid.bottom - 0.12, text, fontsize=9.5, va="top")


def lanes(reports: Mapping[str, Report]) -> Figure:
    """Draw which elements of global memory the first request of a warp touches, and the sectors that serve it.

    Args:
        reports: Of kernels with float32 matrices of 16 columns or more, by name. The first access to each array is
            drawn.
    """
    columns = max(len(_first_accesses(report)) for report in reports.values())
    figure, axes = canvas(1.3 + 2.8 * columns, 3.1 * len(reports) + 0.3)
    descriptions = []
    for i, (name, report) in enumerate(reports.items()):
        top = 3.1 * (len(reports) - i) - 0.15
        axes.text(0.05, top - 1.1, name, fontsize=11, weight="bold", va="center")
        for j, access in enumerate(_first_accesses(report)):
            grid = Grid(axes, 1.35 + 2.8 * j, top, SHOWN, SHOWN, 0.14, 0.14)
            descriptions.append(f"{name}: {_draw_request(axes, grid, access)}")
    note = "blue: what the 32 threads of the first warp touch at once; boxes: sectors of 32 bytes that are fetched"
    axes.text(0.05, 0.08, note, fontsize=9, color=MUTED, style="italic")
    return set_alt_text(figure, "What a warp touches in global memory at once.", "; ".join(descriptions) + ".")


def _first_accesses(report: Report) -> list[Access]:
    found: dict[str, Access] = {}
    for access in report.accesses:
        if not access.shared:
            found.setdefault(access.array, access)
    return list(found.values())


def _draw_request(axes: Axes, grid: Grid, access: Access) -> str:
    """Draw the upper left part of a matrix, and return what is to be seen in words."""
    offsets = access.lanes_of_first[access.lanes_of_first >= 0]
    elements, sectors = np.unique(offsets // WORD), np.unique(offsets // SECTOR)
    width, row = SECTOR // WORD, access.shape[1]
    for sector in sectors:
        at = divmod(int(sector) * width, row)
        if max(at) < SHOWN:
            grid.fill(*at, 1, width, "#d9d9d9")
    for element in elements:
        at = divmod(int(element), row)
        if max(at) < SHOWN:
            grid.fill(*at, 1, 1, SKY)
    grid.lines()
    for sector in sectors:
        at = divmod(int(sector) * width, row)
        if max(at) < SHOWN:
            grid.outline(*at, 1, width, lw=1.2, ec=DARK)
    kind = "written" if access.write else "read"
    axes.text(grid.left, grid.top + 0.06, f"{access.array}, {kind}", fontsize=10, weight="bold", va="bottom")
    text = f"{len(elements)} numbers in {len(sectors)} {'sector' if len(sectors) == 1 else 'sectors'}"
    axes.text(grid.left, grid.bottom - 0.07, text, fontsize=9.5, va="top")
    return f"{access.array}, {kind}, {text}"


def tiles() -> Figure:
    """Draw how a block walks through a and b, tile after tile, and keeps the current ones in shared memory."""
    n, tile = 8, 2
    figure, axes = canvas(9.6, 3.5)
    cell, step = 0.27, n // tile // 2
    grids = {name: Grid(axes, left, 3.05, n, n, cell, cell) for name, left in (("a", 0.1), ("b", 2.65), ("c", 7.25))}
    row = tile * (n // tile // 3)
    for name, grid in grids.items():
        if name != "c":
            along = (row, 0, tile, n) if name == "a" else (0, row, n, tile)
            grid.fill(*along, LIGHT_GREY)
        at = {"a": (row, tile * step), "b": (tile * step, row), "c": (row, row)}[name]
        grid.fill(*at, tile, tile, {"a": LIGHT_BLUE, "b": LIGHT_YELLOW, "c": LIGHT_GREEN}[name])
        grid.lines()
        grid.outline(*at, tile, tile)
        axes.text(grid.left, grid.top + 0.08, name, fontsize=11, weight="bold")
    grids["a"].path([(row + tile / 2 - 0.5, 0), (row + tile / 2 - 0.5, n - 1)], color=MUTED)
    grids["b"].path([(0, row + tile / 2 - 0.5), (n - 1, row + tile / 2 - 0.5)], color=MUTED)
    box(axes, 5.2, 2.2, 1.5, 0.62, "tile of a", LIGHT_BLUE, fontsize=10)
    box(axes, 5.2, 1.35, 1.5, 0.62, "tile of b", LIGHT_YELLOW, fontsize=10)
    axes.text(5.95, 3.12, "shared memory", fontsize=10.5, weight="bold", ha="center")
    arrow(axes, (4.87, 1.95), (5.17, 1.95))
    arrow(axes, (6.73, 1.95), (7.2, 1.95))
    steps = (
        "1  each thread loads one number of each tile\n2  barrier: both tiles are complete\n"
        "3  each thread multiplies a row of one by a column of the other\n4  barrier: nobody needs them any more"
    )
    axes.text(0.1, 0.72, steps, fontsize=9.5, va="top", linespacing=1.3)
    return set_alt_text(
        figure,
        "A block computes a tile of c. It walks along a band of rows of a and a band of columns of b, tile by tile.",
        "Each pair of tiles is loaded into shared memory, between two barriers all threads of the block multiply them.",
    )
