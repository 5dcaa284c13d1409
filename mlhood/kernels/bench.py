"""The direct convolution compared with the libraries: all alternatives of a layer are timed in the same rounds.

Weights of the direct convolution are packed once, as ONNX Runtime packs them when a session is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from mlhood.kernels import baselines, conv
from mlhood.kernels.direct import Direct
from mlhood.kernels.layers import Layer
from mlhood.measure import Comparison, Ratio, compare
from mlhood.measure.comparison import Cache

OURS = "direct"


class ConvolutionCase(NamedTuple):
    """One layer's name, and the comparison of all alternatives."""

    name: str
    result: Comparison

    @property
    def ratios(self) -> dict[str, Ratio]:
        """Time of each library relative to ours: above 1, ours is faster."""
        return {name: self.result.ratio(name, OURS) for name in self.result.measurements if name != OURS}


def conv_cases(threads: int, rounds: int, cache: Cache, layers: Iterable[Layer]) -> Iterable[ConvolutionCase]:
    """Measure convolutions: our direct one, torch's, ONNX Runtime's, and im2col with BLAS or our own product."""
    for layer in layers:
        flops = layer.geometry.flops
        result = compare(alternatives(layer, threads), flops=flops, rounds=rounds, threads=threads, cache=cache)
        yield ConvolutionCase(layer.name, result)


def alternatives(layer: Layer, threads: int) -> dict[str, Callable[[], Any]]:
    """Return calls that compute a layer: by our direct convolution, by the libraries', and by im2col."""
    x, w = random_operands(layer)
    options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding}
    prepared = Direct(layer.geometry, w)
    return {
        OURS: lambda: prepared(x, threads=threads),
        "torch, own layout": baselines.torch_blocked(x, w, **options),
        "onnxruntime": baselines.onnx_runtime(x, w, **options, threads=threads),
        "im2col_blas": lambda: conv.im2col_blas(x, w, **options, threads=threads),
        "im2col_gemm": lambda: conv.im2col_gemm(x, w, **options, threads=threads),
    }


def random_operands(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Return an input, [1, C, H, W], and weights, [F, C, KH, KW], of normally distributed float32."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    return x, rng.standard_normal((layer.filters, layer.channels, layer.kernel, layer.kernel), np.float32)


def resnet50_layers() -> list[Layer]:
    """Return the distinct convolutions of ResNet-50 at 224 x 224 (He et al., 2016), in the order of the network."""
    stages = [(64, 64, 56, 1), (256, 128, 56, 2), (512, 256, 28, 2), (1024, 512, 14, 2)]
    layers = [Layer(3, 224, 64, 7, 2)]
    for channels, width, size, stride in stages:  # the stride is in the 3x3 convolution
        small, out = size // stride, 4 * width
        layers += [Layer(channels, size, width, 1), Layer(width, size, width, 3, stride), Layer(width, small, out, 1)]
        layers += [Layer(channels, size, out, 1, stride), Layer(out, small, width, 1), Layer(width, small, width, 3)]
    return list(dict.fromkeys(layers))
