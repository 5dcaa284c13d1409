"""Element-wise operators as steps of a chain."""

from __future__ import annotations

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.chain import STEPS, ElementwiseChain, Step
from mlhood.errors import CompilerError


def steps_of(operator: Operator) -> tuple[Step, ...]:
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
