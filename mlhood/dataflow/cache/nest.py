"""Memory layouts of a sliced convolution's tiles, and the simulation of its loads and stores.

`packed` makes every tile of a slice contiguous and aligned to a cache line, as the closed forms assume. `in_place` is
what `mlhood.dataflow.sliced` does: windows are read from the padded input through a table of offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.cache.hierarchy import Hierarchy, HitCounts, look_up_nest
from mlhood.dataflow.slicing.problem import FLOAT_BYTES, Problem, Slicing, counts
from mlhood.kernels.geometry import Geometry

_PAGE = 4096


@dataclass(frozen=True)
class Layout:
    """Byte addresses of tiles.

    Args:
        inputs: int64 [slices, input tiles]: the first window of a tile.
        steps: int64 [C * KH * KW]: offset of each reduction step from there.
        weights: int64 [slices, weight tiles]: the first weight of a slice of a tile.
        outputs: int64 [input tiles, weight tiles]: the partial sums of a pair.
        window_stride: Bytes from window to window.
    """

    inputs: np.ndarray
    steps: np.ndarray
    weights: np.ndarray
    outputs: np.ndarray
    window_stride: int = FLOAT_BYTES


def packed(problem: Problem, slicing: Slicing, line: int) -> Layout:
    """Return the layout in which each tile of a slice is contiguous."""
    slices, slice_depth, depth = _slices(problem, slicing)
    input_bytes, weight_bytes = slicing.k1 * problem.input_bytes, slicing.k1 * problem.weight_bytes
    inputs = _aligned((slices, problem.input_tiles), input_bytes, line, 0)
    weights = _aligned((slices, problem.weight_tiles), weight_bytes, line, _next_page(inputs, input_bytes))
    outputs = _pairs(problem, slicing, _round_up(problem.output_bytes, line), _next_page(weights, weight_bytes))
    steps = np.arange(depth, dtype=np.int64) % slice_depth * (problem.window * FLOAT_BYTES)
    return Layout(inputs, steps, weights, outputs)


def in_place(g: Geometry, problem: Problem, slicing: Slicing) -> Layout:
    """Return the layout of `mlhood.dataflow.sliced.sliced.Sliced` for one image.

    Input, weights and sums each begin at a page. Not modelled: the last slice writes its sums to the result instead.
    """
    slices, slice_depth, depth = _slices(problem, slicing)
    (height, width), rows = g.padded, problem.rows or 1
    per_row = g.out[0] * g.out[1] // rows
    tiles = -(-per_row // problem.window)
    first = np.minimum(np.arange(tiles) * problem.window, max(0, per_row - problem.window))
    windows = np.arange(rows)[:, None] * (g.stride[0] * width) + first * g.stride[1]
    inputs = np.broadcast_to(windows.ravel() * FLOAT_BYTES, (slices, problem.input_tiles))
    begin = _round_up(g.channels * height * width * FLOAT_BYTES, _PAGE)
    step, tile = np.arange(slices)[:, None] * slice_depth, np.arange(problem.weight_tiles)
    weights = begin + (tile * depth + step) * (problem.filter_tile * FLOAT_BYTES)
    begin = _round_up(begin + problem.weight_tiles * depth * problem.filter_tile * FLOAT_BYTES, _PAGE)
    outputs = _pairs(problem, slicing, problem.output_bytes, begin)
    parts = (inputs, g.offsets() * FLOAT_BYTES, weights, outputs)
    return Layout(*(np.ascontiguousarray(part, np.int64) for part in parts), window_stride=g.stride[1] * FLOAT_BYTES)


def simulate(problem: Problem, slicing: Slicing, hierarchy: Hierarchy, layout: Layout | None = None) -> HitCounts:
    """Run a sliced convolution's loads and stores through caches, and return the caches' hits so far.

    Args:
        problem: The convolution.
        slicing: Its tiles and their order; legal or not.
        hierarchy: The caches; they keep their contents.
        layout: The addresses of the tiles; packed if None.
    """
    at = layout or packed(problem, slicing, hierarchy.line)
    _, slice_depth, depth = _slices(problem, slicing)
    tile = (problem.window, problem.filter_tile, at.window_stride, problem.output_bytes)
    sizes = np.array((depth, slice_depth, slicing.k2, slicing.k3, *tile), np.int64)
    addresses = (at.inputs, at.steps, at.weights, at.outputs)
    caches = (hierarchy.shift, hierarchy.tags, hierarchy.shapes, hierarchy.counts)
    look_up_nest(slicing.order == "IS", sizes, *addresses, *caches)
    return hierarchy.hits


def _slices(problem: Problem, slicing: Slicing) -> tuple[int, int, int]:
    """Return the number of slices, and the reduction steps of one and of all."""
    area = problem.kernel[0] * problem.kernel[1]
    return -(-problem.channels // slicing.k1), slicing.k1 * area, problem.channels * area


def _aligned(shape: tuple[int, int], size: int, line: int, begin: int) -> np.ndarray:
    """Return addresses of consecutive blocks, each aligned to a cache line."""
    count = shape[0] * shape[1]
    return (begin + np.arange(count, dtype=np.int64) * _round_up(size, line)).reshape(shape)


def _pairs(problem: Problem, slicing: Slicing, size: int, begin: int) -> np.ndarray:
    """Return the addresses of the sums of [input tile, weight tile], in the order in which the nest visits them."""
    streamed, stationary = counts(problem, slicing.order)
    addresses = begin + np.arange(stationary * streamed, dtype=np.int64).reshape(stationary, streamed) * size
    return addresses if slicing.order == "IS" else np.ascontiguousarray(addresses.T)


def _next_page(blocks: np.ndarray, size: int) -> int:
    return _round_up(int(blocks.max()) + size, _PAGE)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
