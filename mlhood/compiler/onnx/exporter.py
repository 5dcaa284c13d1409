"""From a graph to an ONNX model: float graphs as they are, quantised ones as QDQ."""

from __future__ import annotations

import onnx
from onnx import helper

from mlhood.compiler.hir.export_rules import EXPORT_RULES
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.quantized import Dequantize, Quantize, Reinterpret
from mlhood.errors import CompilerError

OPSET = 21
OLDEST_OPSET, NEWEST_OPSET = 18, 23


def to_onnx(graph: Graph, *, opset: int = OPSET) -> onnx.ModelProto:
    """Return a graph as an ONNX model.

    What fusion has put into an operator comes out again: a convolution with a residual branch and a Relu is Conv, Add
    and Relu. A quantised graph becomes QDQ: float operators between DequantizeLinear and QuantizeLinear, weights and
    biases as int8, int16 and int32 initialisers behind a DequantizeLinear. That is the form in which ONNX Runtime and
    other runtimes take quantised models, to compute with their own integer kernels.

    Values and nodes keep their names. An output of the graph that is called otherwise than its value gives the value
    its name; integers that stand for it are then called `.quantized`.

    Args:
        graph: A graph that keeps the rules of `verify`.
        opset: Version of ONNX's operator set, 18 to 23; integers of 16 bits need 21.

    Raises:
        CompilerError: The graph breaks a rule, has operators that ONNX does not (all are listed), or needs a newer
            opset.
    """
    verify(graph)
    _check(graph, opset)
    w = OnnxWriter(graph)
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
    (y, *_), operator = node.outputs, node.operator
    if isinstance(operator, Quantize):
        w.quantize(w.real(_read(node)[0]), y, node.name)
        return
    if isinstance(operator, Dequantize):
        w.dequantize(_read(node)[0], w.name(y), node.name)
        return
    if isinstance(operator, Reinterpret):
        w.emit("Identity", w.name(_read(node)[0]), name=w.name(y))
        return
    inputs = ["" if value is None else w.real(value) for value in node.inputs]
    name = w.name(y) if y.type.quantization is None else w.fresh(f"{y.name}.real")
    result = EXPORT_RULES[type(operator)](w, node, inputs, name)
    if y.type.quantization is not None:
        w.quantize(result, y)
    elif result != name:
        w.emit("Identity", result, name=name)


def _read(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]


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
        raise CompilerError(
            "this opset is not written", expected=f"{OLDEST_OPSET} to {NEWEST_OPSET}", got=opset, todo=f"use {OPSET}"
        )
    wide = [v.name for v in graph.values() if v.type.quantization and v.type.element in ("int16", "uint16")]
    if wide and opset < 21:
        raise CompilerError("integers of 16 bits need opset 21", where=f"value {wide[0]!r}", got=opset, todo="use 21")
    known = {*EXPORT_RULES, Quantize, Dequantize, Reinterpret}
    unknown = [node.where for node in graph.nodes.values() if type(node.operator) not in known]
    if unknown:
        shown = ", ".join(unknown[:10]) + (f" and {len(unknown) - 10} more" if len(unknown) > 10 else "")
        raise CompilerError("these operators cannot be exported", where=f"graph {graph.name!r}", got=shown)
