"""Elementwise operators on the bits of integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Binary
from mlhood.compiler.operators.base import NOT_REAL
from mlhood.compiler.operators.elementwise import Function
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


class Bitwise(Binary):
    """Base: y = function(a, b) of each bit."""

    quantization_rule = NOT_REAL

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        y = super().infer(a, b)
        require(y.dtype.kind in "iu", "the operator requires integers", got=y.element)
        return y


class BitwiseAnd(Bitwise):
    """y = 1 where both bits are 1."""

    onnx = ("BitwiseAnd",)
    commutative = True
    function = staticmethod(lambda a, b: np.bitwise_and(a, b))


class BitwiseOr(Bitwise):
    """y = 1 where a bit is 1."""

    onnx = ("BitwiseOr",)
    commutative = True
    function = staticmethod(lambda a, b: np.bitwise_or(a, b))


class BitwiseXor(Bitwise):
    """y = 1 where the bits differ."""

    onnx = ("BitwiseXor",)
    commutative = True
    function = staticmethod(lambda a, b: np.bitwise_xor(a, b))


class BitwiseNot(Function):
    """y = x with every bit inverted."""

    onnx = ("BitwiseNot",)
    family = "arithmetic"
    quantization_rule = NOT_REAL
    function = staticmethod(lambda x: np.bitwise_not(x))

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.kind in "iu", "the operator requires integers", got=x.element)
        return super().infer(x)


@dataclass(frozen=True)
class BitShift(Bitwise):
    """y = a with its bits shifted by b places to the "LEFT", or to the "RIGHT", which repeats the sign.

    All bits are shifted out where b is negative, or not less than the width.
    """

    direction: str = "LEFT"

    onnx = ("BitShift",)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        known = self.direction in ("LEFT", "RIGHT")
        require(known, "unknown direction of a shift", expected="LEFT or RIGHT", got=self.direction)
        return super().infer(a, b)

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray((np.left_shift if self.direction == "LEFT" else np.right_shift)(a, b))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        element = writer.node.outputs[0].type.element
        unsigned = element.startswith("u")
        require(unsigned, "the opsets that are written shift unsigned integers only", got=element)
        return writer.emit("BitShift", *inputs, name=name, direction=self.direction)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.attribute("direction", "")), *source.inputs)


OPERATORS = (BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitShift)
