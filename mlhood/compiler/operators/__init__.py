"""The operators of the HIR: one module for each family, one class for each operator.

To add an operator, write one class in a module of this package, name it in the module's `OPERATORS`, and write a test
that compares it with ONNX Runtime (as `tests/compiler/operators/test_operators.py` does). The class is a frozen
dataclass whose fields are the attributes; it answers the questions of `mlhood.compiler.hir.operator.Operator`:

    onnx, from_onnx     which ONNX operators it is imported from, and how; to_onnx  how it is exported
    infer, evaluate     from the inputs' types to the output's, from the inputs' arrays to the output's
    quantization_rule   which rule of `mlhood.compiler.quantize.quantize` computes it with integers
    sink_transpose      what it becomes when a Transpose moves from before it to behind it
    value_range, macs   bounds of its results; how many multiply-accumulates it takes
    family              how it is drawn

All but `infer` and `evaluate` have defaults, or answers in a base of `mlhood.compiler.operators.base`. A module that is
new is named in `_FAMILIES` below.

An operator that no network of the course has needs no class, if ONNX's reference implementation is right and fast
enough: its name in `onnx_operator.OnnxOperator.onnx` and a test are all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators import (
    activation,
    arithmetic,
    attention,
    blocked,
    cast,
    chain,
    convolution,
    creation,
    decompositions,
    dynamic,
    elementwise,
    indexing,
    integer,
    integer_elementwise,
    matrix,
    microsoft,
    movement,
    normalization,
    onnx_operator,
    padding,
    pooling,
    quantized,
    recurrent,
    reduction,
    rescale,
    resize,
    sampling,
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
    attention,
    recurrent,
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
    integer_elementwise,
    rescale,
    blocked,
    chain,
    indexing,
    sampling,
    dynamic,
    onnx_operator,
)

OPERATORS: dict[str, type[Operator]] = {
    operator.__name__: operator for family in _FAMILIES for operator in family.OPERATORS
}

# By the name of the ONNX operator, "domain::name" outside of the standard.
IMPORT_RULES: dict[str, ImportRule] = {
    **{name: operator.from_onnx for operator in OPERATORS.values() for name in operator.onnx},
    **decompositions.RULES,
    **onnx_operator.RULES,
    **quantized.RULES,
    **attention.RULES,
    **microsoft.RULES,
}
