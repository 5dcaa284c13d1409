"""From a distribution to the range that is quantised: all of it, or less, so that the steps are finer.

What is cut off is stored as the nearest end. Whether that costs less than the finer steps gain depends on how much of
the distribution lies far out.
"""

from __future__ import annotations

import numpy as np

from mlhood.compiler.quantize.distribution import BINS, Distribution
from mlhood.errors import CompilerError

CALIBRATIONS = ("none", "percentile", "kl")

# Ranges that are compared for "kl"; the search over them costs as much as it has candidates.
_CANDIDATES = 256
_LEAST_PER_BIN = 8


def calibrated(
    distribution: Distribution, method: str = "none", *, percentile: float = 99.99, levels: int = 255
) -> tuple[float, float]:
    """Return the range to quantise.

    - "none": from the least to the largest element.
    - "percentile": the narrowest [-t, t] that holds that share of the elements, cut to the range. t lies on an edge of
      the histogram's bins.
    - "kl": the [-t, t], cut to the range, for which the histogram loses the least information when it is quantised: the
      divergence D(P | Q) = sum P log(P / Q) is least. P is the histogram inside, with all that is cut off put into the
      outermost bins. Q is the histogram inside, joined to as many levels as the integers have and spread again over
      the bins that are not empty. S. Migacz, "8-bit inference with TensorRT", GTC 2017; Glow's `optimizeKL`. The bin
      of 0 counts no more than its neighbours, as NVIDIA's pytorch-quantization has it, and bins are joined until they
      hold 8 elements on average, since the divergence of fewer is chance.

    Args:
        distribution: What was profiled.
        method: One of `CALIBRATIONS`.
        percentile: More than 0, at most 100; for "percentile".
        levels: How many integers there are for the range; for "kl". With more levels than bins, as with int16, no
            histogram can tell ranges apart, and the range is the whole one.

    Raises:
        CompilerError: There is no such method, or no such percentile.
    """
    check_calibration(method, percentile)
    low, high = distribution.low, distribution.high
    if method == "none" or low == high:
        return low, high
    limit = _percentile(distribution, percentile) if method == "percentile" else _least_divergence(distribution, levels)
    return max(low, -limit), min(high, limit)


def check_calibration(method: str, percentile: float) -> None:
    """Check the name of a method, and a percentile.

    Raises:
        CompilerError: There is none of this name, or the percentile is none.
    """
    if method not in CALIBRATIONS:
        raise CompilerError("there is no such calibration", expected=", ".join(CALIBRATIONS), got=repr(method))
    if not 0 < percentile <= 100:
        raise CompilerError("this is no percentile", expected="more than 0, at most 100", got=percentile)


def _percentile(distribution: Distribution, percentile: float) -> float:
    edges = distribution.edges
    outer = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))  # the far edge of each bin
    order = np.argsort(outer, kind="stable")
    held = np.cumsum(distribution.counts[order])
    wanted = percentile / 100 * held[-1]
    return float(outer[order][min(int(np.searchsorted(held, wanted)), len(held) - 1)])


def _least_divergence(distribution: Distribution, levels: int) -> float:
    largest = max(-distribution.low, distribution.high)
    while len(distribution.counts) > max(levels, distribution.count // _LEAST_PER_BIN):
        distribution = distribution.coarser()
    edges, counts = distribution.edges, _without_zeros(distribution)
    if levels >= len(counts) or largest <= 0 or levels >= BINS:
        return largest
    width = edges[1] - edges[0]
    steps = np.unique(np.linspace(levels // 2, np.ceil(largest / width), _CANDIDATES).astype(np.int64))
    best = min((_divergence(counts, edges, float(step * width), levels), -step) for step in steps)
    return min(float(-best[1] * width), largest)


def _without_zeros(distribution: Distribution) -> np.ndarray:
    """Return the counts with no more in the bin of 0 than beside it: the zeros of a Relu are stored exactly anyway."""
    counts, zero = distribution.counts.astype(np.float64), -distribution.first
    beside = [counts[i] for i in (zero - 1, zero + 1) if 0 <= i < len(counts)]
    if 0 <= zero < len(counts) and beside:
        counts[zero] = min(counts[zero], max(beside))
    return counts


def _divergence(counts: np.ndarray, edges: np.ndarray, limit: float, levels: int) -> float:
    """Return D(P | Q) for the range from -limit to limit, which lie on edges of bins."""
    inside = (edges[:-1] >= -limit) & (edges[1:] <= limit)
    start, stop = int(inside.argmax()), len(inside) - int(inside[::-1].argmax())
    within = counts[start:stop]
    if not within.sum():
        return np.inf
    p = within.copy()
    p[0] += counts[:start].sum()
    p[-1] += counts[stop:].sum()
    level = np.arange(len(within)) * levels // max(len(within), levels)
    filled = np.bincount(level, within > 0)
    mean = np.bincount(level, within) / np.maximum(filled, 1)
    q = np.where(within > 0, mean[level], 0)
    return _kl(p / p.sum(), q / q.sum())


def _kl(p: np.ndarray, q: np.ndarray) -> float:
    """Return D(P | Q); where Q is zero and P is not, which would be infinite, Q counts as very small."""
    held = p > 0
    return float(np.sum(p[held] * np.log(p[held] / np.maximum(q[held], 1e-12))))
