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

from mlhood.kernels import conv, gemm
from mlhood.kernels.direct import Direct
from mlhood.kernels.layers import Layer
from mlhood.measure import Comparison, compare, session_options

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

    def row(self) -> dict[str, Any]:
        """Return plain data: medians in seconds, GFLOP/s, and ratios with their intervals."""
        medians = {name: one.median for name, one in self.result.measurements.items()}
        ratios = {name: self.result.ratio(name, self.ours) for name in self.peers}
        return {
            "case": self.name,
            "flops": self.flops,
            "seconds": medians,
            "gflops": {name: self.flops / seconds / 1e9 for name, seconds in medians.items()},
            "ratios": {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in ratios.items()},
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


def conv_cases(threads: int, rounds: int, cache: Any, layers: Iterable[Layer], peers: bool = True) -> Iterable[Case]:
    """Measure convolutions: our direct one beside torch, ONNX Runtime and im2col with BLAS."""
    for layer in layers:
        sides = _conv_sides(layer, threads, peers)
        flops = layer.geometry.flops
        first = next(iter(sides))
        result = compare(sides, baseline=first, flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield Case(layer.name, "direct", flops, result)


def _conv_sides(layer: Layer, threads: int, peers: bool) -> Sides:
    g, rng = layer.geometry, np.random.default_rng(0)
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    shape = (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel)
    w = rng.standard_normal(shape, np.float32)
    made = Direct(g, w)
    ours: Sides = {"direct": lambda: made(x, threads=threads)}
    if not peers:
        return ours
    options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
    return {
        "torch": _torch(x, w, options),
        **ours,
        "onnxruntime": _onnx_runtime(x, w, layer, threads),
        "im2col_blas": lambda: conv.im2col_blas(x, w, **options, threads=threads),
        "direct, packing": lambda: conv.direct(x, w, **options, threads=threads),
    }


def _torch(x: np.ndarray, w: np.ndarray, options: dict[str, Any]) -> Callable[[], Any]:
    import torch

    image, weights = torch.from_numpy(x), torch.from_numpy(w)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return torch.nn.functional.conv2d(image, weights, **options)

    return call


def _onnx_runtime(x: np.ndarray, w: np.ndarray, layer: Layer, threads: int) -> Callable[[], Any]:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=[layer.stride] * 2, pads=[layer.padding] * 4, group=layer.groups
    )
    graph = helper.make_graph(
        [node],
        "one convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(threads), providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})[0]


def summary(cases: Iterable[Case]) -> dict[str, Any]:
    """Return geometric means: of our GFLOP/s, and of the ratio with each other side; and the lowest ratio."""
    rows = [case.row() for case in cases]
    ours = next(iter(cases)).ours if rows else ""
    peers = list(rows[0]["ratios"]) if rows else []
    return {
        "gflops": geometric_mean(row["gflops"][ours] for row in rows),
        "ratios": {peer: geometric_mean(row["ratios"][peer]["value"] for row in rows) for peer in peers},
        "lowest": {peer: min(row["ratios"][peer]["value"] for row in rows) for peer in peers},
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
