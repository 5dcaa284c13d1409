"""The memory layout of a sliced convolution's tiles, and the simulation of its loads and stores.

Every tile of a slice is contiguous and aligned to a cache line, as the closed forms assume.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.cache.hierarchy import Hierarchy, HitCounts, look_up_nest
from mlhood.dataflow.slicing.problem import FLOAT_BYTES, Problem, Slicing, counts

_PAGE = 4096


@dataclass(frozen=True)
class AddressLayout:
    """Byte addresses of tiles.

    Args:
        inputs: int64 [slices, input tiles]: the first window of a tile.
        steps: int64 [C * KH * KW]: offset of each reduction step from there.
        weights: int64 [slices, weight tiles]: the first weight of a slice of a tile.
        outputs: int64 [input tiles, weight tiles]: the partial sums of a pair.
    """

    inputs: np.ndarray
    steps: np.ndarray
    weights: np.ndarray
    outputs: np.ndarray


def packed(problem: Problem, slicing: Slicing, line: int) -> AddressLayout:
    """Return the layout in which each tile of a slice is contiguous."""
    slices, slice_depth, depth = _slices(problem, slicing)
    input_bytes, weight_bytes = slicing.k1 * problem.input_bytes, slicing.k1 * problem.weight_bytes
    inputs = _aligned((slices, problem.input_tiles), input_bytes, line, 0)
    weights = _aligned((slices, problem.weight_tiles), weight_bytes, line, _next_page(inputs, input_bytes))
    outputs = _pairs(problem, slicing, _round_up(problem.output_bytes, line), _next_page(weights, weight_bytes))
    steps = np.arange(depth, dtype=np.int64) % slice_depth * (problem.window * FLOAT_BYTES)
    return AddressLayout(inputs, steps, weights, outputs)


def simulate(problem: Problem, slicing: Slicing, hierarchy: Hierarchy) -> HitCounts:
    """Run a sliced convolution's loads and stores through caches, and return the caches' hits so far.

    Args:
        problem: The convolution.
        slicing: Its tiles and their order; legal or not.
        hierarchy: The caches; they keep their contents.
    """
    at = packed(problem, slicing, hierarchy.line)
    _, slice_depth, depth = _slices(problem, slicing)
    tile = (problem.window, problem.filter_tile, FLOAT_BYTES, problem.output_bytes)
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
