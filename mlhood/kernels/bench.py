"""How fast the kernels are beside the libraries: every side in the same rounds, compared within them.

A ratio is a library's time over ours, so above 1 ours is faster. Weights of the direct convolution are packed once, as
ONNX Runtime packs them when a session starts; torch's function and `direct, packing` do so in every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.kernels import conv, gemm, peers
from mlhood.kernels.direct import Direct
from mlhood.kernels.layers import Layer
from mlhood.measure import Comparison, Ratio, compare

SIZES = (256, 512, 1024, 2048)
Sides = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """One shape, measured.

    Args:
        name: Of the shape.
        ours: Our side.
        flops: Of one call.
        result: Of all sides.
    """

    name: str
    ours: str
    flops: int
    result: Comparison

    @property
    def peers(self) -> list[str]:
        """The other sides."""
        return [name for name in self.result.measurements if name != self.ours]

    @property
    def ratios(self) -> dict[str, Ratio]:
        """How many times as long each of the other sides takes."""
        return {name: self.result.ratio(name, self.ours) for name in self.peers}

    def row(self) -> dict[str, Any]:
        """Return plain data: medians in seconds, GFLOP/s, and ratios with their intervals."""
        medians = {name: one.median for name, one in self.result.measurements.items()}
        ratios = {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in self.ratios.items()}
        return {
            "case": self.name,
            "flops": self.flops,
            "seconds": medians,
            "gflops": {name: self.flops / seconds / 1e9 for name, seconds in medians.items()},
            "ratios": ratios,
            "cache": self.result.cache,
            "threads": self.result.threads,
        }


def gemm_cases(threads: int, rounds: int, cache: Any, sizes: Iterable[int] = SIZES) -> Iterable[Case]:
    """Measure square matrix products: our vectorised one beside NumPy's library."""
    rng = np.random.default_rng(0)
    for n in sizes:
        a, b = rng.standard_normal((n, n), np.float32), rng.standard_normal((n, n), np.float32)
        sides: Sides = {
            "vectorised": lambda a=a, b=b: gemm.vectorised(a, b, threads=threads),
            "numpy": lambda a=a, b=b: a @ b,
        }
        flops = 2 * n**3
        result = compare(sides, baseline="numpy", flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield Case(f"{n}", "vectorised", flops, result)


def conv_cases(threads: int, rounds: int, cache: Any, layers: Iterable[Layer], others: bool = True) -> Iterable[Case]:
    """Measure convolutions: our direct one beside torch, ONNX Runtime and im2col with BLAS."""
    for layer in layers:
        sides = _conv_sides(layer, threads, others)
        flops = layer.geometry.flops
        first = next(iter(sides))
        result = compare(sides, baseline=first, flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield Case(layer.name, "direct", flops, result)


def _conv_sides(layer: Layer, threads: int, others: bool) -> Sides:
    g, rng = layer.geometry, np.random.default_rng(0)
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    shape = (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel)
    w = rng.standard_normal(shape, np.float32)
    made = Direct(g, w)
    ours: Sides = {"direct": lambda: made(x, threads=threads)}
    if not others:
        return ours
    options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
    return {
        "torch": peers.torch(x, w, **options),
        **ours,
        "onnxruntime": peers.onnx_runtime(x, w, **options, threads=threads),
        "im2col_blas": lambda: conv.im2col_blas(x, w, **options, threads=threads),
        "direct, packing": lambda: conv.direct(x, w, **options, threads=threads),
    }


def summary(cases: Iterable[Case]) -> dict[str, Any]:
    """Return geometric means: of our GFLOP/s, and of the ratio with each other side; and the lowest ratio."""
    rows = [case.row() for case in cases]
    ours = next(iter(cases)).ours if rows else ""
    others = list(rows[0]["ratios"]) if rows else []
    return {
        "gflops": geometric_mean(row["gflops"][ours] for row in rows),
        "ratios": {peer: geometric_mean(row["ratios"][peer]["value"] for row in rows) for peer in others},
        "lowest": {peer: min(row["ratios"][peer]["value"] for row in rows) for peer in others},
    }


def geometric_mean(values: Iterable[float]) -> float:
    """Return the mean of factors; NaN of none."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def line(case: Case) -> str:
    """Return one line of the table that the bench prints."""
    row = case.row()
    rates = "  ".join(f"{name} {rate:.0f}" for name, rate in row["gflops"].items())
    ratios = "  ".join(
        f"{name} {one['value']:.2f} [{one['low']:.2f}, {one['high']:.2f}]" for name, one in row["ratios"].items()
    )
    return f"{case.name}: GFLOP/s {rates}; ratio {ratios}"
