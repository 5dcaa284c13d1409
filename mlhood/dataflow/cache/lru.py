"""The simulator's inner loops, compiled by Numba: look-ups of a list of lines, and of a sliced convolution's nest.

A set keeps its lines from the most to the least recently used: a look-up moves its line to the front, and a miss evicts
the last one. Lines are looked up in lists, as a call for each would cost more than the look-up.
"""

from __future__ import annotations

import numpy as np
from numba import njit

EMPTY = -1


@njit(cache=True, nogil=True)
def look_up(lines: np.ndarray, tags: np.ndarray, shapes: np.ndarray, hit_levels: np.ndarray) -> None:
    """Look up lines in one level after the other; a line is then cached in all levels up to the one that hit.

    Args:
        lines: int64 [n], line numbers: addresses divided by the line size.
        tags: int64: the lines in each slot, level by level and set by set.
        shapes: int64 [levels, 3]: a level's first slot in `tags`, its number of sets, and its ways.
        hit_levels: uint8 [n], written: the level that hit; the number of levels for memory.
    """
    levels = shapes.shape[0]
    for i in range(lines.shape[0]):
        line = lines[i]
        level = 0
        while level < levels:
            slot = shapes[level, 0] + (line & (shapes[level, 1] - 1)) * shapes[level, 2]
            end = slot + shapes[level, 2]
            resident, shifted = tags[slot], line
            while resident != line:
                tags[slot] = shifted
                shifted = resident
                slot += 1
                if slot == end:
                    break
                resident = tags[slot]
            if slot < end:
                tags[slot] = shifted
                break
            level += 1
        hit_levels[i] = level


@njit(cache=True, nogil=True)
def look_up_nest(
    input_stationary: bool,
    sizes: np.ndarray,
    inputs: np.ndarray,
    steps: np.ndarray,
    weights: np.ndarray,
    outputs: np.ndarray,
    shift: int,
    tags: np.ndarray,
    shapes: np.ndarray,
    hits: np.ndarray,
) -> None:
    """Look up the loads and stores of a sliced convolution, one microkernel call after the other, and count the hits.

    Args:
        input_stationary: Whether input tiles are stationary and weight tiles streamed, or the reverse.
        sizes: int64 [8]: reduction steps of all slices and of one, k2, k3, windows and filters of a tile, bytes from
            window to window, bytes of an output tile.
        inputs: As in `mlhood.dataflow.cache.nest.Layout`, like the next three.
        steps: Offset of each reduction step from a tile's first window.
        weights: Addresses of the slices of weight tiles.
        outputs: Addresses of the partial sums; loaded, except in the first slice, and stored line by line.
        shift: log2 of the line size.
        tags: As in `look_up`.
        shapes: As in `look_up`.
        hits: int64 [levels + 1], incremented: look-ups that each level hit.
    """
    depth, slice_depth, k2, k3, windows, filters, window_stride, out_bytes = sizes
    n_inputs, n_weights = inputs.shape[1], weights.shape[1]
    stationary, streamed = (n_inputs, n_weights) if input_stationary else (n_weights, n_inputs)
    max_lines = slice_depth * (windows + filters) + 2 * (out_bytes >> shift) + 4
    lines, hit_levels = np.empty(max_lines, np.int64), np.empty(max_lines, np.uint8)
    for part in range(inputs.shape[0]):
        part_steps = steps[part * slice_depth : min((part + 1) * slice_depth, depth)]
        for group3 in range(0, stationary, k3):
            for group2 in range(0, streamed, k2):
                for s in range(group3, min(group3 + k3, stationary)):
                    for p in range(group2, min(group2 + k2, streamed)):
                        i, f = (s, p) if input_stationary else (p, s)
                        a, b, out = inputs[part, i], weights[part, f], outputs[i, f]
                        n = _append_sums(lines, 0, out, out_bytes, shift) if part else 0
                        n = _append_operands(lines, n, a, part_steps, b, windows, filters, window_stride, shift)
                        n = _append_sums(lines, n, out, out_bytes, shift)
                        look_up(lines[:n], tags, shapes, hit_levels)
                        for level in hit_levels[:n]:
                            hits[level] += 1


@njit(cache=True, nogil=True)
def _append_sums(lines: np.ndarray, n: int, out: int, out_bytes: int, shift: int) -> int:
    """Append the lines of an output tile to the first `n`, and return their new number."""
    for line in range(out >> shift, ((out + out_bytes - 1) >> shift) + 1):
        lines[n] = line
        n += 1
    return n


@njit(cache=True, nogil=True)
def _append_operands(
    lines: np.ndarray,
    n: int,
    a: int,
    steps: np.ndarray,
    b: int,
    windows: int,
    filters: int,
    window_stride: int,
    shift: int,
) -> int:
    """Likewise the lines of the weights and of the input elements of each reduction step."""
    for step in steps:
        for _ in range(filters):
            lines[n] = b >> shift
            b += 4
            n += 1
        for window in range(windows):
            lines[n] = (a + step + window * window_stride) >> shift
            n += 1
    return n
