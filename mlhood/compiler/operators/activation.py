"""Activations as an attribute of the operator before them, where a fusion puts them.

An activation is spelled as an operator of one tensor: its name, then its attributes: ("Relu",), ("Clip", 0.0, 6.0),
("LeakyRelu", 0.01). The empty tuple is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator, need, plain, same_element
from mlhood.compiler.hir.types import TensorType, broadcast
from mlhood.compiler.operators.elementwise import FUNCTIONS, Clip, LeakyRelu, Relu
from mlhood.errors import CompilerError

Activation = tuple[str | float | int | None, ...]

ACTIVATIONS: dict[str, type[Operator]] = {
    operator.__name__: operator
    for operator in (Relu, Clip, LeakyRelu, *FUNCTIONS)
    if operator.__name__ in ("Relu", "Clip", "LeakyRelu", "HardSwish", "Sigmoid", "Tanh")
}


def activation_of(operator: Operator) -> Activation | None:
    """Return an operator as an activation; None if it cannot be one."""
    return (operator.name, *operator.attributes.values()) if operator.name in ACTIVATIONS else None


def operator_of(activation: Activation) -> Operator:
    """Return an activation, which must not be empty, as an operator.

    Raises:
        CompilerError: There is no such activation.
    """
    name, *attributes = activation
    if name not in ACTIVATIONS:
        raise CompilerError("there is no such activation", expected=", ".join(ACTIVATIONS), got=name)
    try:
        return ACTIVATIONS[str(name)](*attributes)
    except TypeError as error:
        raise CompilerError("these are not the activation's attributes", got=activation) from error


def check_activation(activation: Activation) -> None:
    """Check an attribute.

    Raises:
        CompilerError: There is no such activation.
    """
    if activation:
        operator_of(activation)


def activate(x: np.ndarray, activation: Activation) -> np.ndarray:
    """Return the activation of x: of its shape and dtype."""
    return operator_of(activation).evaluate(x) if activation else x


@dataclass(frozen=True)
class AddActivation(Operator):
    """y = activation(a + b), a and b stretched to one shape: the end of a residual block that no convolution takes."""

    activation: Activation

    arity = (2, 2)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        plain(a, b)
        check_activation(self.activation)
        need(bool(self.activation), "without an activation this is Add")
        return TensorType(same_element(a, b), broadcast(a.shape, b.shape))

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return activate(a + b, self.activation)


OPERATORS = (AddActivation,)
