"""A chain of element-wise operators as one operator, whose intermediate results need no memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import TensorType, broadcast
from mlhood.compiler.operators import arithmetic, elementwise
from mlhood.compiler.operators.base import Elementwise
from mlhood.errors import CompilerError

# The operator's name, its attributes, and what it reads: inputs of the chain, then results of earlier steps.
ChainStep = tuple[str, tuple[Any, ...], tuple[int, ...]]

CONSTANT = "Constant"  # a step that reads nothing: its attribute is a number of float32
_SCALAR = TensorType("float32", ())
STEPS = {operator.__name__: operator for operator in (*elementwise.OPERATORS, *arithmetic.OPERATORS)}


def operator_of_step(step: ChainStep) -> Operator:
    """Return the operator of a step.

    Raises:
        CompilerError: The operator is unknown, or its attributes are invalid.
    """
    name, attributes, _ = step
    if name not in STEPS:
        raise CompilerError("the operator is not a step of a chain", got=name)
    try:
        return STEPS[name](*attributes)
    except TypeError as error:
        raise CompilerError("invalid attributes of a step", where=name, got=attributes) from error


@dataclass(frozen=True)
class ElementwiseChain(Elementwise):
    """y = the last step's result; each step is an element-wise operator on inputs or on earlier steps' results.

    Inputs: float32, broadcast to one shape. Output: float32 of that shape.

    Attributes:
        steps: The steps; see `ChainStep`.
    """

    steps: tuple[ChainStep, ...]

    arity = (1, None)
    family = "arithmetic"

    @property
    def label(self) -> str:
        """The names of the steps."""
        return " ".join(step[0] for step in self.steps)

    def infer(self, *inputs: TensorType) -> TensorType:
        require_unquantized(*inputs)
        require(bool(self.steps), "a chain needs a step")
        values = list(inputs)
        for step in self.steps:
            valid = all(0 <= operand < len(values) for operand in step[2])
            require(valid, "a step reads what comes after it", expected=f"less than {len(values)}", got=step[2])
            read = [values[operand] for operand in step[2]]
            values.append(_SCALAR if step[0] == CONSTANT else operator_of_step(step).infer(*read))
        shape = broadcast(*(type.shape for type in inputs))
        require(values[-1].shape == shape, "a chain's result has the shape of all inputs", got=values[-1].shape)
        return values[-1]

    def evaluate(self, *inputs: np.ndarray) -> np.ndarray:
        values = list(inputs)
        for step in self.steps:
            read = [values[operand] for operand in step[2]]
            constant = step[0] == CONSTANT
            values.append(np.asarray(step[1][0], np.float32) if constant else operator_of_step(step).evaluate(*read))
        return values[-1]


OPERATORS = (ElementwiseChain,)
