"""Products of integers: of quantised tensors, and ONNX's ConvInteger and MatMulInteger.

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
from mlhood.compiler.operators.arithmetic import Sub
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.convolution import Convolution, convolve
from mlhood.compiler.operators.matrix import MatrixProduct, dense_shape, dense_to_onnx, matmul_shape
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.quantized import per_axis_array, read_quantization, reinterpret, saturate
from mlhood.compiler.operators.reinterpret import require_valid
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
from mlhood.compiler.operators.shape import Reshape


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

    arity = (2, 4)
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

    arity = (2, 3)
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


@dataclass(frozen=True)
class QuantizedMatMul(MatrixProduct):
    """MatMul of quantised tensors: acc = sum of (a - offset_a)(b - offset_b) in int32, then rescaled as QuantizedConv.

    There may be one scale for each row of a and each column of b.
    """

    quantization: Quantization

    arity = (2, 2)
    onnx = ("QLinearMatMul",)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        _require_quantized(a, b)
        require(parameters_of(a).axis in (None, a.rank - 2), "the scales of a must vary along its rows")
        require(parameters_of(b).axis in (None, b.rank - 1), "the scales of b must vary along its columns")
        return require_valid(TensorType(a.element, matmul_shape(a.shape, b.shape), self.quantization))

    def evaluate_typed(self, types: tuple[TensorType, ...], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        of_a, of_b = parameters_of(types[0]), parameters_of(types[1])
        a, b = subtract_offsets(types, a, b)
        accumulator = _to_int32(a @ b)
        rows = per_axis_array(of_a.scale, of_a.axis, a.ndim, np.float64)
        columns = per_axis_array(of_b.scale, of_b.axis, b.ndim, np.float64)
        scaled = accumulator * (rows * columns / self.quantization.scale[0])
        return saturate(namespace(scaled).rint(scaled) + self.quantization.offset[0], types[0].element)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("MatMul", *inputs, name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        a, b = source.input(0), source.input(3)
        a = reinterpret(source, a, read_quantization(source, 1, 2, a.type.rank - 2))
        b = reinterpret(source, b, read_quantization(source, 4, 5, b.type.rank - 1))
        require(source.input(7).type.element == a.type.element, "input and output have different element types")
        return source.add(cls(read_quantization(source, 6, 7, None)), a, b)


@dataclass(frozen=True)
class ConvInteger(Convolution):
    """Conv of integers, int32: sum of (x - offset_x)(w - offset_w)."""

    x_offset: int = 0
    w_offset: tuple[int, ...] = (0,)

    onnx = ("ConvInteger",)
    arity = (2, 2)

    def infer(self, x: TensorType, w: TensorType, bias: TensorType | None = None) -> TensorType:
        y = TensorType("int32", self.shape(x, w, None))
        require(len(self.w_offset) in (1, w.shape[0]), "the weight needs one offset, or one per output channel")
        return y

    def evaluate(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        of_w = per_axis_array(self.w_offset, None if len(self.w_offset) == 1 else 0, w.ndim, np.float64)
        return _to_int32(convolve(x.astype(np.float64) - self.x_offset, w - of_w, self.window(w.shape), self.group))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        (x, x_offset), (w, w_offset) = _without_offset(source, 0, None), _without_offset(source, 1, 0)
        attributes = cls.read_attributes(source, x.type, w.type)
        return source.add(cls(**attributes, x_offset=x_offset[0], w_offset=w_offset), x, w)


@dataclass(frozen=True)
class MatMulInteger(MatrixProduct):
    """MatMul of integers, int32: sum of (a - offset_a)(b - offset_b), offsets by row of a and by column of b."""

    a_offset: tuple[int, ...] = (0,)
    b_offset: tuple[int, ...] = (0,)

    arity = (2, 2)
    onnx = ("MatMulInteger",)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        return TensorType("int32", matmul_shape(a.shape, b.shape))

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        of_a = per_axis_array(self.a_offset, None if len(self.a_offset) == 1 else a.ndim - 2, a.ndim, np.float64)
        of_b = per_axis_array(self.b_offset, None if len(self.b_offset) == 1 else b.ndim - 1, b.ndim, np.float64)
        return _to_int32(namespace(a).matmul(a - of_a, b - of_b))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        (a, a_offset), (b, b_offset) = _without_offset(source, 0, -2), _without_offset(source, 1, -1)
        return source.add(cls(a_offset, b_offset), a, b)


def _without_offset(source: OnnxNode, position: int, axis: int | None) -> tuple[Value, tuple[int, ...]]:
    """Return a factor and its zero points, two inputs further: what a computed one is subtracted from has none."""
    x = source.input(position)
    if not source.has(position + 2):
        return x, (0,)
    if source.is_constant(position + 2) and source.input(position + 2).type.rank <= 1:
        return x, source.integers(position + 2)
    offset = source.add(Cast("int32"), source.input(position + 2))
    if offset.type.rank == 1:
        shape = () if axis is None else tuple(-1 if i == axis % x.type.rank else 1 for i in range(x.type.rank))
        offset = source.add(Reshape(shape), offset)
    return source.add(Sub(), source.add(Cast("int32"), x), offset), (0,)


OPERATORS = (QuantizedConv, QuantizedFullyConnected, QuantizedMatMul, ConvInteger, MatMulInteger)
