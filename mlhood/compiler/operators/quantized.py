"""Operators that convert between reals and quantised integers.

The parameters are in the tensors' types: real = scale * (stored - offset).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from mlhood.compiler.hir.operator import Operator, common_element, namespace, require, require_unquantized
from mlhood.compiler.hir.types import STORED, Quantization, TensorType, normalize_axis
from mlhood.compiler.hir.values import Constant, Value
from mlhood.compiler.operators.activation import Activation, apply_activation, check_activation
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Sub
from mlhood.compiler.operators.cast import Cast, element_of, number_of, saturated, widened
from mlhood.compiler.operators.elementwise import Clip, Round
from mlhood.compiler.operators.matrix import dense_shape, dense_to_onnx
from mlhood.compiler.operators.movement import Gather
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.reinterpret import Conversion, Reinterpret, require_valid
from mlhood.compiler.operators.shape import Reshape


def per_axis_array(numbers: tuple[float, ...], axis: int | None, rank: int, dtype: Any) -> np.ndarray:
    """Return scales or offsets in a shape that broadcasts to a tensor of this rank."""
    array = np.array(numbers, dtype)
    return array.reshape(()) if axis is None else array.reshape([-1 if i == axis else 1 for i in range(rank)])


def saturate(x: np.ndarray, element: str) -> np.ndarray:
    """Round to the nearest integers, ties to even, and clamp them to the type's range; NaN is its least number."""
    xp, limits = namespace(x), np.iinfo(element)
    return xp.fmin(xp.fmax(xp.rint(x), limits.min), limits.max).astype(element)


def read_quantization(
    source: OnnxNode, scale: int, offset: int, axis: int | None, element: str = "uint8"
) -> Quantization:
    """Return the parameters that two inputs of an ONNX node give.

    Raises:
        CompilerError: They are not known when compiling, or are neither one number nor one for each index of the axis.
    """
    scales = source.static(scale)
    offsets = source.static(offset) if source.has(offset) else np.zeros(scales.shape, element)
    what = "scale and zero point must be one number, or one for each index of an axis"
    shapes = f"{list(scales.shape)} and {list(offsets.shape)}"
    require(scales.ndim <= 1 and scales.size == offsets.size, what, got=shapes)
    require(offsets.dtype.kind in "iuV", "a zero point must be an integer", got=offsets.dtype.name)
    scale_numbers, offset_numbers = tuple(map(float, scales.ravel())), tuple(map(int, offsets.ravel()))
    return Quantization(scale_numbers, offset_numbers, None if scales.size == 1 else axis)


@dataclass(frozen=True)
class Quantize(Conversion):
    """stored = clip(round(x / scale) + offset): from floating point to integers; round takes ties to even."""

    element: str
    quantization: Quantization

    onnx = ("QuantizeLinear",)

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        return require_valid(TensorType(self.element, x.shape, self.quantization))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        axis = self.quantization.axis
        scale = per_axis_array(self.quantization.scale, axis, x.ndim, np.float32)
        offset = per_axis_array(self.quantization.offset, axis, x.ndim, np.float64)
        return saturate(namespace(x).rint(x / scale) + offset, self.element)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.quantize(inputs[0], writer.node.outputs[0], writer.node.name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x, number = source.input(0), source.attribute("output_dtype", 0)
        element = source.input(2).type.element if source.has(2) else element_of(number) if number else "uint8"
        if element in STORED or not _has_static_parameters(source):
            return _quantize(source, widened(source.graph, x), element)
        axis = normalize_axis(source.attribute("axis", 1), x.type.rank) if source.static(1).size > 1 else None
        return source.add(cls(element, read_quantization(source, 1, 2, axis, element)), widened(source.graph, x))


@dataclass(frozen=True)
class Dequantize(Conversion):
    """y = scale (stored - offset), float32; scale and offset are in the type of the input."""

    onnx = ("DequantizeLinear",)

    def infer(self, x: TensorType) -> TensorType:
        require(x.quantization is not None, "the input is not quantised")
        return TensorType("float32", x.shape)

    def evaluate_typed(self, types: tuple[TensorType, ...], x: np.ndarray) -> np.ndarray:
        quantization = types[0].quantization or Quantization((1.0,), (0,))
        scale = per_axis_array(quantization.scale, quantization.axis, x.ndim, np.float32)
        offset = per_axis_array(quantization.offset, quantization.axis, x.ndim, np.int64)
        return ((x.astype(np.int64) - offset).astype(np.float32) * scale).astype(np.float32)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        (x,) = writer.node.inputs
        require(x is not None, "the operator needs an input")
        return writer.dequantize(cast(Value, x), name, writer.node.name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        same = not source.has(2) or source.input(2).type.element == source.input(0).type.element
        got = source.optional(2)
        require(same, "the zero point has another element type than the input", got=got and got.type.element)
        x, number = widened(source.graph, source.input(0)), source.attribute("output_dtype", 0)
        element = element_of(number) if number else source.input(1).type.element
        if element != "float32" or x.type.is_float or not _has_static_parameters(source):
            return _dequantize(source, x, element)
        axis = normalize_axis(source.attribute("axis", 1), x.type.rank) if source.static(1).size > 1 else None
        return source.add(cls(), reinterpret(source, x, read_quantization(source, 1, 2, axis, x.type.element)))


def _has_static_parameters(source: OnnxNode) -> bool:
    """Return whether scale, float32, and zero point are known when compiling, and are not given for blocks."""
    known = source.is_constant(1) and (source.is_constant(2) or not source.has(2))
    return known and not source.attribute("block_size", 0) and source.input(1).type.element == "float32"


def _converted(source: OnnxNode, x: Value, element: str) -> Value:
    return x if x.type.element == element else source.add(Cast(element), x)


def _parameter(source: OnnxNode, position: int, x: Value, element: str) -> Value:
    """Return a scale or zero point, computed or constant, in a shape that broadcasts to x."""
    parameter = source.input(position)
    if isinstance(parameter, Constant) and parameter.type.element != element:
        parameter = source.constant(parameter.data.astype(element))
    parameter = _converted(source, parameter, element)
    block, rank = source.attribute("block_size", 0), parameter.type.rank
    if rank == 0 or parameter.type.shape == (1,):
        return parameter if rank == 0 else source.add(Reshape(()), parameter)
    axis = normalize_axis(source.attribute("axis", 1), x.type.rank)
    if not block:
        require(rank == 1, "scale and zero point must be one number, or one for each index of an axis", got=rank)
        return source.add(Reshape(tuple(-1 if i == axis else 1 for i in range(x.type.rank))), parameter)
    length = x.type.shape[axis]
    if isinstance(length, str):
        raise source.unsupported(f"blocks require the length of axis {length!r}", "import_model(..., dims={...})")
    count, shape = -(-length // block), parameter.type.shape
    fits = rank == x.type.rank and shape[axis] == count
    require(
        fits, "the blocks do not match the axis", expected=f"{length} / {block}, rounded up", got=parameter.type.shape
    )
    indices = np.arange(length) // block
    if isinstance(parameter, Constant):
        source.spend(length * parameter.data.size // parameter.data.shape[axis])
        return source.constant(parameter.data.take(indices, axis))
    return source.add(Gather(axis), parameter, source.constant(indices))


def _quantize(source: OnnxNode, x: Value, element: str) -> Value:
    """Return QuantizeLinear by plain operators, in float32 as ONNX Runtime computes it."""
    y = source.add(Div(), _converted(source, x, "float32"), _parameter(source, 1, x, "float32"))
    if element.startswith("float"):
        return saturated(source, y, element) if source.attribute("saturate", 1) else source.add(Cast(element), y)
    y = source.add(Round(), y)
    if source.has(2):
        y = source.add(Add(), y, _parameter(source, 2, x, "float32"))
    limits = ml_dtypes.iinfo(element)
    return source.add(Cast(element), source.add(Clip(float(limits.min), float(limits.max)), y))


def _dequantize(source: OnnxNode, x: Value, element: str) -> Value:
    """Return DequantizeLinear by plain operators, in float32 as ONNX Runtime computes it."""
    if source.has(2) and not x.type.is_float:  # floating-point numbers have no zero point
        offset = _parameter(source, 2, x, "int32")
        if isinstance(x, Constant) and isinstance(offset, Constant):
            x = source.constant(_smallest(x.data.astype(np.int32) - offset.data))
        else:
            x = source.add(Sub(), _converted(source, x, "int32"), offset)
    y = source.add(Mul(), _converted(source, x, "float32"), _parameter(source, 1, x, "float32"))
    return _converted(source, y, element)


def _smallest(integers: np.ndarray) -> np.ndarray:
    """Return integers as int8 if they fit."""
    return integers.astype(np.int8) if np.abs(integers).max(initial=0) < 128 else integers


def reinterpret(source: OnnxNode, x: Value, quantization: Quantization) -> Value:
    """Return x with these parameters in its type: itself, another constant, or behind a Reinterpret."""
    if x.type.quantization == quantization:
        return x
    if isinstance(x, Constant) and x.type.quantization is None:
        require_valid(TensorType(x.type.element, x.type.shape, quantization))
        return source.graph.constant(x.name, x.data, quantization)
    return source.add(Reinterpret(quantization), x)


@dataclass(frozen=True)
class BlockDense(Operator):
    """y = activation(x (scale w)^T + bias): a dense layer whose weights have 8 or 4 bits, and activations none fewer.

    Inputs: x [..., K], w int8 [F, K], scale [F, ceil(K / block)], one for each block of a row, bias [F] or none.
    Output: y [..., F].

    Attributes:
        block: Number of weights of a row that share a scale.
        activation: As of FullyConnected.
    """

    block: int
    activation: Activation = ()

    family = "product"

    def infer(self, x: TensorType, w: TensorType, scale: TensorType, bias: TensorType | None = None) -> TensorType:
        require_unquantized(x, w, scale, bias)
        check_activation(self.activation)
        require(w.element == "int8", "the weights must be int8", got=w.element)
        element, shape = common_element(x, scale, bias), dense_shape(x, w, bias)
        blocks = self.block > 0 and isinstance(w.shape[1], int) and (w.shape[0], -(-w.shape[1] // self.block))
        require(scale.shape == blocks, "a scale is needed for each block", expected=blocks, got=scale.shape)
        return TensorType(element, shape)

    def weights(self, w: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return the real weights [F, K]."""
        return w.astype(scale.dtype) * namespace(w).repeat(scale, self.block, axis=1)[:, : w.shape[1]]

    def evaluate(self, x: np.ndarray, w: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        y = x @ self.weights(w, scale).T
        return apply_activation(y if bias is None else y + bias, self.activation)

    def workspace(self, *types: TensorType | None) -> int:
        w = types[1]
        return 2 * int(w.shape[0]) * int(w.shape[1]) if w else 0

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(output) * inputs[1][1]

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        """Export the real weights, computed from the integers: a float is the same in every opset."""
        x, w, scale, *bias = inputs
        types = [value.type for value in writer.node.inputs[1:3] if value is not None]
        indices = writer.constant(np.arange(int(types[0].shape[1])) // self.block)
        real = writer.emit("Cast", w, to=number_of(types[1].element))
        real = writer.emit("Mul", real, writer.emit("Gather", scale, indices, axis=1))
        return dense_to_onnx(self.activation, writer, [x, real, *bias], name)


def import_qlinear_matmul(source: OnnxNode) -> Value:
    """QLinearMatMul: dequantise the factors, multiply, and quantise the product."""
    factors = []
    for i, axis in ((0, -2), (3, -1)):
        operand = source.inputs[i : i + 3]
        factors.append(source.call("DequantizeLinear", *operand, axis=axis, output_dtype=number_of("float32")))
    return source.call("QuantizeLinear", source.call("MatMul", *factors), *source.inputs[6:8])


def import_integer_product(source: OnnxNode) -> Value:
    """ConvInteger, MatMulInteger: the product of integers less their zero points, which is exact in float64."""
    product, axes = ("Conv", (None, 0)) if source.op_type == "ConvInteger" else ("MatMul", (-2, -1))
    factors = []
    for i, axis in enumerate(axes):
        x = source.add(Cast("float64"), source.input(i))
        if source.has(i + 2):
            offset, rank = source.add(Cast("float64"), source.input(i + 2)), x.type.rank
            if offset.type.rank == 1:
                along = () if axis is None else tuple(-1 if j == axis % rank else 1 for j in range(rank))
                offset = source.add(Reshape(along), offset)
            x = source.add(Sub(), x, offset)
        factors.append(x)
    return source.add(Cast("int32"), source.call(product, *factors, **source.attributes))


OPERATORS = (Quantize, Dequantize, Reinterpret, BlockDense)
RULES = {
    "ConvInteger": import_integer_product,
    "MatMulInteger": import_integer_product,
    "QLinearMatMul": import_qlinear_matmul,
}
