"""Benchmarks of the sliced convolution against im2col, torch and the direct one.

Weights are packed once, as for the direct convolution and as ONNX Runtime does when a session starts; torch's
function and im2col take them unpacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from mlhood.dataflow.sliced.sliced import Sliced
from mlhood.kernels import baselines, conv
from mlhood.kernels.bench import ConvolutionCase
from mlhood.kernels.direct import Direct
from mlhood.kernels.layers import Layer
from mlhood.measure import compare


def sliced_cases(
    threads: int, rounds: int, cache: Any, layers: Iterable[Layer], peak: float | None = None
) -> Iterator[ConvolutionCase]:
    """Measure layers with the slicing that the analysis chooses, which their names end with."""
    for layer in layers:
        sliced, x, w = prepare(layer)
        alternatives = _alternatives(layer, sliced, x, w, threads)
        flops = layer.geometry.flops
        result = compare(alternatives, baseline="torch", flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield ConvolutionCase(f"{layer.name}, {sliced.slicing}", "sliced", flops, result, peak)


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
