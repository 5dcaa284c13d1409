"""Figures of a convolution: one window by the definition, and the im2col matrix of all windows."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlhood.kernels.conv import im2col
from mlhood.kernels.geometry import Geometry, geometry
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import (
    DARK,
    LIGHT_BLUE,
    LIGHT_GREEN,
    LIGHT_GREY,
    LIGHT_YELLOW,
    MUTED,
    SMALL,
    Grid,
    arrow,
    canvas,
)

_CHANNELS = (LIGHT_BLUE, LIGHT_YELLOW)


def window() -> Figure:
    """Draw a convolution by its definition: one channel of example values, a window, its output pixel, the sum.

    The image has 6 x 6 pixels and one zero around, the kernel 3 x 3, the stride is 1.
    """
    size, kernel, padding, cell = 6, 3, 1, 4.6 / 17
    g = geometry((1, 1, size, size), (1, 1, kernel, kernel), 1, padding)
    high, out = size + 2 * padding, g.out[0]
    rng = np.random.default_rng(3)
    x, w = np.pad(rng.integers(1, 6, (size, size)), padding), rng.integers(-1, 2, (kernel, kernel))
    pixel = (0, 2)
    tall = high * cell
    figure, axes = canvas(7.0, tall + 1.75)
    middle = 0.95 + tall / 2
    image = Grid(axes, 0.4, middle + high * cell / 2, high, high, cell, cell)
    weights = Grid(axes, image.right + 0.85, middle + kernel * cell / 2, kernel, kernel, cell, cell)
    result = Grid(axes, weights.right + 0.75, middle + out * cell / 2, out, out, cell, cell)
    _image(image, x, g, pixel)
    weights.fill(0, 0, kernel, kernel, LIGHT_BLUE)
    _numbers(weights, w)
    weights.outline(0, 0, kernel, kernel)
    result.fill(*pixel, 1, 1, LIGHT_GREEN)
    y = np.einsum("rqij,ij->rq", np.lib.stride_tricks.sliding_window_view(x, w.shape), w)
    _numbers(result, y)
    result.outline(*pixel, 1, 1)
    border = ", 1 zero around"
    for grid, title in (
        (image, f"image x\n{size} × {size}{border}"),
        (weights, f"filter w\n{kernel} × {kernel}"),
        (result, f"result y\n{out} × {out}"),
    ):
        axes.text(grid.centre[0], grid.top + 0.3, title, ha="center", va="bottom", fontsize=9.5, weight="bold")
    for left, right, sign in ((image, weights, "*"), (weights, result, "=")):
        axes.text((left.right + right.left) / 2 - 0.1, middle, sign, ha="center", va="center", fontsize=16)
    _sum(axes, x, w, pixel)
    return set_alt_text(
        figure,
        f"An image of {size} x {size} pixels{border}, a filter of {kernel} x {kernel}, a result of {out} x {out}.",
        f"A window of the image times the filter, summed, is pixel {pixel} of the result: {y[pixel]}.",
    )


def _image(image: Grid, x: np.ndarray, g: Geometry, pixel: tuple[int, int]) -> None:
    """Draw the padded image, the window in heavy lines and the next one dashed."""
    padding, kernel = g.padding[0], g.kernel[0]
    image.fill(0, 0, image.rows, image.columns, LIGHT_GREY, "//")
    image.fill(padding, padding, g.height, g.width, "white")
    row, column = pixel
    image.fill(row, column, kernel, kernel, LIGHT_YELLOW)
    _numbers(image, x, first=-padding)
    image.outline(padding, padding, g.height, g.width, lw=1.2, ec=MUTED)
    image.outline(row, column, kernel, kernel)
    image.outline(row, column + 1, kernel, kernel, ls=(0, (3, 2)), lw=1.4)


def _numbers(grid: Grid, values: np.ndarray, first: int = 0) -> None:
    """Write a grid's values and its indices, which start at `first`."""
    grid.heads(range(first, first + grid.rows), range(first, first + grid.columns))
    _values(grid, values)


def _values(grid: Grid, values: np.ndarray) -> None:
    grid.lines()
    for (row, column), value in np.ndenumerate(values):
        grid.write(row, column, value)


def _sum(axes: Axes, x: np.ndarray, w: np.ndarray, pixel: tuple[int, int]) -> None:
    """Write the definition with the indices of this window, then with its values."""
    row, column = pixel
    definition = f"y[{row}, {column}] = sum over i, j of x[{row}·1 + i − 1, {column}·1 + j − 1] · w[i, j]"
    values = x[row:, column:][: w.shape[0], : w.shape[1]]
    terms = [f"{a}·{b}" if b >= 0 else f"{a}·({b})" for a, b in zip(values.ravel(), w.ravel(), strict=True)]
    axes.text(0.4, 0.62, definition, fontsize=10, va="center", weight="bold")
    axes.text(0.4, 0.36, f"     = {' + '.join(terms)}  =  {int((values * w).sum())}", fontsize=9.5, va="center")
    notes = "heavy lines: this window; dashed: the next one, 1 further (stride); hatched: padding"
    axes.text(0.4, 0.1, notes, fontsize=9, va="center", color=MUTED, style="italic")


def im2col_layout() -> Figure:
    """Draw the im2col matrix: a column per window, a row per position in a window, and the product that follows.

    The image has 2 channels of 4 x 4 pixels, the kernel 3 x 3, the stride is 1, there is no padding.
    """
    channels, size, kernel = 2, 4, 3
    g = geometry((1, channels, size, size), (1, channels, kernel, kernel), 1, 0)
    count = g.out[0] * g.out[1]
    wide, high, pixel = 0.34, 0.25, 0.27
    stack = channels * size * pixel + (channels - 1) * 0.45
    tall, left = g.depth * high, size * pixel + 1.05
    figure, axes = canvas(left + count * wide + 3.5, tall + 0.95)
    middle = tall / 2 + 0.4
    columns = Grid(axes, left, middle + g.depth * high / 2, g.depth, count, wide, high)
    window, position = 1, 5
    numbers = np.arange(1, channels * size**2 + 1).reshape(channels, size, size)
    matrix = im2col(g, numbers.astype(np.float32))[0].astype(int)
    for channel in range(channels):
        top = middle + stack / 2 - channel * (size * pixel + 0.45)
        grid = Grid(axes, 0.3, top, size, size, pixel, pixel)
        _channel(grid, numbers[channel], g, channel, window, position)
        _bracket(columns, grid, channel, kernel * kernel)
    _columns(columns, matrix, g, window, position)
    _legend(axes, columns.right + 0.8, middle + 1.55, g, window, position)
    _product(axes, columns.right + 0.8, middle - 1.3, g, window)
    return set_alt_text(
        figure,
        f"An image of {channels} channels, {size} x {size} pixels each, as a matrix of {g.depth} x {count}.",
        "Each column is one window, each row one position (c, i, j) in all windows; weights times columns is y.",
    )


def _channel(grid: Grid, x: np.ndarray, g: Geometry, channel: int, window: int, position: int) -> None:
    """Draw one channel, the selected window in heavy lines, and rings around the elements of the selected row."""
    kernel = g.kernel[0]
    grid.fill(0, 0, grid.rows, grid.columns, _CHANNELS[channel])
    _values(grid, x)
    grid.outline(*divmod(window, g.out[1]), kernel, kernel)
    grid.axes.text(grid.left, grid.top + 0.06, f"channel {channel}", fontsize=9, va="bottom")
    if position // kernel**2 == channel:
        i, j = divmod(position % kernel**2, kernel)
        for r, q in np.ndindex(g.out):
            _ring(grid, r + i, q + j)


def _ring(grid: Grid, row: int, column: int) -> None:
    x, y = grid.middle(row, column)
    grid.axes.plot(x, y, "o", ms=15, mfc="none", mec=DARK, mew=0.9, zorder=3)


def _bracket(columns: Grid, grid: Grid, channel: int, rows: int) -> None:
    """Connect a channel with its rows of the matrix."""
    top, bottom = columns.top - channel * rows * columns.high, columns.top - (channel + 1) * rows * columns.high
    x, axes = columns.left - 0.12, columns.axes
    axes.plot([x + 0.06, x, x, x + 0.06], [top - 0.05, top - 0.05, bottom + 0.05, bottom + 0.05], color=DARK, lw=1.2)
    arrow(axes, (grid.right + 0.1, grid.centre[1]), (x - 0.02, (top + bottom) / 2))


def _columns(columns: Grid, matrix: np.ndarray, g: Geometry, window: int, position: int) -> None:
    """Draw the matrix: a channel's rows in its colour, the selected column in heavy lines, the row in rings."""
    kernel, per_channel = g.kernel[0], g.kernel[0] ** 2
    for channel in range(g.channels):
        columns.fill(channel * per_channel, 0, per_channel, columns.columns, _CHANNELS[channel])
    _values(columns, matrix)
    columns.outline(0, window, columns.rows, 1)
    axes, x = columns.axes, columns.left + (window + 1) * columns.wide
    pixel = divmod(window, g.out[1])
    title = f"window ({pixel[0]}, {pixel[1]})"
    axes.text(x, columns.top + 0.06, title, fontsize=9, ha="right", va="bottom", weight="bold")
    for column in range(columns.columns):
        _ring(columns, position, column)
    for row in range(columns.rows):
        channel, offset = divmod(row, per_channel)
        text, y = f"{channel}, {offset // kernel}, {offset % kernel}", columns.middle(row, 0)[1]
        weight, colour = ("bold", DARK) if row == position else ("normal", MUTED)
        axes.text(columns.right + 0.1, y, text, fontsize=SMALL, va="center", weight=weight, color=colour)
    axes.text(columns.right + 0.1, columns.top + 0.06, "c, i, j", fontsize=9, va="bottom", style="italic")


def _legend(axes: Axes, left: float, top: float, g: Geometry, window: int, position: int) -> None:
    """Explain the selected column and the selected row."""
    (kernel, _), pixel = g.kernel, divmod(window, g.out[1])
    channel, offset = divmod(position, kernel**2)
    indices = f"channel {channel}, i = {offset // kernel}, j = {offset % kernel}"
    entries = (
        ("heavy lines: one column", f"is one window, the one\nof pixel ({pixel[0]}, {pixel[1]}) of the result"),
        ("rings: one row", f"is one position in all windows,\n{indices}"),
    )
    for i, (what, text) in enumerate(entries):
        axes.text(left, top - 0.75 * i, what, fontsize=9, weight="bold", va="top")
        axes.text(left, top - 0.75 * i - 0.19, text, fontsize=9, va="top", linespacing=1.3)


def _product(axes: Axes, left: float, bottom: float, g: Geometry, window: int) -> None:
    """Draw weights times columns as boxes: a filter (a row) times a window (a column) is one element of y."""
    long, count, few = 1.0, 0.45, 0.5
    middle = bottom + long / 2
    boxes = (
        (0.0, long, few, "weights", f"[F, {g.depth}]", LIGHT_GREEN),
        (1.25, count, long, "columns", f"[{g.depth}, {g.out[0] * g.out[1]}]", LIGHT_GREY),
        (2.1, count, few, "y", f"[F, {g.out[0] * g.out[1]}]", "white"),
    )
    for x, wide, high, name, shape, colour in boxes:
        grid = Grid(axes, left + x, middle + high / 2, 1, 1, wide, high)
        grid.fill(0, 0, 1, 1, colour)
        grid.outline(0, 0, 1, 1, lw=1)
        axes.text(grid.centre[0], middle + long / 2 + 0.08, name, ha="center", va="bottom", fontsize=9, weight="bold")
        axes.text(grid.centre[0], middle - long / 2 - 0.08, shape, ha="center", va="top", fontsize=9)
    column = left + 1.25 + count * (window + 0.5) / (g.out[0] * g.out[1])
    across = column - left - 1.25
    row = middle + few / 4
    axes.plot([left, left + long], [row, row], color=DARK, lw=2.5)
    axes.plot([column, column], [middle - long / 2, middle + long / 2], color=DARK, lw=2.5)
    axes.plot(left + 2.1 + across, row, "s", color=DARK, ms=5)
    for x, sign in ((1.125, "×"), (1.9, "=")):
        axes.text(left + x, middle, sign, ha="center", va="center", fontsize=13)
