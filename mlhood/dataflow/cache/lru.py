"""The inner loops of the simulator, compiled by Numba: looking up a list of lines, and a nest of slices.

A set keeps its lines in the order of their last use, the latest first: a look-up moves the line to the front, and a
line that was not there pushes the last one out. Lines are looked up by the list, as a call for each costs more than
the look-up.
"""

from __future__ import annotations

import numpy as np
from numba import njit

EMPTY = -1


@njit(cache=True, nogil=True)
def look_up(lines: np.ndarray, tags: np.ndarray, shapes: np.ndarray, found: np.ndarray) -> None:
    """Look for each line in one level after the other, and write which one had it; all before it then have it, too.

    Args:
        lines: int64 [n], numbers of lines.
        tags: int64: the lines that each place holds, set by set and level by level.
        shapes: int64 [levels, 3]: where a level's places begin in `tags`, its sets and its ways.
        found: uint8 [n]: for each line the level, or their number if none had it.
    """
    levels = shapes.shape[0]
    for number in range(lines.shape[0]):
        line = lines[number]
        level = 0
        while level < levels:
            place = shapes[level, 0] + (line & (shapes[level, 1] - 1)) * shapes[level, 2]
            end = place + shapes[level, 2]
            here, moved = tags[place], line
            while here != line:
                tags[place] = moved
                moved = here
                place += 1
                if place == end:
                    break
                here = tags[place]
            if place < end:
                tags[place] = moved
                break
            level += 1
        found[number] = level


@njit(cache=True, nogil=True)
def look_up_nest(
    stay_is_input: bool,
    sizes: np.ndarray,
    inputs: np.ndarray,
    steps: np.ndarray,
    weights: np.ndarray,
    outputs: np.ndarray,
    shift: int,
    tags: np.ndarray,
    shapes: np.ndarray,
    served: np.ndarray,
) -> None:
    """Look up what a nest of slices reads and writes, call by call of the microkernel, and count who served it.

    Args:
        stay_is_input: Whether input tiles stay and weight tiles pass by, or the reverse.
        sizes: int64 [8]: numbers k of all and of one slice, k2, k3, windows and filters of a tile, then bytes:
            between windows, of an output tile.
        inputs: As in `mlhood.dataflow.cache.nest.Layout`, like the next three.
        steps: How far the numbers of each k are from a tile's first window.
        weights: Where slices of weight tiles begin.
        outputs: Where the sums of pairs begin; loaded, unless a call begins them, and stored line by line.
        shift: An address shifted right by this many bits is the number of its line.
        tags: As in `look_up`.
        shapes: As in `look_up`.
        served: int64 [levels + 1]: how many look-ups each level served; counted on.
    """
    depth, one_slice, k2, k3, windows, filters, spread, out_bytes = sizes
    staying, passing = (inputs.shape[1], weights.shape[1]) if stay_is_input else (weights.shape[1], inputs.shape[1])
    most = one_slice * (windows + filters) + 2 * (out_bytes >> shift) + 4
    lines, found = np.empty(most, np.int64), np.empty(most, np.uint8)
    for number in range(inputs.shape[0]):
        some = steps[number * one_slice : min((number + 1) * one_slice, depth)]
        for group3 in range(0, staying, k3):
            for group2 in range(0, passing, k2):
                for stays in range(group3, min(group3 + k3, staying)):
                    for passes in range(group2, min(group2 + k2, passing)):
                        i, f = (stays, passes) if stay_is_input else (passes, stays)
                        a, b, out = inputs[number, i], weights[number, f], outputs[i, f]
                        count = _write_sums(lines, 0, out, out_bytes, shift) if number else 0
                        count = _write_loads(lines, count, a, some, b, windows, filters, spread, shift)
                        count = _write_sums(lines, count, out, out_bytes, shift)
                        look_up(lines[:count], tags, shapes, found)
                        for level in found[:count]:
                            served[level] += 1


@njit(cache=True, nogil=True)
def _write_sums(lines: np.ndarray, count: int, out: int, out_bytes: int, shift: int) -> int:
    """Write the lines of an output tile behind the first `count` ones, and return how many there are then."""
    for line in range(out >> shift, ((out + out_bytes - 1) >> shift) + 1):
        lines[count] = line
        count += 1
    return count


@njit(cache=True, nogil=True)
def _write_loads(
    lines: np.ndarray,
    count: int,
    a: int,
    steps: np.ndarray,
    b: int,
    windows: int,
    filters: int,
    spread: int,
    shift: int,
) -> int:
    """Likewise, for each k, the line of each filter's number and of each window's."""
    for step in steps:
        for _ in range(filters):
            lines[count] = b >> shift
            b += 4
            count += 1
        for window in range(windows):
            lines[count] = (a + step + window * spread) >> shift
            count += 1
    return count
