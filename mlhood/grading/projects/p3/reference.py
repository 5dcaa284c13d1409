"""The reference convolutions of P3's checks, in NumPy and float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Shape = tuple[int, int, int, int]
Steps = int | tuple[int, int]
# the order of the rows of `im2col`: the axes that they are made of
ROWS = ("C, KH, KW", "KH, KW, C", "KW, KH, C", "C, KW, KH")
# which of stride and padding is a pair in `im2col`, and of what
STEPS = ("same", "strides", "paddings", "sides")


@dataclass(frozen=True)
class ConvolutionShapes:
    """The shapes of one convolution: x [N, C, H, W], w [F, C, KH, KW], y [N, F, OH, OW]."""

    x: Shape
    w: Shape
    y: Shape

    @property
    def macs(self) -> int:
        """Multiply-accumulates: one for each element of a window, for each output."""
        return math.prod(self.y) * math.prod(self.w[1:])

    @property
    def bytes(self) -> int:
        """Bytes of input, weights and output in float32."""
        return 4 * sum(math.prod(shape) for shape in (self.x, self.w, self.y))

    @property
    def column_bytes(self) -> int:
        """Bytes of the columns that im2col makes of the batch, in float32."""
        return 4 * self.x[0] * math.prod(self.w[1:]) * math.prod(self.y[2:])

    def __str__(self) -> str:
        return f"x={self.x}, w={self.w}, y={self.y}"


def draw_shapes(rng: np.random.Generator, times: int = 1) -> ConvolutionShapes:
    """Draw the shapes of a layer; sizes that are easily confused differ.

    Args:
        rng: They are drawn from it.
        times: As many channels, filters and pixels along an axis; with 17, there is more to count than fits in 32 bits.
    """
    images, high, wide = int(rng.integers(2, 4)), *(int(n) for n in rng.permutation(times * np.arange(20, 60))[:2])
    channels, filters = (int(n) for n in rng.permutation(times * np.arange(5, 40))[:2])
    kernel = [int(n) for n in rng.permutation([1, 2, 3, 4])[:2]]
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
    out = [output_size(size, k, stride, padding) for size, k in zip((high, wide), kernel, strict=True)]
    return ConvolutionShapes((images, channels, high, wide), (filters, channels, *kernel), (images, filters, *out))  # type: ignore[arg-type]


def output_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Number of positions of a window along one axis."""
    return (size + 2 * padding - kernel) // stride + 1


def columns(
    x: np.ndarray, kernel: tuple[int, int], stride: Steps, padding: Steps, rows: str = ROWS[0], steps: str = STEPS[0]
) -> np.ndarray:
    """Return every window of an image as a column.

    Args:
        x: [C, H, W].
        kernel: KH and KW.
        stride: Step in both directions; a pair, vertical and horizontal, if `steps` is `strides`.
        padding: Zeros on all four sides; a pair, above/below and left/right, if `steps` is `paddings`; above/left and
            below/right, if it is `sides`.
        rows: The order of the rows, one of `ROWS`.
        steps: Which of the two is a pair, one of `STEPS`.

    Returns:
        [C * KH * KW, OH * OW] of x's dtype.
    """
    down, right = stride if steps == "strides" else (stride, stride)  # type: ignore[misc]
    first, second = padding if steps in ("paddings", "sides") else (padding, padding)  # type: ignore[misc]
    sides = ((first, second), (first, second)) if steps == "sides" else ((first, first), (second, second))
    padded = np.pad(x, ((0, 0), *sides))
    windows = sliding_window_view(padded, kernel, axis=(1, 2))[:, ::down, ::right]  # C, OH, OW, KH, KW
    axes = {"C": 0, "KH": 3, "KW": 4}
    order = [axes[name] for name in rows.split(", ")]
    return windows.transpose(*order, 1, 2).reshape(x.shape[0] * math.prod(kernel), -1)


def convolution(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """Return the convolution of a batch.

    Args:
        x: [N, C, H, W].
        w: [F, C, KH, KW].
        bias: [F].
        stride: Step in both directions.
        padding: Zeros on all four sides.

    Returns:
        float64 [N, F, OH, OW].
    """
    kernel = (w.shape[2], w.shape[3])
    high, wide = (output_size(size, k, stride, padding) for size, k in zip(x.shape[2:], kernel, strict=True))
    flat = w.reshape(len(w), -1).astype(np.float64)
    images = [flat @ columns(image.astype(np.float64), kernel, stride, padding) for image in x]
    return np.stack(images).reshape(len(x), len(w), high, wide) + bias.astype(np.float64)[:, None, None]
