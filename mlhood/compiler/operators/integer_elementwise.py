"""Sums, products and average pooling of quantised tensors, with integer arithmetic only, and tables of functions.

`pooling.MaxPool` works on integers as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from mlhood.compiler.hir.operator import Operator, common_element, namespace, require
from mlhood.compiler.hir.types import Quantization, TensorType, broadcast
from mlhood.compiler.operators import elementwise
from mlhood.compiler.operators.activation import Activation, activation_to_onnx
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.pooling import PoolOperator
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
    subtract_offset,
)
from mlhood.errors import CompilerError


def _mean_term(total: np.ndarray, count: np.ndarray, max_count: int, type: TensorType) -> Term:
    """Return sums of `count` elements, at most `max_count`, as a term with the scale of their mean."""
    scale = parameters_of(type).scale[0] / np.maximum(count, 1)
    return Term(total, scale, bit_width(max_count * max_magnitude(type)))


@dataclass(frozen=True)
class QuantizedAveragePool(PoolOperator):
    """AveragePool of a quantised tensor: the window's sum, rescaled by scale_x / (scale_y count).

    Attributes:
        count_pads: Whether padding counts as zeros; otherwise only elements of x count.
        quantization: The result's parameters.
    """

    count_pads: bool = False
    quantization: Quantization = UNIT_SCALE

    family = "other"

    def infer(self, x: TensorType) -> TensorType:
        require_per_tensor(x)
        return quantized_type(x.element, super().infer(x).shape, self.quantization)

    def evaluate_typed(self, types: tuple[TensorType, ...], x: np.ndarray) -> np.ndarray:
        axes = tuple(range(x.ndim, 2 * x.ndim - 2))
        return self.mean(types[0], x.shape, self.window.view(subtract_offset(x, types[0]), 0).sum(axis=axes))

    def mean(self, x: TensorType, shape: tuple[int, ...], total: Any) -> Any:
        """Return the result from the sums of the windows, int64, of an input of this shape."""
        ones = np.ones((1, 1, *shape[2:]), np.int64)
        axes = tuple(range(len(shape), 2 * len(shape) - 2))
        count = self.window.view(ones, 0, inner=1 if self.count_pads else 0).sum(axis=axes)
        y = TensorType(x.element, total.shape, self.quantization)
        return requantize([_mean_term(total, count, int(np.prod(self.kernel)), x)], y)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("AveragePool", *inputs, name=name, count_include_pad=self.count_pads, **self.onnx_window)


@dataclass(frozen=True)
class QuantizedGlobalAveragePool(Operator):
    """GlobalAveragePool of a quantised tensor: each channel's sum, rescaled by scale_x / (scale_y count)."""

    quantization: Quantization

    def infer(self, x: TensorType) -> TensorType:
        require_per_tensor(x)
        require(x.rank >= 2, "the input must have a batch and a channel axis", got=list(x.shape))
        return quantized_type(x.element, (*x.shape[:2], *(1,) * (x.rank - 2)), self.quantization)

    def evaluate_typed(self, types: tuple[TensorType, ...], x: np.ndarray) -> np.ndarray:
        total = subtract_offset(x, types[0]).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        count = int(np.prod(x.shape[2:]))
        y = TensorType(types[0].element, total.shape, self.quantization)
        return requantize([_mean_term(total, np.array(count), count, types[0])], y)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("GlobalAveragePool", *inputs, name=name)


@dataclass(frozen=True)
class Pair(Operator):
    """Base: y = activation(function(a, b)), broadcast; a and b have their own parameters.

    Class attributes:
        float_name: ONNX's operator for reals.
    """

    quantization: Quantization
    activation: Activation = ()

    float_name: ClassVar[str]

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require_per_tensor(a, b)
        shape = broadcast(a.shape, b.shape)
        return quantized_type(common_element(a, b), shape, self.quantization, self.activation)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        y = writer.emit(self.float_name, *inputs, name=None if self.activation else name)
        return activation_to_onnx(self.activation, writer, y, name)

    def _requantize(self, terms: list[Term], element: str) -> np.ndarray:
        return requantize(terms, TensorType(element, (), self.quantization), self.activation)


class QuantizedAdd(Pair):
    """y = activation(a + b): both are rescaled to the output's scale with extra bits, and the sum is rounded once."""

    float_name = "Add"

    def evaluate_typed(self, types: tuple[TensorType, ...], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._requantize([as_term(a, types[0]), as_term(b, types[1])], types[0].element)


class QuantizedMul(Pair):
    """y = activation(a b): the product of the integers, rescaled by scale_a scale_b / scale_y."""

    float_name = "Mul"

    def evaluate_typed(self, types: tuple[TensorType, ...], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        left, right = as_term(a, types[0]), as_term(b, types[1])
        bits = bit_width(max_magnitude(types[0]) * max_magnitude(types[1]))
        product = Term(left.values * right.values, left.scale * right.scale, bits)
        return self._requantize([product], types[0].element)


_FUNCTIONS: dict[str, type[Operator]] = {operator.__name__: operator for operator in elementwise.OPERATORS}


def as_function(operator: Operator) -> Activation | None:
    """Return an operator as the attribute of a `Lookup`, its name and attributes; None if it is not unary."""
    return (operator.name, *operator.attributes.values()) if operator.name in _FUNCTIONS else None


def function_of(function: Activation) -> Operator:
    """Return the operator of a `Lookup`'s attribute.

    Raises:
        CompilerError: The function is unknown, or its attributes are invalid.
    """
    name, *attributes = function or ("",)
    if name not in _FUNCTIONS:
        raise CompilerError("lookup tables do not support this function", expected=", ".join(_FUNCTIONS), got=function)
    try:
        return _FUNCTIONS[str(name)](*attributes)
    except TypeError as error:
        raise CompilerError("invalid attributes of the function", got=function) from error


@dataclass(frozen=True)
class Lookup(Operator):
    """y = function(x), read from a table with one entry for each of the 256 possible values of x.

    The table follows from the parameters of x and y; no range is assumed for x. Where the function is not a number, the
    entry represents zero.

    Attributes:
        function: A unary operator in the form of an `Activation`: ("Sigmoid",), ("Elu", 1.0, 1.0).
        quantization: The result's parameters.
    """

    function: Activation
    quantization: Quantization

    def infer(self, x: TensorType) -> TensorType:
        require_per_tensor(x)
        require(x.dtype.itemsize == 1, "a lookup requires integers of 8 bits", expected="int8 or uint8", got=x.element)
        function_of(self.function)
        return quantized_type(x.element, x.shape, self.quantization)

    def table(self, x: TensorType) -> np.ndarray:
        """Return the table for an input of this type: 256 integers, the first for the smallest value of x."""
        return _table(self.function, x.element, parameters_of(x), self.quantization)

    def evaluate_typed(self, types: tuple[TensorType, ...], x: np.ndarray) -> np.ndarray:
        return namespace(x).asarray(self.table(types[0]))[x.astype(np.int64) - np.iinfo(x.dtype).min]

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str | None:
        return function_of(self.function).to_onnx(writer, inputs, name)


@lru_cache(maxsize=256)
def _table(function: Activation, element: str, of_x: Quantization, of_y: Quantization) -> np.ndarray:
    limits = np.iinfo(element)
    stored = np.arange(limits.min, limits.max + 1)
    x = ((stored - of_x.offset[0]) * of_x.scale[0]).astype(np.float32)
    with np.errstate(all="ignore"):
        y = np.nan_to_num(function_of(function).evaluate(x)) / np.float32(of_y.scale[0])
    table = np.clip(np.rint(y) + of_y.offset[0], limits.min, limits.max).astype(element)
    table.flags.writeable = False
    return table


OPERATORS = (QuantizedAveragePool, QuantizedGlobalAveragePool, QuantizedAdd, QuantizedMul, Lookup)
