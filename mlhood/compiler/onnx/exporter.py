"""From a graph to an ONNX model: float graphs as they are, quantised ones as QDQ."""

from __future__ import annotations

import onnx
from onnx import helper

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import supports
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node
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
        CompilerError: The graph is invalid, has operators that cannot be exported (all are listed), or needs a newer
            opset.
    """
    verify(graph)
    _check(graph, opset)
    w = OnnxWriter(graph, opset)
    for constant in graph.constants.values():
        w.constant(constant.data, w.name(constant))
    for node in graph.topological():
        w.start(node)
        _write(w, node)
    for name, value in graph.outputs.items():
        if w.name(value) != name:
            w.emit("Identity", w.name(value), name=name)
    return _model(graph, w, opset)


def _write(w: OnnxWriter, node: Node) -> None:
    y, operator = node.outputs[0], node.operator
    name_of = w.name if operator.converts else w.real
    inputs = ["" if value is None else name_of(value) for value in node.inputs]
    if operator.converts:
        operator.to_onnx(w, inputs, w.name(y))
        return
    name = w.name(y) if y.type.quantization is None else w.unique_name(f"{y.name}.real")
    result = operator.to_onnx(w, inputs, name)
    if result is None:
        raise CompilerError("the operator cannot be exported", where=node.where)
    if y.type.quantization is not None:
        w.quantize(result, y)
    elif result != name:
        w.emit("Identity", result, name=name)


def _model(graph: Graph, w: OnnxWriter, opset: int) -> onnx.ModelProto:
    inputs = [_info(name, value.type) for name, value in graph.placeholders.items()]
    outputs = [_info(name, value.type) for name, value in graph.outputs.items()]
    proto = helper.make_graph(w.nodes, graph.name, inputs, outputs, w.initializers)
    opsets = [helper.make_opsetid("", opset)]
    version = helper.find_min_ir_version_for(opsets)
    return helper.make_model(proto, opset_imports=opsets, ir_version=version, producer_name="mlhood")


def _info(name: str, type: TensorType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, int(helper.np_dtype_to_tensor_dtype(type.dtype)), list(type.shape))


def _check(graph: Graph, opset: int) -> None:
    if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        expected = f"{OLDEST_OPSET} to {NEWEST_OPSET}"
        raise CompilerError("the opset is not supported", expected=expected, got=opset, todo=f"use {OPSET}")
    wide = [v.name for v in graph.values() if v.type.quantization and v.type.element in ("int16", "uint16")]
    if wide and opset < 21:
        raise CompilerError("integers of 16 bits need opset 21", where=f"value {wide[0]!r}", got=opset, todo="use 21")
    unknown = [node.where for node in graph.nodes.values() if not supports(type(node.operator), "to_onnx")]
    if unknown:
        shown = ", ".join(unknown[:10]) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
        raise CompilerError("some operators cannot be exported", where=f"graph {graph.name!r}", got=shown)
