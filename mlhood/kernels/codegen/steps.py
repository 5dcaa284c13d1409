"""Element-wise operations on vectors, one after another: a separate loop evaluates them, or a kernel's epilogue.

A step is (operation, attributes, indices of its operands): the inputs come first, then the results of earlier steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen import vector_math
from mlhood.kernels.codegen.ir_builder import FLOAT, FunctionBuilder

Step = tuple[str, tuple[Any, ...], tuple[int, ...]]

BINARY: dict[str, Callable[..., Any]] = {
    "Add": lambda code, a, b: code.builder.fadd(a, b),
    "Div": lambda code, a, b: code.builder.fdiv(a, b),
    "Max": vector_math.maximum,
    "Min": vector_math.minimum,
    "Mul": lambda code, a, b: code.builder.fmul(a, b),
    "PRelu": vector_math.prelu,
    "Sub": lambda code, a, b: code.builder.fsub(a, b),
}
OPERATIONS = {"Constant": 0, **dict.fromkeys(vector_math.FUNCTIONS, 1), **dict.fromkeys(BINARY, 2)}


def evaluate(code: FunctionBuilder, steps: Sequence[Step], inputs: Sequence[Any], lanes: int) -> Any:
    """Return the result of the last step.

    Args:
        code: The function that gets the instructions.
        steps: The steps, at least one.
        inputs: Vectors of float32.
        lanes: Elements of each vector.
    """
    values = list(inputs)
    for name, attributes, indices in steps:
        operands = [values[index] for index in indices]
        if name == "Constant":
            values.append(ir.Constant(ir.VectorType(FLOAT, lanes), [attributes[0]] * lanes))
        elif name in BINARY:
            values.append(BINARY[name](code, *operands))
        else:
            values.append(vector_math.FUNCTIONS[name](code, *operands, *attributes))
    return values[-1]


def finish(code: FunctionBuilder, steps: Sequence[Step], value: Any, limits: Sequence[Any]) -> Any:
    """Return the end of an epilogue: the steps on one vector; without steps, the vector clamped to its limits.

    Args:
        code: The function that gets the instructions.
        steps: Steps on the vector as their only input; empty for none.
        value: The vector, with bias and residual.
        limits: The floor and the ceiling, scalars of float32.
    """
    lanes = value.type.count
    if steps:
        return evaluate(code, steps, [value], lanes)
    floor, ceiling = (code.splat(limit, lanes) for limit in limits)
    return code.minimum(code.maximum(value, floor), ceiling)
