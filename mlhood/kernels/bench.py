"""How fast the kernels are beside the libraries: every side in the same rounds, compared within them.

A ratio is a library's time over ours, so above 1 ours is faster. Weights of the direct convolution are packed once, as
ONNX Runtime packs them when a session starts; torch's function and `direct, packing` do so in every call. With the
blocked layout, ours and torch's find their input as the layer before has left it, and leave their result so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import conv, gemm, peers
from mlhood.kernels.codegen.target import host
from mlhood.kernels.direct import Direct
from mlhood.kernels.int8 import int8_product
from mlhood.kernels.layers import Layer
from mlhood.kernels.layout import Layout, to_blocked, to_plain
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
        peak: FLOP/s that these threads can reach with the arithmetic of our side; None if not known.
    """

    name: str
    ours: str
    flops: int
    result: Comparison
    peak: float | None = None

    @property
    def peers(self) -> list[str]:
        """The other sides."""
        return [name for name in self.result.measurements if name != self.ours]

    @property
    def ratios(self) -> dict[str, Ratio]:
        """How many times as long each of the other sides takes."""
        return {name: self.result.ratio(name, self.ours) for name in self.peers}

    def row(self) -> dict[str, Any]:
        """Return plain data: medians in seconds, GFLOP/s, our share of the peak, and ratios with their intervals."""
        medians = {name: one.median for name, one in self.result.measurements.items()}
        ratios = {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in self.ratios.items()}
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


def gemm_cases(
    threads: int, rounds: int, cache: Any, sizes: Iterable[int] | None = None, peak: float | None = None
) -> Iterable[Case]:
    """Measure square matrix products: our vectorised one beside NumPy's library."""
    rng = np.random.default_rng(0)
    for n in SIZES if sizes is None else sizes:
        a, b = rng.standard_normal((n, n), np.float32), rng.standard_normal((n, n), np.float32)
        sides: Sides = {
            "vectorised": lambda a=a, b=b: gemm.vectorised(a, b, threads=threads),
            "numpy": lambda a=a, b=b: a @ b,
        }
        flops = 2 * n**3
        result = compare(sides, baseline="numpy", flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield Case(f"{n}", "vectorised", flops, result, peak)


def int8_cases(threads: int, rounds: int, cache: Any, sizes: Iterable[int] | None = None) -> Iterable[Case]:
    """Measure square products of u8 and s8 into s32: ours beside our float32 product and ONNX Runtime's."""
    rng = np.random.default_rng(0)
    for n in SIZES if sizes is None else sizes:
        # below 128: ONNX Runtime's product saturates on processors without VNNI
        a, b = rng.integers(0, 128, (n, n), np.uint8), rng.integers(-128, 128, (n, n), np.int8)
        wide = a.astype(np.float32), b.astype(np.float32)
        sides: Sides = {
            "int8": lambda a=a, b=b: int8_product(a, b, threads=threads),
            "float32": lambda wide=wide: gemm.vectorised(*wide, threads=threads),
            "onnxruntime": peers.onnx_integer_product(a, b, threads),
        }
        flops = 2 * n**3
        result = compare(sides, baseline="int8", flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield Case(f"{n}", "int8", flops, result)


def conv_cases(
    threads: int,
    rounds: int,
    cache: Any,
    layers: Iterable[Layer],
    layout: Layout = "plain",
    peak: float | None = None,
) -> Iterable[Case]:
    """Measure convolutions: our direct one beside torch, ONNX Runtime and im2col with BLAS."""
    for layer in layers:
        sides = _conv_sides(layer, threads, layout)
        flops = layer.geometry.flops
        first = next(iter(sides))
        result = compare(sides, baseline=first, flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield Case(layer.name, "direct", flops, result, peak)


def check_blocks(layers: Iterable[Layer]) -> None:
    """Refuse layers whose groups lie within a block of channels, before anything is measured.

    Raises:
        KernelError: There is one.
    """
    for layer in layers:
        if layer.groups > 1:
            raise KernelError("groups of channels lie within blocks", where=layer.name,
                              expected="one group", got=layer.groups, todo="take --layout plain")  # fmt: skip


def _conv_sides(layer: Layer, threads: int, layout: Layout) -> Sides:
    g, rng = layer.geometry, np.random.default_rng(0)
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    shape = (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel)
    w = rng.standard_normal(shape, np.float32)
    options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
    plain = Direct(g, w)
    others: Sides = {
        "onnxruntime": peers.onnx_runtime(x, w, **options, threads=threads),
        "im2col_blas": lambda: conv.im2col_blas(x, w, **options, threads=threads),
    }
    if layout == "plain":
        return {
            "torch": peers.torch(x, w, **options),
            "direct": lambda: plain(x, threads=threads),
            **others,
            "direct, packing": lambda: conv.direct(x, w, **options, threads=threads),
        }
    return {
        "torch": peers.torch_blocked(x, w, **options),
        "direct": _blocked(layer, x, w, threads),
        **others,
        "direct, plain": lambda: plain(x, threads=threads),
    }


def _blocked(layer: Layer, x: np.ndarray, w: np.ndarray, threads: int) -> Callable[[], Any]:
    """Read and write blocks; what has fewer channels than a block, an image, is read as it is."""
    lanes = host().lanes
    reads: Layout = "blocked" if layer.channels >= lanes else "plain"
    made = Direct(layer.geometry, w, reads=reads, writes="blocked")
    stored = to_blocked(x, lanes) if reads == "blocked" else x

    def call() -> peers.Stored:
        y = made(stored, threads=threads)
        return peers.Stored(lambda: to_plain(y, layer.filters))

    return call


def summary(cases: Iterable[Case]) -> dict[str, Any]:
    """Return geometric means: of our GFLOP/s, of their share of the peak, and of the ratio with each other side.

    `lowest` are the lowest ratios.
    """
    cases = list(cases)
    rows = [case.row() for case in cases]
    ours = cases[0].ours if rows else ""
    others = list(rows[0]["ratios"]) if rows else []
    known = [row["share_of_peak"] for row in rows if row["share_of_peak"] is not None]
    return {
        "gflops": geometric_mean(row["gflops"][ours] for row in rows),
        "share_of_peak": geometric_mean(known) if known else None,
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
    return f"{case.name}: {unit(case)} {rates}{share(row)}; ratio {ratios}"


def unit(case: Case) -> str:
    """Return what the rates count: bytes have no floating point."""
    return "GOP/s" if case.ours == "int8" else "GFLOP/s"


def share(row: dict[str, Any]) -> str:
    """Return the part of a line that says our share of the peak, if it is known."""
    return "" if row["share_of_peak"] is None else f"; {row['share_of_peak']:.1%} of peak"
