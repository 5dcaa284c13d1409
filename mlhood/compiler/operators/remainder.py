"""Remainders of divisions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import namespace
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Binary
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Mod(Binary):
    """y = the remainder of a / b, broadcast, with the sign of b.

    Attributes:
        truncated: Whether the quotient is rounded towards zero, so that y has the sign of a, as C's fmod.
    """

    truncated: bool = False

    onnx = ("Mod",)

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        xp = namespace(a)
        return xp.asarray((xp.fmod if self.truncated else xp.mod)(a, b))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        """Export the operator; that of floats, which ONNX has from opset 28 on only, from the truncated one."""
        type = writer.node.outputs[0].type
        if self.truncated or not type.is_float:
            return writer.emit("Mod", *inputs, name=name, fmod=self.truncated)
        remainder = writer.emit("Mod", *inputs, fmod=1)
        zero = writer.constant(np.zeros((), type.dtype))
        negative = writer.emit("Less", writer.emit("Mul", remainder, writer.emit("Sign", inputs[1])), zero)
        return writer.emit("Where", negative, writer.emit("Add", remainder, inputs[1]), remainder, name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(bool(source.attribute("fmod", 0))), *source.inputs)


OPERATORS = (Mod,)
