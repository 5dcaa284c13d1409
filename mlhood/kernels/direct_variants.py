"""The choice of a direct convolution's variant: register tile, what is in the lanes, and what is prefetched."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from mlhood.kernels.codegen.direct_kernel import DirectVariant
from mlhood.kernels.codegen.microkernel import CACHE_LINE, Tile, candidates
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.geometry import Geometry, Layout

WEIGHT_BYTES = 256 * 1024  # reused by every tile of a task: fits the second-level cache together with the input
MAX_CHUNK = 28  # tiles
PLAIN_PREFETCH = 16  # k of a pointwise convolution: every channel is in another page
_TRANSPOSE = 3  # cycles per column of a tile: shuffles and a store
_MAX_UNROLL = 16
_PREFETCHED_UNROLL = 8  # an iteration prefetches a line of each row, which shorter ones have no time for
_CACHED_BYTES = 32 * 1024  # of an input that stays in the first-level cache


def estimated_cycles(
    g: Geometry, target: Target, input_layout: Layout = "plain", output_layout: Layout = "plain"
) -> float:
    """Return the estimated cycles of the cheapest variant, for all images."""
    return g.images * g.groups * min(cost for cost, _ in _channel_variants(g, target, input_layout, output_layout))


@functools.lru_cache(maxsize=256)
def choose(
    g: Geometry, target: Target, input_layout: Layout = "plain", output_layout: Layout = "plain"
) -> DirectVariant:
    """Return the variant with the lowest estimated cost; among near ties, the one that uses the most registers."""
    options = _channel_variants(g, target, input_layout, output_layout)
    if input_layout == "plain":
        options += _pixel_variants(g, target, blocked=output_layout == "blocked")
    least = min(cost for cost, _ in options)
    near_ties = [(cost, variant) for cost, variant in options if cost <= 1.015 * least]
    return max(near_ties, key=lambda option: (option[1].rows * option[1].vectors, -option[0]))[1]


def _channel_variants(
    g: Geometry, target: Target, input_layout: Layout, output_layout: Layout
) -> list[tuple[float, DirectVariant]]:
    """Return (cycles, variant) for each tile with output channels in the lanes."""
    high, wide = g.rows
    filters, blocked = g.filters // g.groups, output_layout == "blocked"
    stride = g.stride[1] * channel_block(input_layout, target)
    unroll = _unroll(g, input_layout, target)
    prefetch = _input_prefetch(g, input_layout, target, unroll)
    options = []
    for tile in candidates(target):
        if tile.rows <= wide:
            tiles = high * -(-wide // tile.rows) * -(-filters // tile.columns)
            transpose = 0 if blocked else _TRANSPOSE * tile.columns
            variant = DirectVariant(tile.rows, tile.vectors, stride, blocked=blocked, prefetch=prefetch, unroll=unroll)
            variant = replace(variant, ahead=_ahead(g, variant, tile))
            options.append((tiles * (g.depth * tile.cycles + transpose), variant))
    return options


def _ahead(g: Geometry, variant: DirectVariant, tile: Tile) -> int:
    """Return the cache lines that each iteration prefetches, so that the weights are there when their turn comes.

    Weights that do not fit the second-level cache come from memory in every run. The tiles of a task share the work.
    """
    high, wide = g.rows
    tiles = min(MAX_CHUNK, high * -(-wide // tile.rows))
    if variant.unroll == 1 or tiles == 1 or 4 * g.depth * (g.filters // g.groups) <= WEIGHT_BYTES:
        return 0
    return -(-tile.columns * variant.unroll // (CACHE_LINE * tiles))


def _pixel_variants(g: Geometry, target: Target, blocked: bool = False) -> list[tuple[float, DirectVariant]]:
    """Return (cycles, variant) for each tile with pixels in the lanes; a blocked result has a single block."""
    high, wide = g.out
    filters, stride = g.filters // g.groups, g.stride[1]
    if blocked and (g.filters > target.lanes or g.groups > 1):
        return []
    options = []
    for tile in candidates(target):
        fits = tile.rows == filters if blocked else filters % tile.rows == 0
        if fits and (tile.vectors - 1) * target.lanes < wide:
            tiles = high * -(-wide // tile.columns) * filters / tile.rows
            gather = tile.vectors * {1: 0, 2: 1}.get(stride, tile.lanes)  # extra loads per k
            transpose = _TRANSPOSE * tile.columns if blocked else 0
            valid = min(wide, tile.columns)
            variant = DirectVariant(tile.rows, tile.vectors, stride, "pixels", blocked=blocked, valid_columns=valid)
            options.append((tiles * (g.depth * (tile.cycles + gather) + transpose), variant))
    return options


def _unroll(g: Geometry, input_layout: Layout, target: Target) -> int:
    """Return how many adjacent elements share an entry of the table of offsets.

    In the blocked layout they are the channels of a block, or as many as divide all blocks evenly; in the plain one
    the columns of the kernel.
    """
    channels = g.channels // g.groups
    if input_layout == "blocked":
        return channels if channels < target.lanes else math.gcd(channels, target.lanes)
    return g.kernel[1] if g.dilation[1] == 1 and g.kernel[1] <= _MAX_UNROLL else 1


def _input_prefetch(g: Geometry, input_layout: Layout, target: Target, unroll: int) -> int:
    """Return the distance in k at which the input is prefetched, about a memory latency; 0 for none.

    In the blocked layout the next k that needs new cache lines is a whole block away; a larger window's rows are in the
    cache already.
    """
    if 4 * g.channels * g.height * g.width <= _CACHED_BYTES:
        return 0
    if input_layout == "blocked":
        return 4 * target.lanes if unroll == 1 or unroll >= _PREFETCHED_UNROLL else 0
    return PLAIN_PREFETCH if g.kernel == (1, 1) else 0


def channel_block(layout: Layout, target: Target) -> int:
    """Return how many channels of a pixel are adjacent."""
    return target.lanes if layout == "blocked" else 1
