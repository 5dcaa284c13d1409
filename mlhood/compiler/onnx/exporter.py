"""From a graph to an ONNX model: float graphs as they are, quantised ones as QDQ."""

from __future__ import annotations

import onnx
from onnx import helper

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.errors import CompilerError

OPSET = 21
OLDEST_OPSET, NEWEST_OPSET = 18, 23


def to_onnx(graph: Graph, *, opset: int = OPSET) -> onnx.ModelProto:
    """Return a graph as an ONNX model.

    Fused operators are split again: a convolution with a residual branch and a Relu becomes Conv, Add and Relu. A
    quantised graph becomes QDQ: float operators between DequantizeLinear and QuantizeLinear, weights and biases as
    int8, int16 and int32 initialisers with a DequantizeLinear. ONNX Runtime and other runtimes expect quantised models
    in this form, and compute them with their own integer kernels.

    Values and nodes keep their names. A value that is an output of the graph under another name takes that name; the
    integers that represent it then get the suffix `.quantized`.

    Args:
        graph: A graph that `verify` accepts.
        opset: Version of ONNX's operator set, 18 to 23; integers of 16 bits need 21.

    Raises:
        CompilerError: The graph is invalid, has an operator that cannot be exported, or needs a newer opset.
    """
    verify(graph)
    _check(graph, opset)
    writer = OnnxWriter(graph, opset)
    writer.write(graph)
    opsets = [helper.make_opsetid("", opset)]
    version = helper.find_min_ir_version_for(opsets)
    return helper.make_model(writer.proto(graph), opset_imports=opsets, ir_version=version, producer_name="mlhood")


def _check(graph: Graph, opset: int) -> None:
    if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        expected = f"{OLDEST_OPSET} to {NEWEST_OPSET}"
        raise CompilerError("the opset is not supported", expected=expected, got=opset, todo=f"use {OPSET}")
    wide = [v.name for v in graph.values() if v.type.quantization and v.type.element in ("int16", "uint16")]
    if wide and opset < 21:
        raise CompilerError("integers of 16 bits need opset 21", where=f"value {wide[0]!r}", got=opset, todo="use 21")
