"""Where the tiles of a sliced convolution lie, and what its nest looks up there.

`packed` puts every tile of a slice into one piece that begins at a cache line: what the closed forms count.
`in_place` is what `mlhood.dataflow.sliced` does: windows are read from the padded input through a table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.cache import lru
from mlhood.dataflow.cache.hierarchy import Hierarchy, Served
from mlhood.dataflow.slicing.problem import NUMBER, Problem, Slicing, counts
from mlhood.kernels.geometry import Geometry

_PAGE = 4096


@dataclass(frozen=True)
class Layout:
    """Addresses of tiles, in bytes.

    Args:
        inputs: int64 [slices, input tiles]: the first window of a tile.
        steps: int64 [C * KH * KW]: from there to the number for each k.
        weights: int64 [slices, weight tiles]: the first number of a slice of a tile.
        outputs: int64 [input tiles, weight tiles]: the sums of a pair.
        spread: Between neighbouring windows.
    """

    inputs: np.ndarray
    steps: np.ndarray
    weights: np.ndarray
    outputs: np.ndarray
    spread: int = NUMBER


def packed(problem: Problem, slicing: Slicing, line: int) -> Layout:
    """Return the layout in which each tile of a slice is one piece."""
    slices, one_slice, depth = _slices(problem, slicing)
    input_bytes, weight_bytes = slicing.k1 * problem.input_bytes, slicing.k1 * problem.weight_bytes
    inputs = _pieces((slices, problem.input_tiles), input_bytes, line, 0)
    weights = _pieces((slices, problem.weight_tiles), weight_bytes, line, _after(inputs, input_bytes))
    outputs = _pairs(problem, slicing, _round_up(problem.output_bytes, line), _after(weights, weight_bytes))
    steps = np.arange(depth, dtype=np.int64) % one_slice * (problem.window * NUMBER)
    return Layout(inputs, steps, weights, outputs)


def in_place(g: Geometry, problem: Problem, slicing: Slicing) -> Layout:
    """Return the layout of `mlhood.dataflow.sliced.sliced.Sliced` for one image.

    Input, weights and sums each begin at a page. One thing is left out: the last slice's sums go into the result.
    """
    slices, one_slice, depth = _slices(problem, slicing)
    (high, wide), rows = g.padded, problem.rows or 1
    per_row = g.out[0] * g.out[1] // rows
    tiles = -(-per_row // problem.window)
    first = np.minimum(np.arange(tiles) * problem.window, max(0, per_row - problem.window))
    windows = np.arange(rows)[:, None] * (g.stride[0] * wide) + first * g.stride[1]
    inputs = np.broadcast_to(windows.ravel() * NUMBER, (slices, problem.input_tiles))
    begin = _round_up(g.channels * high * wide * NUMBER, _PAGE)
    k, tile = np.arange(slices)[:, None] * one_slice, np.arange(problem.weight_tiles)
    weights = begin + (tile * depth + k) * (problem.filter_tile * NUMBER)
    begin = _round_up(begin + problem.weight_tiles * depth * problem.filter_tile * NUMBER, _PAGE)
    outputs = _pairs(problem, slicing, problem.output_bytes, begin)
    whole = (np.ascontiguousarray(part, np.int64) for part in (inputs, g.distances() * NUMBER, weights, outputs))
    return Layout(*whole, spread=g.stride[1] * NUMBER)


def simulate(problem: Problem, slicing: Slicing, hierarchy: Hierarchy, layout: Layout | None = None) -> Served:
    """Run a sliced convolution's loads and stores through caches, and return what each level has served so far.

    Args:
        problem: The convolution.
        slicing: Its tiles and their order; legal or not.
        hierarchy: The caches; they keep what they hold.
        layout: Where the tiles are; packed if None.
    """
    where = layout or packed(problem, slicing, hierarchy.line)
    _, one_slice, depth = _slices(problem, slicing)
    sizes = (depth, one_slice, slicing.k2, slicing.k3, problem.window, problem.filter_tile, where.spread,
             problem.output_bytes)  # fmt: skip
    lru.look_up_nest(
        slicing.order == "IS", np.array(sizes, np.int64), where.inputs, where.steps, where.weights, where.outputs,
        hierarchy.shift, hierarchy.tags, hierarchy.shapes, hierarchy.counts,
    )  # fmt: skip
    return hierarchy.served


def _slices(problem: Problem, slicing: Slicing) -> tuple[int, int, int]:
    """Return the number of slices, and the numbers k of one and of all."""
    area = problem.kernel[0] * problem.kernel[1]
    return -(-problem.channels // slicing.k1), slicing.k1 * area, problem.channels * area


def _pieces(shape: tuple[int, int], size: int, line: int, begin: int) -> np.ndarray:
    """Return addresses of pieces of memory, one after the other, each at the beginning of a line."""
    count = shape[0] * shape[1]
    return (begin + np.arange(count, dtype=np.int64) * _round_up(size, line)).reshape(shape)


def _pairs(problem: Problem, slicing: Slicing, size: int, begin: int) -> np.ndarray:
    """Return where the sums of [input tile, weight tile] are: in the order in which the nest comes to them."""
    passing, staying = counts(problem, slicing.order)
    places = begin + np.arange(staying * passing, dtype=np.int64).reshape(staying, passing) * size
    return places if slicing.order == "IS" else np.ascontiguousarray(places.T)


def _after(pieces: np.ndarray, size: int) -> int:
    return _round_up(int(pieces.max()) + size, _PAGE)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
