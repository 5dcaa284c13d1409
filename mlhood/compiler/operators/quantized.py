"""Operators that convert between reals and quantised integers.

The parameters are in the tensors' types: real = scale * (stored - offset).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from mlhood.compiler.hir.operator import Operator, require, require_unquantized, unsupported
from mlhood.compiler.hir.types import Quantization, TensorType, normalize_axis
from mlhood.compiler.hir.values import Constant, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Sub
from mlhood.compiler.operators.base import (
    NO_BOUNDS,
    NO_PRODUCTS,
    NOT_EXPORTED,
    NOT_REAL,
)
from mlhood.compiler.operators.cast import Cast, element_of
from mlhood.compiler.operators.elementwise import Clip, Round
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.reinterpret import Conversion, Reinterpret, require_valid


def per_axis_array(numbers: tuple[float, ...], axis: int | None, rank: int, dtype: Any) -> np.ndarray:
    """Return scales or offsets in a shape that broadcasts to a tensor of this rank."""
    array = np.array(numbers, dtype)
    return array.reshape(()) if axis is None else array.reshape([-1 if i == axis else 1 for i in range(rank)])


def saturate(x: np.ndarray, element: str) -> np.ndarray:
    """Round to the nearest integers, ties to even, and clamp them to the element type's range."""
    limits = np.iinfo(element)
    return np.clip(np.rint(x), limits.min, limits.max).astype(element)


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
    require(offsets.dtype.kind in "iu", "a zero point must be an integer", got=offsets.dtype.name)
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
        return saturate(np.rint(x / scale) + offset, self.element)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.quantize(inputs[0], writer.node.outputs[0], writer.node.name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = source.input(0)
        element = source.input(2).type.element if source.has(2) else "uint8"
        if source.attribute("output_dtype", 0) and not source.has(2):
            element = element_of(source.attribute("output_dtype", 0))
        if source.attribute("block_size", 0):
            return _blockwise_quantize(source, x, element)
        axis = normalize_axis(source.attribute("axis", 1), x.type.rank) if source.static(1).size > 1 else None
        return source.add(cls(element, read_quantization(source, 1, 2, axis, element)), x)


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
        x = source.input(0)
        if source.attribute("block_size", 0):
            return _blockwise_dequantize(source, x)
        if source.input(1).type.element != "float32":
            raise source.unsupported("only scales in float32 are supported")
        same = not source.has(2) or source.input(2).type.element == x.type.element
        require(same, "the zero point has another element type than the input", expected=x.type.element)
        axis = normalize_axis(source.attribute("axis", 1), x.type.rank) if source.static(1).size > 1 else None
        return source.add(cls(), reinterpret(source, x, read_quantization(source, 1, 2, axis, x.type.element)))


def _repeated(source: OnnxNode, position: int, length: int, axis: int) -> np.ndarray:
    blocks = source.static(position)
    size = source.attribute("block_size", 0)
    fits = blocks.ndim > axis and size > 0 and blocks.shape[axis] == -(-length // size)
    require(fits, "the blocks do not match the axis", expected=f"{length} / {size}, rounded up", got=list(blocks.shape))
    source.spend(blocks.size * size)
    return np.repeat(blocks, size, axis=axis).take(range(length), axis=axis)


def _blockwise_quantize(source: OnnxNode, x: Value, element: str) -> Value:
    axis = normalize_axis(source.attribute("axis", 1), x.type.rank)
    length = x.type.shape[axis]
    require(isinstance(length, int), "quantising by blocks needs the length of the axis", got=length)
    y = source.add(Div(), x, source.constant(_repeated(source, 1, int(length), axis)))
    y = source.add(Round(), y)
    if source.has(2):
        offset = _repeated(source, 2, int(length), axis).astype(y.type.dtype)
        y = source.add(Add(), y, source.constant(offset))
    limits = np.iinfo(element)
    return source.add(Cast(element), source.add(Clip(float(limits.min), float(limits.max)), y))


def _blockwise_dequantize(source: OnnxNode, x: Value) -> Value:
    axis = normalize_axis(source.attribute("axis", 1), x.type.rank)
    length = x.type.shape[axis]
    require(isinstance(length, int), "dequantising by blocks needs the length of the axis", got=length)
    scale = _repeated(source, 1, int(length), axis)
    y = source.add(Cast(scale.dtype.name), x)
    if source.has(2):
        offset = _repeated(source, 2, int(length), axis).astype(scale.dtype)
        y = source.add(Sub(), y, source.constant(offset))
    return source.add(Mul(), y, source.constant(scale))


def reinterpret(source: OnnxNode, x: Value, quantization: Quantization) -> Value:
    """Return x with these parameters in its type: itself, another constant, or behind a Reinterpret."""
    if x.type.quantization == quantization:
        return x
    if isinstance(x, Constant) and x.type.quantization is None:
        require_valid(TensorType(x.type.element, x.type.shape, quantization))
        return source.graph.constant(x.name, x.data, quantization)
    return source.add(Reinterpret(quantization), x)


class DynamicQuantize(Operator):
    """Quantise to uint8 with parameters from x itself; gives the integers, the scale and the offset as tensors.

    The range is widened to hold 0; scale = (max - min) / 255; offset = round(-min / scale), kept in [0, 255].
    """

    onnx = ("DynamicQuantizeLinear",)
    family = "quantization"
    quantization_rule = NOT_REAL
    sink_transpose = unsupported("it has three results")
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS
    to_onnx = NOT_EXPORTED

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        require_unquantized(x)
        require(x.element == "float32", "the input must be float32", got=x.element)
        return TensorType("uint8", x.shape), TensorType("float32", ()), TensorType("uint8", ())

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        low, high = np.minimum(x.min(initial=0), np.float32(0)), np.maximum(x.max(initial=0), np.float32(0))
        scale = (high - low) / np.float32(255) if high > low else np.float32(1)
        offset = saturate(-low / scale, "uint8")
        return saturate(np.rint(x / scale) + offset, "uint8"), np.asarray(scale, np.float32), np.asarray(offset)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> tuple[Value, ...]:
        return source.add_all(cls(), source.input(0))


OPERATORS = (Quantize, Dequantize, Reinterpret, DynamicQuantize)
