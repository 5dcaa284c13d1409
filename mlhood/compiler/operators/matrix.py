"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.lengths import may_be_equal
from mlhood.compiler.hir.operator import (
    Operator,
    Range,
    common_element,
    namespace,
    require,
    require_unquantized,
)
from mlhood.compiler.hir.types import Dim, Shape, TensorType, broadcast
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.activation import (
    Activation,
    activated_range,
    activation_to_onnx,
    apply_activation,
    check_activation,
)
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


class MatrixProduct(Operator):
    """Base of products a b, of reals or of integers."""

    family = "product"

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(output) * inputs[0][-1]


class MatMul(MatrixProduct):
    """y = a b as numpy.matmul: a [..., M, K], b [..., K, N] -> y [..., M, N], leading axes broadcast."""

    onnx = ("MatMul",)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require_unquantized(a, b)
        return TensorType(common_element(a, b), matmul_shape(a.shape, b.shape))

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        xp = namespace(a)
        return xp.asarray(xp.matmul(a, b))


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """Return the shape of numpy.matmul.

    Raises:
        CompilerError: The inner axes differ, or an input is a scalar.
    """
    require(bool(a and b), "both factors of a matrix product must have an axis", got=f"{list(a)} and {list(b)}")
    inner: tuple[Dim, Dim] = (a[-1], b[-2:][0])
    what = "the inner axes of a matrix product differ"
    require(may_be_equal(*inner), what, expected=f"{inner[0]} rows on the right", got=inner[1])
    rows, columns = (a[-2:-1] if len(a) > 1 else ()), (b[-1:] if len(b) > 1 else ())
    return (*broadcast(a[:-2], b[:-2]), *rows, *columns)


@dataclass(frozen=True)
class Gemm(Operator):
    """y = alpha a' b' + beta c: a' [M, K] and b' [K, N] are a and b or their transposes, c is broadcast to [M, N]."""

    alpha: float = 1.0
    beta: float = 1.0
    transpose_a: bool = False
    transpose_b: bool = False

    onnx = ("Gemm",)
    onnx_names = (
        ("transpose_a", "transA"),
        ("transpose_b", "transB"),
    )
    family = "product"

    def infer(self, a: TensorType, b: TensorType, c: TensorType | None = None) -> TensorType:
        require_unquantized(a, b, c)
        require(a.rank == b.rank == 2, "Gemm multiplies matrices", got=f"{list(a.shape)} and {list(b.shape)}")
        left = a.shape[::-1] if self.transpose_a else a.shape
        right = b.shape[::-1] if self.transpose_b else b.shape
        shape = matmul_shape(left, right)
        fits = c is None or broadcast(shape, c.shape) == shape
        require(fits, "the addend cannot be broadcast to the product", expected=list(shape), got=c and list(c.shape))
        return TensorType(common_element(a, b, c), shape)

    def evaluate(self, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
        number = a.dtype.type
        y = (a.T if self.transpose_a else a) @ (b.T if self.transpose_b else b)
        y = y if self.alpha == 1 else number(self.alpha) * y
        if c is None or self.beta == 0:  # not 0 c, which would be NaN where c is not finite
            return y
        return y + (c if self.beta == 1 else number(self.beta) * c)

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(output) * inputs[0][0 if self.transpose_a else -1]

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        attribute = source.attribute
        numbers = attribute("alpha", 1.0), attribute("beta", 1.0)
        operator = cls(*numbers, bool(attribute("transA", 0)), bool(attribute("transB", 0)))
        return source.add(operator, *source.inputs[: 2 if operator.beta == 0 else 3])


@dataclass(frozen=True)
class FullyConnected(Operator):
    """y = activation(x w^T + bias): a dense layer. Passes rewrite MatMul + Add and Gemm with constant weights to it.

    Inputs: x [..., K], w [F, K] with one row for each output, as in a convolution's weight, bias [F] or none.
    Output: y [..., F].
    """

    activation: Activation = ()

    family = "product"
    quantization_rule = "dense"

    def infer(self, x: TensorType, w: TensorType, bias: TensorType | None = None) -> TensorType:
        require_unquantized(x, w, bias)
        check_activation(self.activation)
        return TensorType(common_element(x, w, bias), dense_shape(x, w, bias))

    def evaluate(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        y = x @ w.T
        return apply_activation(y if bias is None else y + bias, self.activation)

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(output) * inputs[1][1]

    def value_range(self, y: TensorType, *inputs: Range) -> Range | None:
        return activated_range(self.activation, y)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return dense_to_onnx(self.activation, writer, inputs, name)


def dense_to_onnx(activation: Activation, writer: OnnxWriter, inputs: list[str], name: str) -> str:
    """Export a dense layer of x, w, bias or none: as Gemm where x is a matrix, as MatMul and Add elsewhere."""
    x, weight, *bias = inputs
    last = None if activation else name
    if writer.node.outputs[0].type.rank == 2:
        y = writer.emit("Gemm", x, weight, *bias, name=last, transB=1)
    else:
        transposed = writer.emit("Transpose", weight, perm=(1, 0))
        y = writer.emit("MatMul", x, transposed, name=None if bias else last)
        y = writer.emit("Add", y, *bias, name=last) if bias else y
    return activation_to_onnx(activation, writer, y, name)


def dense_shape(x: TensorType, w: TensorType, bias: TensorType | None = None) -> Shape:
    """Return the output's shape of a dense layer.

    Raises:
        CompilerError: The inputs' shapes do not match.
    """
    ranks = f"{list(x.shape)} and {list(w.shape)}"
    require(x.rank >= 2 and w.rank == 2, "a dense layer takes an input of rank 2 or more and a matrix", got=ranks)
    matches = isinstance(x.shape[-1], str) or x.shape[-1] == w.shape[1]
    require(matches, "the input's last axis does not match the weight", expected=w.shape[1], got=x.shape[-1])
    matches, what = bias is None or bias.shape == w.shape[:1], "the bias must have one element for each output"
    require(matches, what, expected=[w.shape[0]], got=bias and list(bias.shape))
    return (*x.shape[:-1], w.shape[0])


OPERATORS = (MatMul, Gemm, FullyConnected)
