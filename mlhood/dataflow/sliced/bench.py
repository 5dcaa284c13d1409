"""Benchmarks of the sliced convolution against im2col, torch and the direct one, and of the analysis against a search.

Weights are packed once, as for the direct convolution and as ONNX Runtime does when a session starts; torch's
function and im2col take them unpacked.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.dataflow.sliced.sliced import Sliced
from mlhood.dataflow.slicing.fit import needs
from mlhood.dataflow.slicing.problem import ORDERS, Slicing, counts
from mlhood.kernels import baselines, conv
from mlhood.kernels.bench import ConvolutionCase
from mlhood.kernels.direct import Direct
from mlhood.kernels.layers import Layer
from mlhood.measure import Comparison, compare

_SWEEPS = 5
_FINALISTS = 3


@dataclass(frozen=True)
class SearchTimes:
    """The analysis' choice against the fastest slicing.

    Args:
        chosen: By the analysis.
        best: The fastest of the timed slicings other than the choice.
        timed: Number of timed slicings.
        result: The choice and the fastest ones, in the same rounds.
    """

    chosen: Slicing
    best: Slicing
    timed: int
    result: Comparison

    @property
    def excess(self) -> float:
        """The choice's relative excess of time over the best; negative if it is faster."""
        return self.result.ratio(str(self.chosen), str(self.best)).value - 1

    def row(self) -> dict[str, Any]:
        """Return plain data."""
        ratio = self.result.ratio(str(self.chosen), str(self.best))
        interval = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
        return {"chosen": str(self.chosen), "best": str(self.best), "timed": self.timed, "ratio": interval}


def sliced_cases(
    threads: int, rounds: int, cache: Any, layers: Iterable[Layer]
) -> Iterator[tuple[ConvolutionCase, Slicing]]:
    """Measure layers with the slicing that the analysis chooses."""
    for layer in layers:
        sliced, x, w = prepare(layer)
        alternatives = _alternatives(layer, sliced, x, w, threads)
        flops = layer.geometry.flops
        result = compare(alternatives, baseline="torch", flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield ConvolutionCase(layer.name, "sliced", flops, result), sliced.slicing


def prepare(layer: Layer) -> tuple[Sliced, np.ndarray, np.ndarray]:
    """Return a layer's sliced convolution, an input and the weights."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    w = rng.standard_normal((layer.filters, layer.channels, layer.kernel, layer.kernel), np.float32)
    return Sliced(layer.geometry, w), x, w


def _alternatives(
    layer: Layer, sliced: Sliced, x: np.ndarray, w: np.ndarray, threads: int
) -> dict[str, Callable[[], Any]]:
    stride, padding = layer.stride, layer.padding
    direct = Direct(layer.geometry, w)
    return {
        "torch": baselines.torch(x, w, None, stride, padding),
        "sliced": lambda: sliced(x, threads=threads),
        "onnxruntime": baselines.onnx_runtime(x, w, None, stride, padding, threads=threads),
        "im2col_blas": lambda: conv.im2col_blas(x, w, None, stride, padding, threads=threads),
        "direct": lambda: direct(x, threads=threads),
    }


def search(layer: Layer, threads: int, rounds: int) -> SearchTimes:
    """Time every slicing of a grid, and then the analysis' choice against the fastest ones.

    The grid has each of k1, k2 and k3 halved from its maximum, where that is legal, in both orders. Being the fastest
    in the first pass may be noise, so only the second comparison counts.
    """
    chosen, x, _ = prepare(layer)
    others = [chosen.sliced_as(slicing) for slicing in grid(chosen) if slicing != chosen.slicing]
    seconds: dict[Slicing, list[float]] = {sliced.slicing: [] for sliced in others}
    for _, sliced in itertools.product(range(_SWEEPS), others):
        start = time.perf_counter()
        sliced(x, threads=threads)
        seconds[sliced.slicing].append(time.perf_counter() - start)
    others.sort(key=lambda sliced: statistics.median(seconds[sliced.slicing]))
    finalists = others[:_FINALISTS]
    compared = {str(s.slicing): lambda s=s: s(x, threads=threads) for s in [chosen, *finalists]}
    result = compare(compared, baseline=str(chosen.slicing), rounds=rounds, threads=threads, check=False)
    best = min(finalists or [chosen], key=lambda sliced: result.measurements[str(sliced.slicing)].median)
    return SearchTimes(chosen.slicing, best.slicing, len(others) + 1, result)


def grid(sliced: Sliced) -> Iterator[Slicing]:
    """Yield the legal slicings of the grid."""
    problem, rooms = sliced.problem, sliced.caches.rooms
    for order in ORDERS:
        streamed, stationary = counts(problem, order)
        for tiles in itertools.product(halves(problem.channels), halves(streamed), halves(stationary)):
            if all(used <= capacity for used, capacity in zip(needs(problem, order, *tiles), rooms, strict=True)):
                yield Slicing(order, *tiles)


def halves(count: int) -> list[int]:
    """Return a number, half of it, and so on down to 1."""
    return [count >> shift for shift in range(count.bit_length())]
