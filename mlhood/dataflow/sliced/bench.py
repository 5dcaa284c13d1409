"""How fast the sliced convolution is beside im2col, torch and the direct one, and the analysis beside all slicings.

Weights are packed once, as for the direct convolution and as ONNX Runtime does when a session starts; torch's
function and im2col take them as they are.
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
from mlhood.kernels import conv, peers
from mlhood.kernels.bench import Case
from mlhood.kernels.direct import Direct
from mlhood.kernels.layers import Layer
from mlhood.measure import Comparison, compare

_SWEEPS = 5
_FINALISTS = 3


@dataclass(frozen=True)
class Searched:
    """The analysis' choice beside the fastest slicing.

    Args:
        chosen: By the analysis.
        best: The fastest of those that were timed, other than the choice.
        timed: How many were.
        result: The choice and the fastest ones, in the same rounds.
    """

    chosen: Slicing
    best: Slicing
    timed: int
    result: Comparison

    @property
    def behind(self) -> float:
        """How much longer the choice takes than the fastest, as a part of the latter's time; negative if less."""
        return self.result.ratio(str(self.chosen), str(self.best)).value - 1

    def row(self) -> dict[str, Any]:
        """Return plain data."""
        ratio = self.result.ratio(str(self.chosen), str(self.best))
        return {"chosen": str(self.chosen), "best": str(self.best), "timed": self.timed,
                "ratio": {"value": ratio.value, "low": ratio.low, "high": ratio.high}}  # fmt: skip


def sliced_cases(threads: int, rounds: int, cache: Any, layers: Iterable[Layer]) -> Iterator[tuple[Case, Slicing]]:
    """Measure layers with the slicing that the analysis chooses."""
    for layer in layers:
        made, x, w = prepare(layer)
        sides = _sides(layer, made, x, w, threads)
        flops = layer.geometry.flops
        result = compare(sides, baseline="torch", flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield Case(layer.name, "sliced", flops, result), made.slicing


def prepare(layer: Layer) -> tuple[Sliced, np.ndarray, np.ndarray]:
    """Return a layer's sliced convolution, an input and the weights."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    w = rng.standard_normal((layer.filters, layer.channels, layer.kernel, layer.kernel), np.float32)
    return Sliced(layer.geometry, w), x, w


def _sides(layer: Layer, made: Sliced, x: np.ndarray, w: np.ndarray, threads: int) -> dict[str, Callable[[], Any]]:
    stride, padding = layer.stride, layer.padding
    direct = Direct(layer.geometry, w)
    return {
        "torch": peers.torch(x, w, None, stride, padding),
        "sliced": lambda: made(x, threads=threads),
        "onnxruntime": peers.onnx_runtime(x, w, None, stride, padding, threads=threads),
        "im2col_blas": lambda: conv.im2col_blas(x, w, None, stride, padding, threads=threads),
        "direct": lambda: direct(x, threads=threads),
    }


def search(layer: Layer, threads: int, rounds: int) -> Searched:
    """Time every slicing of a grid, and then the analysis' choice beside the fastest ones.

    The grid: each of k1, k2 and k3 halved from all, as far as it is legal, in both orders. The fastest of the first
    look may have been lucky, so only the second one counts.
    """
    made, x, _ = prepare(layer)
    others = [made.sliced_as(slicing) for slicing in grid(made) if slicing != made.slicing]
    seconds: dict[Slicing, list[float]] = {one.slicing: [] for one in others}
    for _, one in itertools.product(range(_SWEEPS), others):
        start = time.perf_counter()
        one(x, threads=threads)
        seconds[one.slicing].append(time.perf_counter() - start)
    others.sort(key=lambda one: statistics.median(seconds[one.slicing]))
    compared = {str(one.slicing): lambda one=one: one(x, threads=threads) for one in [made, *others[:_FINALISTS]]}
    result = compare(compared, baseline=str(made.slicing), rounds=rounds, threads=threads, check=False)
    best = min(others[:_FINALISTS] or [made], key=lambda one: result.measurements[str(one.slicing)].median)
    return Searched(made.slicing, best.slicing, len(others) + 1, result)


def grid(made: Sliced) -> Iterator[Slicing]:
    """Yield the legal slicings of the grid."""
    problem, rooms = made.problem, made.caches.rooms
    for order in ORDERS:
        passing, staying = counts(problem, order)
        for tiles in itertools.product(halves(problem.channels), halves(passing), halves(staying)):
            if all(need <= room for need, room in zip(needs(problem, order, *tiles), rooms, strict=True)):
                yield Slicing(order, *tiles)


def halves(count: int) -> list[int]:
    """Return a number, half of it, and so on down to 1."""
    found = [count]
    while found[-1] > 1:
        found.append(found[-1] // 2)
    return found
