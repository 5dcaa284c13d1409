"""Sums and products of two quantised tensors, element by element, with integers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlhood.compiler.hir.operator import Operator, same_element
from mlhood.compiler.hir.types import Quantization, TensorType, broadcast
from mlhood.compiler.operators.activation import Activation, activation_to_onnx
from mlhood.compiler.operators.base import MADE_BY_PASS, NO_PRODUCTS, IntegerArithmetic
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.rescale import Term, bits_of, is_whole, quantized_type, reach, requantized, term


@dataclass(frozen=True)
class _Pair(IntegerArithmetic, Operator):
    """Base: y = activation(function(a, b)), a and b broadcast to one shape, each with parameters of its own."""

    quantization: Quantization
    activation: Activation = ()

    arity = (2, 2)
    family = "other"
    macs = NO_PRODUCTS
    from_onnx = MADE_BY_PASS
    float_name: ClassVar[str]

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        is_whole(a, b)
        shape = broadcast(a.shape, b.shape)
        return quantized_type(same_element(a, b), shape, self.quantization, self.activation)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        y = writer.emit(self.float_name, *inputs, name=None if self.activation else name)
        return activation_to_onnx(self.activation, writer, y, name)

    def _finished(self, terms: list[Term], element: str) -> np.ndarray:
        return requantized(terms, TensorType(element, (), self.quantization), self.activation)


class QuantizedAdd(_Pair):
    """y = activation(a + b): both are brought to the output's scale with extra bits, and the sum is rounded once."""

    float_name = "Add"

    def evaluate_typed(self, types: tuple[TensorType, ...], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Reference semantics; what the integers stand for is in the types."""
        return self._finished([term(a, types[0]), term(b, types[1])], types[0].element)


class QuantizedMul(_Pair):
    """y = activation(a b): the product of the integers, rescaled by scale_a scale_b / scale_y."""

    float_name = "Mul"

    def evaluate_typed(self, types: tuple[TensorType, ...], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Reference semantics; what the integers stand for is in the types."""
        left, right = term(a, types[0]), term(b, types[1])
        bits = bits_of(reach(types[0]) * reach(types[1]))
        product = Term(left.values * right.values, left.scale * right.scale, bits)
        return self._finished([product], types[0].element)


OPERATORS = (QuantizedAdd, QuantizedMul)
