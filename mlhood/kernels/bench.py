"""The kernels compared with the libraries: all alternatives are timed in the same rounds.

A ratio is a library's time divided by ours: above 1, ours is faster. Weights of the direct convolution are packed once,
as ONNX Runtime packs them when a session is created; torch's function and `direct, packing` pack them in every call.
With the blocked layout, ours and torch's read and write the layout that they use between the layers of a network.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.kernels import baselines, conv, gemm
from mlhood.kernels.codegen.target import host
from mlhood.kernels.direct import Direct
from mlhood.kernels.gemm import int8_product
from mlhood.kernels.geometry import Layout, to_blocked, to_plain
from mlhood.kernels.layers import Layer
from mlhood.measure import Comparison, Ratio, compare

SIZES = (256, 512, 1024, 2048)
Alternatives = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class ConvolutionCase:
    """One shape, measured.

    Args:
        name: Name of the shape.
        ours: Name of our alternative.
        flops: Operations of one call.
        result: The comparison of all alternatives.
        peak: FLOP/s that this number of threads can reach with our alternative's arithmetic; None if unknown.
    """

    name: str
    ours: str
    flops: int
    result: Comparison
    peak: float | None = None

    @property
    def baselines(self) -> list[str]:
        """Names of the other alternatives."""
        return [name for name in self.result.measurements if name != self.ours]

    @property
    def ratios(self) -> dict[str, Ratio]:
        """Time of each baseline relative to ours."""
        return {name: self.result.ratio(name, self.ours) for name in self.baselines}

    def row(self) -> dict[str, Any]:
        """Return JSON-serializable data: medians in seconds, GFLOP/s, share of the peak, ratios with intervals."""
        medians = {name: measurement.median for name, measurement in self.result.measurements.items()}
        ratios = {name: {"value": r.value, "low": r.low, "high": r.high} for name, r in self.ratios.items()}
        rates = {name: self.flops / seconds / 1e9 for name, seconds in medians.items()}
        return {
            "case": self.name,
            "flops": self.flops,
            "seconds": medians,
            "gflops": rates,
            "share_of_peak": rates[self.ours] * 1e9 / self.peak if self.peak else None,
            "ratios": ratios,
            "cache": self.result.cache,
            "threads": self.result.threads,
        }


def gemm_cases(threads: int, rounds: int, cache: Any, peak: float | None = None) -> Iterable[ConvolutionCase]:
    """Measure square float32 matrix products: our vectorised one and NumPy's."""
    rng = np.random.default_rng(0)
    for n in SIZES:
        a, b = rng.standard_normal((n, n), np.float32), rng.standard_normal((n, n), np.float32)
        alternatives: Alternatives = {
            "vectorised": lambda a=a, b=b: gemm.vectorised(a, b, threads=threads),
            "numpy": lambda a=a, b=b: a @ b,
        }
        flops = 2 * n**3
        result = compare(alternatives, baseline="numpy", flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield ConvolutionCase(f"{n}", "vectorised", flops, result, peak)


def int8_cases(threads: int, rounds: int, cache: Any) -> Iterable[ConvolutionCase]:
    """Measure square products of u8 and s8 into s32: ours, our float32 product and ONNX Runtime's."""
    rng = np.random.default_rng(0)
    for n in SIZES:
        # below 128: ONNX Runtime's product saturates on processors without VNNI
        a, b = rng.integers(0, 128, (n, n), np.uint8), rng.integers(-128, 128, (n, n), np.int8)
        floats = a.astype(np.float32), b.astype(np.float32)
        alternatives: Alternatives = {
            "int8": lambda a=a, b=b: int8_product(a, b, threads=threads),
            "float32": lambda floats=floats: gemm.vectorised(*floats, threads=threads),
            "onnxruntime": baselines.onnx_integer_product(a, b, threads),
        }
        flops = 2 * n**3
        result = compare(alternatives, baseline="int8", flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield ConvolutionCase(f"{n}", "int8", flops, result)


def conv_cases(
    threads: int, rounds: int, cache: Any, layers: Iterable[Layer], layout: Layout = "plain", peak: float | None = None
) -> Iterable[ConvolutionCase]:
    """Measure convolutions: our direct one, torch's, ONNX Runtime's, and im2col with BLAS or our own product."""
    for layer in layers:
        alternatives = _convolutions(layer, threads, layout)
        flops = layer.geometry.flops
        result = compare(alternatives, flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield ConvolutionCase(layer.name, "direct", flops, result, peak)


def _convolutions(layer: Layer, threads: int, layout: Layout) -> Alternatives:
    g, rng = layer.geometry, np.random.default_rng(0)
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    shape = (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel)
    w = rng.standard_normal(shape, np.float32)
    options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
    plain = Direct(g, w)
    others: Alternatives = {
        "onnxruntime": baselines.onnx_runtime(x, w, **options, threads=threads),
        "im2col_blas": lambda: conv.im2col_blas(x, w, **options, threads=threads),
        "im2col_gemm": lambda: conv.im2col_gemm(x, w, **options, threads=threads),
    }
    if layout == "plain":
        return {
            "torch": baselines.torch(x, w, **options),
            "torch, own layout": baselines.torch_blocked(x, w, **options),
            "direct": lambda: plain(x, threads=threads),
            **others,
            "direct, packing": lambda: conv.direct(x, w, **options, threads=threads),
        }
    return {
        "torch": baselines.torch_blocked(x, w, **options),
        "direct": _blocked_convolution(layer, x, w, threads),
        **others,
        "direct, plain": lambda: plain(x, threads=threads),
    }


def _blocked_convolution(layer: Layer, x: np.ndarray, w: np.ndarray, threads: int) -> Callable[[], Any]:
    """Convolve with blocked input and output; an input with fewer channels than a block, an image, stays plain."""
    lanes = host().lanes
    layout: Layout = "blocked" if layer.channels >= lanes else "plain"
    convolution = Direct(layer.geometry, w, input_layout=layout, output_layout="blocked")
    stored = to_blocked(x, lanes) if layout == "blocked" else x

    def call() -> baselines.DeferredArray:
        y = convolution(stored, threads=threads)
        return baselines.DeferredArray(lambda: to_plain(y, layer.filters))

    return call


def summary(cases: Iterable[ConvolutionCase]) -> dict[str, Any]:
    """Return geometric means of our GFLOP/s, of their share of the peak and of the ratio to each baseline.

    `lowest` holds the minima of the ratios.
    """
    cases = list(cases)
    rows, ours = [case.row() for case in cases], cases[0].ours
    names = list(rows[0]["ratios"])
    shares = [row["share_of_peak"] for row in rows if row["share_of_peak"] is not None]
    return {
        "gflops": statistics.geometric_mean(row["gflops"][ours] for row in rows),
        "share_of_peak": statistics.geometric_mean(shares) if shares else None,
        "ratios": {name: statistics.geometric_mean(row["ratios"][name]["value"] for row in rows) for name in names},
        "lowest": {name: min(row["ratios"][name]["value"] for row in rows) for name in names},
    }


def line(case: ConvolutionCase) -> str:
    """Format a case as one line of the bench's output."""
    row = case.row()
    rates = "  ".join(f"{name} {rate:.0f}" for name, rate in row["gflops"].items())
    ratios = "  ".join(
        f"{name} {ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        for name, ratio in row["ratios"].items()
    )
    return f"{case.name}: {unit(case)} {rates}{share(row)}; ratio {ratios}"


def unit(case: ConvolutionCase) -> str:
    """Return the unit of the rates: operations on bytes are not floating-point operations."""
    return "GOP/s" if case.ours == "int8" else "GFLOP/s"


def share(row: dict[str, Any]) -> str:
    """Format our share of the peak for the end of a line; empty if unknown."""
    return "" if row["share_of_peak"] is None else f"; {row['share_of_peak']:.1%} of peak"
