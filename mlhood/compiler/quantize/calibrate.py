"""Choose the range to quantise from a distribution: all of it, or a narrower one, for a finer step size.

Values outside of the range are saturated. Whether that costs less than the finer steps gain depends on the tails of the
distribution.
"""

from __future__ import annotations

import numpy as np

from mlhood.compiler.quantize.distribution import BINS, Distribution
from mlhood.errors import CompilerError, nearest

CALIBRATIONS = ("none", "percentile", "kl")

# Number of ranges tried by "kl"; the cost of the search is proportional to it.
_CANDIDATES = 256
_MIN_ELEMENTS_PER_BIN = 8


def calibrate_range(
    distribution: Distribution, method: str = "none", *, percentile: float = 99.99, levels: int = 255
) -> tuple[float, float]:
    """Return the range to quantise.

    - "none": from the minimum to the maximum.
    - "percentile": the narrowest [-t, t] that contains this percentage of the elements, clipped to [min, max]. t is an
      edge of the histogram's bins.
    - "kl": the [-t, t], clipped to [min, max], for which quantisation loses the least information: the Kullback-Leibler
      divergence D(P | Q) = sum P log(P / Q) is minimal. P is the histogram inside, with the counts outside added to the
      outermost bins. Q is the histogram inside, merged into as many levels as there are integers and spread over the
      non-empty bins again. S. Migacz, "8-bit inference with TensorRT", GTC 2017; Glow's `optimizeKL`. The count of
      the bin of 0 is limited to its neighbours', as in NVIDIA's pytorch-quantization, and bins are merged until they
      hold 8 elements on average, because the divergence of sparser histograms is noise.

    Args:
        distribution: The profiled distribution.
        method: One of `CALIBRATIONS`.
        percentile: More than 0, at most 100; for "percentile".
        levels: Number of integers available for the range; for "kl". With more levels than bins, as for int16, the
            histogram cannot distinguish between ranges, and the full range is returned.

    Raises:
        CompilerError: The method or the percentile is invalid.
    """
    check_calibration(method, percentile)
    low, high = distribution.low, distribution.high
    if method == "none" or low == high:
        return low, high
    limit = _percentile(distribution, percentile) if method == "percentile" else _minimize_kl(distribution, levels)
    return max(low, -limit), min(high, limit)


def check_calibration(method: str, percentile: float) -> None:
    """Raise CompilerError if a calibration method is unknown, or a percentile is out of range."""
    if method not in CALIBRATIONS:
        raise CompilerError(
            "unknown calibration method",
            expected=", ".join(CALIBRATIONS),
            got=repr(method),
            todo=nearest(method, CALIBRATIONS),
        )
    if not 0 < percentile <= 100:
        raise CompilerError("invalid percentile", expected="more than 0, at most 100", got=percentile)


def _percentile(distribution: Distribution, percentile: float) -> float:
    edges = distribution.edges
    outer = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))  # the far edge of each bin
    order = np.argsort(outer, kind="stable")
    cumulative = np.cumsum(distribution.counts[order])
    index = int(np.searchsorted(cumulative, percentile / 100 * cumulative[-1]))
    return float(outer[order][min(index, len(cumulative) - 1)])


def _minimize_kl(distribution: Distribution, levels: int) -> float:
    largest = max(-distribution.low, distribution.high)
    while len(distribution.counts) > max(levels, distribution.count // _MIN_ELEMENTS_PER_BIN):
        distribution = distribution.coarsened()
    edges, counts = distribution.edges, _without_zeros(distribution)
    if levels >= len(counts) or largest <= 0 or levels >= BINS:
        return largest
    width = edges[1] - edges[0]
    steps = np.unique(np.linspace(levels // 2, np.ceil(largest / width), _CANDIDATES).astype(np.int64))
    best = min((_divergence(counts, edges, float(step * width), levels), -step) for step in steps)
    return min(float(-best[1] * width), largest)


def _without_zeros(distribution: Distribution) -> np.ndarray:
    """Return the counts with that of the bin of 0 limited to its neighbours': the zeros of a Relu are exact anyway."""
    counts, zero = distribution.counts.astype(np.float64), -distribution.first
    neighbours = [counts[i] for i in (zero - 1, zero + 1) if 0 <= i < len(counts)]
    if 0 <= zero < len(counts) and neighbours:
        counts[zero] = min(counts[zero], max(neighbours))
    return counts


def _divergence(counts: np.ndarray, edges: np.ndarray, limit: float, levels: int) -> float:
    """Return D(P | Q) for the range from -limit to limit, which must be edges of bins."""
    is_inside = (edges[:-1] >= -limit) & (edges[1:] <= limit)
    start, stop = int(is_inside.argmax()), len(is_inside) - int(is_inside[::-1].argmax())
    inside = counts[start:stop]
    if not inside.sum():
        return np.inf
    p = inside.copy()
    p[0] += counts[:start].sum()
    p[-1] += counts[stop:].sum()
    level = np.arange(len(inside)) * levels // max(len(inside), levels)
    non_empty = np.bincount(level, inside > 0)
    mean = np.bincount(level, inside) / np.maximum(non_empty, 1)
    q = np.where(inside > 0, mean[level], 0)
    support = p > 0
    p, q = (p / p.sum())[support], (q / q.sum())[support]
    return float(np.sum(p * np.log(p / np.maximum(q, 1e-12))))  # Q is bounded below so that the result is finite
