"""Element-wise operations on vectors, one after another: a separate loop evaluates them, or a kernel's epilogue.

A step is (operation, attributes, indices of its operands): the inputs come first, then the results of earlier steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen import vector_math
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, FunctionBuilder, Int

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
        steps: The steps; without any, the result is the last input.
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


def add_and_finish(arguments: Arguments, steps: Sequence[Step], total: Any, bias: Any, pixel: Int) -> Any:
    """Return the steps on a vector plus its bias, plus the vector at `pixel` of the operand `residual` if there is one.

    Args:
        arguments: The kernel, with the field `residual`.
        steps: Steps on one input.
        total: The vector.
        bias: A vector.
        pixel: Offset of the vector in the result, and so in the residual.
    """
    code, builder = arguments.code, arguments.code.builder
    result = code.variable(total.type, builder.fadd(total, bias))
    residual = arguments.pointer("residual")
    with builder.if_then(builder.not_(residual.is_null())):
        result.set(builder.fadd(result.get(), residual.at(pixel).load(total.type.count)))
    return evaluate(code, steps, [result.get()], total.type.count)
