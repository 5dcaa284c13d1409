"""Activations that are fused into the operator before them, as an attribute of it.

An activation is a tuple of the name and the attributes of a unary operator: ("Relu",), ("Clip", 0.0, 6.0),
("LeakyRelu", 0.01). The empty tuple means none. Back ends also fuse chains of one input: ("ElementwiseChain", steps).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import UNBOUNDED, Operator, Range, common_element, require, require_unquantized
from mlhood.compiler.hir.types import TensorType, broadcast
from mlhood.compiler.operators import elementwise
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.chain import STEPS, ChainStep, ElementwiseChain
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.errors import CompilerError

Activation = tuple[Any, ...]

ACTIVATIONS: dict[str, type[Operator]] = {
    operator.__name__: operator for operator in elementwise.UNARY if operator.fusible
}


def activation_of(operator: Operator) -> Activation | None:
    """Return an operator as an activation; None if it is not fusible."""
    return (operator.name, *operator.attributes.values()) if operator.name in ACTIVATIONS else None


def operator_of(activation: Activation) -> Operator:
    """Return the operator of a non-empty activation.

    Raises:
        CompilerError: The activation is unknown, or its attributes are invalid.
    """
    name, *attributes = activation
    kind = ElementwiseChain if name == ElementwiseChain.__name__ else ACTIVATIONS.get(name)
    if kind is None:
        raise CompilerError("unknown activation", expected=", ".join(ACTIVATIONS), got=name)
    try:
        return kind(*attributes)
    except TypeError as error:
        raise CompilerError("invalid attributes of the activation", got=activation) from error


def check_activation(activation: Activation) -> None:
    """Raise CompilerError if an activation is unknown, or its attributes are invalid."""
    if activation:
        operator_of(activation).infer(TensorType("float32", ()))


def apply_activation(x: np.ndarray, activation: Activation) -> np.ndarray:
    """Return the activation of x, with the shape and dtype of x."""
    return operator_of(activation).evaluate(x) if activation else x


def activated_range(activation: Activation, y: TensorType) -> Range | None:
    """Return the bounds that an activation sets to any numbers; None if it sets none. See `Operator.value_range`."""
    return operator_of(activation).value_range(y, UNBOUNDED) if activation else None


def activation_to_onnx(activation: Activation, writer: OnnxWriter, x: str, name: str) -> str:
    """Add the ONNX nodes of an activation that was fused, return the name of the result: x itself if there is none."""
    return operator_of(activation).to_onnx(writer, [x], name) or x if activation else x


@dataclass(frozen=True)
class AddActivation(Elementwise):
    """y = activation(a + b), broadcast: the end of a residual block whose sum is not fused into a convolution."""

    activation: Activation

    commutative = True
    family = "arithmetic"
    quantization_rule = "sum"

    @property
    def label(self) -> str:
        """The sum; drawings show its activation separately."""
        return "Add"

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require_unquantized(a, b)
        check_activation(self.activation)
        require(bool(self.activation), "the activation is missing; without one, the operator is Add")
        return TensorType(common_element(a, b), broadcast(a.shape, b.shape))

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return apply_activation(a + b, self.activation)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return activation_to_onnx(self.activation, writer, writer.emit("Add", *inputs), name)

    def value_range(self, y: TensorType, *inputs: Range) -> Range | None:
        return activated_range(self.activation, y)


def steps_of(operator: Operator) -> tuple[ChainStep, ...]:
    """Return an element-wise operator as steps; its inputs are operands 0, 1, ...

    Raises:
        CompilerError: The operator is no step of a chain.
    """
    if isinstance(operator, ElementwiseChain):
        return operator.steps
    if isinstance(operator, AddActivation):
        name, *attributes = operator.activation
        return ("Add", (), (0, 1)), (str(name), tuple(attributes), (2,))
    if operator.name not in STEPS:
        raise CompilerError("the operator is not a step of a chain", got=operator.name)
    return ((operator.name, tuple(operator.attributes.values()), tuple(range(operator.arity[0]))),)


def is_step(operator: Operator) -> bool:
    """Return whether an operator can be a step, or several."""
    if isinstance(operator, AddActivation):
        return True
    return isinstance(operator, ElementwiseChain) or (isinstance(operator, Elementwise) and operator.name in STEPS)


OPERATORS = (AddActivation,)
