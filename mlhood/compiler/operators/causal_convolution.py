"""The import rule of ONNX's CausalConvWithState: a convolution of each channel with the steps before."""

from __future__ import annotations

import sys

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Mul
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.compiler.operators.indexing import require_equal
from mlhood.compiler.operators.movement import Concat, Slice
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.padding import Pad

_ACTIVATIONS = ("none", "silu", "swish")
_SIGMOID = next(function for function in FUNCTIONS if function.__name__ == "Sigmoid")


def import_causal_convolution(source: OnnxNode) -> tuple[Value, Value]:
    """CausalConvWithState: x [batch, channels, steps] behind the k - 1 steps of the past, or zeros; and the last k - 1.

    The kernels are w [channels, 1, k]; the result may pass through a SiLU, in float32 at least.
    """
    activation = source.attribute("activation", "none")
    require(activation in _ACTIVATIONS, "unknown activation", expected=", ".join(_ACTIVATIONS), got=activation)
    x, w = source.input(0), source.input(1)
    for value, what in ((x, "the input"), (w, "the kernels")):
        require(value.type.rank == 3, f"{what} must have 3 axes", got=list(value.type.shape))
    channels, _, size = w.type.shape
    fixed = isinstance(channels, int) and isinstance(size, int) and size > 0
    require(fixed, "the shape of the kernels must be known at compile time", got=list(w.type.shape))
    past = int(size) - 1
    if source.has(3):
        wanted = (*x.type.shape[:2], past)
        require_equal("the past must have k - 1 steps", wanted, source.input(3).type.shape)
    zeros = Pad((0, 0, past, 0, 0, 0))
    padded = source.add(Concat(2), source.input(3), x) if source.has(3) else source.add(zeros, x)
    y = source.add(Conv((1,), (0, 0), (1,), int(channels)), padded, w, source.optional(2))
    y = y if activation == "none" else _silu(source, y)
    return y, source.add(Slice((-past if past else sys.maxsize,), (sys.maxsize,), (2,), (1,)), padded)


def _silu(source: OnnxNode, x: Value) -> Value:
    wide = source.add(Cast("float32"), x) if x.type.element == "float16" else x
    y = source.add(Mul(), wide, source.add(_SIGMOID(), wide))
    return y if wide is x else source.add(Cast(x.type.element), y)


RULES = {"CausalConvWithState": import_causal_convolution}
