"""Sums and products of two quantised tensors, element by element, with integers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator, same_element
from mlhood.compiler.hir.types import Quantization, TensorType, broadcast
from mlhood.compiler.operators.activation import Activation
from mlhood.compiler.operators.rescale import Term, bits_of, is_whole, quantized_type, reach, requantized, term


@dataclass(frozen=True)
class _Pair(Operator):
    """Base: y = activation(function(a, b)), a and b stretched to one shape, each with parameters of its own."""

    quantization: Quantization
    activation: Activation = ()

    arity = (2, 2)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        is_whole(a, b)
        shape = broadcast(a.shape, b.shape)
        return quantized_type(same_element(a, b), shape, self.quantization, self.activation)

    def _finished(self, terms: list[Term], element: str) -> np.ndarray:
        return requantized(terms, TensorType(element, (), self.quantization), self.activation)


class QuantizedAdd(_Pair):
    """y = activation(a + b): both are brought to the output's scale with extra bits, and the sum is rounded once."""

    def evaluate_typed(self, types: tuple[TensorType, ...], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Reference semantics; what the integers stand for is in the types."""
        return self._finished([term(a, types[0]), term(b, types[1])], types[0].element)


class QuantizedMul(_Pair):
    """y = activation(a b): the product of the integers, rescaled by scale_a scale_b / scale_y."""

    def evaluate_typed(self, types: tuple[TensorType, ...], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Reference semantics; what the integers stand for is in the types."""
        left, right = term(a, types[0]), term(b, types[1])
        bits = bits_of(reach(types[0]) * reach(types[1]))
        product = Term(left.values * right.values, left.scale * right.scale, bits)
        return self._finished([product], types[0].element)


OPERATORS = (QuantizedAdd, QuantizedMul)
