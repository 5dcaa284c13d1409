"""The tables of operators: one module a family, one class an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators import (
    activation,
    arithmetic,
    cast,
    convolution,
    creation,
    elementwise,
    integer,
    integer_arithmetic,
    integer_pooling,
    lookup,
    matrix,
    movement,
    normalization,
    padding,
    pooling,
    quantized,
    reduction,
    rescale,
    resize,
    shape,
    transposed_convolution,
)
from mlhood.compiler.operators.onnx_node import OnnxNode

ImportRule = Callable[[OnnxNode], Value | Sequence[Value | None]]

_FAMILIES = (
    convolution,
    transposed_convolution,
    pooling,
    matrix,
    normalization,
    elementwise,
    activation,
    cast,
    arithmetic,
    reduction,
    shape,
    movement,
    padding,
    resize,
    creation,
    quantized,
    integer,
    integer_arithmetic,
    integer_pooling,
    rescale,
    lookup,
)

OPERATORS: dict[str, type[Operator]] = {
    operator.__name__: operator for family in _FAMILIES for operator in family.OPERATORS
}

# By the name of the ONNX operator; a name that two operators claimed would be a mistake, which a test finds.
IMPORT_RULES: dict[str, ImportRule] = {
    **{name: operator.from_onnx for operator in OPERATORS.values() for name in operator.onnx},
    **creation.RULES,
    **resize.RULES,
}
