"""Convolutions and dense layers of quantised tensors.

The accumulator of 8-bit factors is int32, which wraps around on overflow; that of 16-bit factors is int64. The products
are summed in float64, which represents each of them exactly and is fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import Operator, namespace, require
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.activation import Activation
from mlhood.compiler.operators.convolution import Convolution, convolve
from mlhood.compiler.operators.matrix import dense_shape, dense_to_onnx
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.quantized import per_axis_array, read_quantization, reinterpret, saturate
from mlhood.compiler.operators.rescale import (
    UNIT_SCALE,
    Term,
    as_term,
    bit_width,
    max_magnitude,
    parameters_of,
    quantized_type,
    requantize,
    require_per_tensor,
)


def subtract_offsets(types: Sequence[TensorType], x: Any, w: Any) -> tuple[Any, Any]:
    """Return stored - offset of both factors in float64: sums of products that fit into int32 are exact, and fast."""
    of_x, of_w = parameters_of(types[0]), parameters_of(types[1])
    return (
        x.astype(np.float64) - per_axis_array(of_x.offset, of_x.axis, x.ndim, np.float64),
        w.astype(np.float64) - per_axis_array(of_w.offset, of_w.axis, w.ndim, np.float64),
    )


def _require_quantized(*types: TensorType) -> None:
    for type in types:
        require(type.quantization is not None, "the input is not quantised", got=type.element)


def _to_int32(total: np.ndarray) -> np.ndarray:
    return total.astype(np.int64).astype(np.int32)  # wraps around on overflow, as hardware does


def _accumulator_term(total: np.ndarray, x: TensorType, w: TensorType) -> Term:
    """Return a sum of products (and the bias, in the same units) as a term with the scale of the products.

    Args:
        total: The sums, float64, with the output channels along axis 1, in a dense layer along the last axis.
        x: Type of the input.
        w: Type of the weight, with scales along the output channels.
    """
    scale = np.array(parameters_of(w).scale) * parameters_of(x).scale[0]
    scale = scale.reshape(-1, *(1,) * (total.ndim - 2)) if w.rank > 2 else scale
    if x.dtype.itemsize == 1:
        return Term(_to_int32(total).astype(np.int64), scale, 31)
    depth = int(np.prod([int(size) for size in w.shape[1:]]))
    return Term(total.astype(np.int64), scale, bit_width(depth * max_magnitude(x) * max_magnitude(w) + 2**31))


def _check_types(x: TensorType, w: TensorType, bias: TensorType | None) -> None:
    """Check the types of a convolution or a dense layer.

    Raises:
        CompilerError: The input is not quantised per tensor, the weight is quantised along another axis than the first,
            or the bias is not int32 in units of scale_x scale_w.
    """
    require_per_tensor(x)
    _require_quantized(w)
    require(parameters_of(w).axis in (None, 0), "the weight's scales must vary along its output channels")
    if bias is None:
        return
    require(bias.element == "int32", "the bias must be int32", got=bias.element)
    if bias.quantization is not None:
        units = np.array(parameters_of(w).scale) * parameters_of(x).scale[0]
        matches = np.allclose(bias.quantization.scale, units, rtol=1e-6, atol=0) and not any(bias.quantization.offset)
        require(matches, "the bias must be in units of scale_x scale_w, with offset 0", got=bias.quantization)


@dataclass(frozen=True)
class QuantizedConv(Convolution):
    """Conv of quantised tensors: acc = sum of (x - offset_x)(w - offset_w) + bias, then rescaled.

    y = clip(round(acc scale_x scale_w / scale_y) + offset_y). The weight may have one scale for each output channel.
    The bias is int32, in units of scale_x scale_w.

    Attributes:
        quantization: The output's parameters.
        activation: None, Relu, Clip or LeakyRelu, computed with integers.
        rescale: "shift" multiplies by integers and shifts, see `rescale.requantize`; "real" multiplies by a float64
            and rounds ties to even, as ONNX specifies QLinearConv, and excludes an activation and z.

    The residual branch z has its own parameters; with "shift" it is a second term, and the sum is rounded once.
    """

    quantization: Quantization = UNIT_SCALE
    activation: Activation = ()
    rescale: str = "real"

    onnx = ("QLinearConv",)

    def infer(
        self, x: TensorType, w: TensorType, bias: TensorType | None = None, z: TensorType | None = None
    ) -> TensorType:
        _check_types(x, w, bias)
        known = self.rescale in ("real", "shift")
        require(known, "unknown method of rescaling", expected="real or shift", got=self.rescale)
        plain = not self.activation and z is None
        require(plain or self.rescale == "shift", "an activation or a residual branch requires rescaling by shifts")
        y = quantized_type(x.element, self.shape(x, w, bias), self.quantization, self.activation)
        require_per_tensor(z)
        matches = z is None or (z.element, z.shape) == (y.element, y.shape)
        require(matches, "the residual branch has a different type", got=z)
        return y

    def evaluate_typed(
        self,
        types: tuple[TensorType, ...],
        x: np.ndarray,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        z: np.ndarray | None = None,
    ) -> np.ndarray:
        return self.rescaled(types, convolve(*subtract_offsets(types, x, w), self.window(w.shape), self.group), bias, z)

    def rescaled(self, types: tuple[TensorType, ...], total: Any, bias: Any, z: Any) -> Any:
        """Return the result from the sums of products, float64, and the other inputs."""
        of_x, of_w = parameters_of(types[0]), parameters_of(types[1])
        channel = (-1, *(1,) * (total.ndim - 2))
        total = total + (0 if bias is None else bias.reshape(channel))
        if self.rescale == "real":
            scale = np.array(of_w.scale).reshape(channel) * of_x.scale[0] / self.quantization.scale[0]
            rounded = namespace(total).rint(_to_int32(total) * scale)
            return saturate(rounded + self.quantization.offset[0], types[0].element)
        terms = [_accumulator_term(total, *types[:2]), *([] if z is None else [as_term(z, types[3])])]
        y = TensorType(types[0].element, total.shape, self.quantization)
        return requantize(terms, y, self.activation)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return self.write_conv(writer, inputs, self.activation, name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = reinterpret(source, source.input(0), read_quantization(source, 1, 2, None))
        w = reinterpret(source, source.input(3), read_quantization(source, 4, 5, 0))
        require(source.input(7).type.element == x.type.element, "input and output have different element types")
        attributes = cls.read_attributes(source, x.type, w.type)
        operator = cls(**attributes, quantization=read_quantization(source, 6, 7, None))
        return source.add(operator, x, w, source.optional(8))


@dataclass(frozen=True)
class QuantizedFullyConnected(Operator):
    """FullyConnected of quantised tensors: x [..., K], w [F, K], bias [F] or none; as QuantizedConv with "shift"."""

    quantization: Quantization
    activation: Activation = ()

    family = "product"

    def infer(self, x: TensorType, w: TensorType, bias: TensorType | None = None) -> TensorType:
        _check_types(x, w, bias)
        return quantized_type(x.element, dense_shape(x, w, bias), self.quantization, self.activation)

    def evaluate_typed(
        self, types: tuple[TensorType, ...], x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None
    ) -> np.ndarray:
        x, w = subtract_offsets(types, x, w)
        total = x @ w.T
        y = TensorType(types[0].element, total.shape, self.quantization)
        return requantize([_accumulator_term(total + (0 if bias is None else bias), *types[:2])], y, self.activation)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return dense_to_onnx(self.activation, writer, inputs, name)

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(output) * inputs[1][1]


OPERATORS = (QuantizedConv, QuantizedFullyConnected)
