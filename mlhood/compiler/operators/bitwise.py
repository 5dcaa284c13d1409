"""Elementwise operators on the bits of integers."""

from __future__ import annotations

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.arithmetic import Binary
from mlhood.compiler.operators.base import NOT_REAL
from mlhood.compiler.operators.elementwise import Function


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
    function = staticmethod(lambda xp, a, b: xp.bitwise_and(a, b))


class BitwiseOr(Bitwise):
    """y = 1 where a bit is 1."""

    onnx = ("BitwiseOr",)
    commutative = True
    function = staticmethod(lambda xp, a, b: xp.bitwise_or(a, b))


class BitwiseXor(Bitwise):
    """y = 1 where the bits differ."""

    onnx = ("BitwiseXor",)
    commutative = True
    function = staticmethod(lambda xp, a, b: xp.bitwise_xor(a, b))


class BitwiseNot(Function):
    """y = x with every bit inverted."""

    onnx = ("BitwiseNot",)
    family = "arithmetic"
    quantization_rule = NOT_REAL
    function = staticmethod(lambda xp, x: xp.bitwise_not(x))

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.kind in "iu", "the operator requires integers", got=x.element)
        return super().infer(x)


OPERATORS = (BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot)
