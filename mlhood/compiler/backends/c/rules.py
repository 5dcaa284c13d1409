"""The table of rules: which function writes an operator in C, by the operator's name."""

from __future__ import annotations

from mlhood.compiler.backends.c import (
    elementwise,
    integers,
    movements,
    pooling,
    products,
    reductions,
)
from mlhood.compiler.backends.c.kernel import TYPES, CKernel, Lines, Rule
from mlhood.compiler.operators.reduction import REDUCTIONS
from mlhood.errors import CompilerError

RULES: dict[str, Rule] = {
    "Conv": products.conv,
    "FullyConnected": products.fully_connected,
    "BlockDense": products.block_dense,
    "MatMul": products.matmul,
    "Gemm": products.gemm,
    "MaxPool": pooling.max_pool,
    "AveragePool": pooling.average_pool,
    "GlobalMaxPool": pooling.global_max_pool,
    "GlobalAveragePool": pooling.global_average_pool,
    **{operator.__name__: reductions.reduce for operator in REDUCTIONS},
    "ArgMax": reductions.arg,
    "ArgMin": reductions.arg,
    "Softmax": reductions.softmax,
    "LogSoftmax": reductions.softmax,
    "BatchNormalization": reductions.batch_normalization,
    "LayerNormalization": reductions.layer_normalization,
    "Transpose": movements.transpose,
    "Expand": movements.expand,
    "Slice": movements.extract,
    "Concat": movements.concat,
    "Gather": movements.gather,
    "Pad": movements.pad,
    "Cast": elementwise.cast,
    "Shape": elementwise.shape,
    "Quantize": elementwise.quantize,
    "Dequantize": elementwise.dequantize,
    "QuantizedConv": integers.quantized_conv,
    "QuantizedFullyConnected": integers.quantized_fully_connected,
    "QuantizedAdd": integers.pair,
    "QuantizedMul": integers.pair,
    "QuantizedAveragePool": integers.quantized_average_pool,
    "QuantizedGlobalAveragePool": integers.quantized_global_average_pool,
    "Rescale": integers.rescale,
    "Lookup": integers.lookup,
}


def body_of(kernel: CKernel) -> Lines:
    """Return the body of the function that computes an instruction; all other operators are element-wise.

    Raises:
        CompilerError: There is no C for the operator, its attributes or its element types.
    """
    types = [type for type in (*kernel.inputs, *kernel.results) if type is not None]
    if strange := {type.element for type in types} - TYPES.keys():
        raise CompilerError(f"{kernel.operator.name} of {', '.join(sorted(strange))}")
    return RULES.get(kernel.operator.name, elementwise.elementwise)(kernel)
