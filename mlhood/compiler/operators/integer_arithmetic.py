"""Elementwise sums and products of two quantised tensors, with integer arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlhood.compiler.hir.operator import Operator, common_element
from mlhood.compiler.hir.types import Quantization, TensorType, broadcast
from mlhood.compiler.operators.activation import Activation, activation_to_onnx
from mlhood.compiler.operators.base import MADE_BY_PASS, NO_PRODUCTS, IntegerArithmetic
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.rescale import (
    Term,
    as_term,
    bit_width,
    max_magnitude,
    quantized_type,
    requantize,
    require_per_tensor,
)


@dataclass(frozen=True)
class Pair(IntegerArithmetic, Operator):
    """Base: y = activation(function(a, b)), broadcast; a and b have their own parameters.

    Class attributes:
        float_name: ONNX's operator for reals.
    """

    quantization: Quantization
    activation: Activation = ()

    arity = (2, 2)
    family = "other"
    macs = NO_PRODUCTS
    from_onnx = MADE_BY_PASS
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


OPERATORS = (QuantizedAdd, QuantizedMul)
