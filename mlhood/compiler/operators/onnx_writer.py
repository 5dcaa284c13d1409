"""The argument of export rules: the ONNX graph that is being built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.lengths import Dim, Length
from mlhood.compiler.hir.names import unique_name
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.errors import CompilerError


class OnnxWriter:
    """Nodes and initialisers of an ONNX graph, and the name of each value of the HIR in it.

    The name of a quantised value denotes its integers; rules read it as reals, through a DequantizeLinear, and their
    results pass through a QuantizeLinear. Runtimes recognise these pairs and compute with integers.

    Args:
        graph: The graph to export.
        opset: Version of ONNX's operator set that is written.
    """

    def __init__(self, graph: Graph, opset: int = 21) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._names = _names(graph)
        self._outputs = {name: name for name in graph.outputs}
        self._taken = set(self._names.values()) | graph.outputs.keys()
        self._node_names: set[str] = set()
        self._reals: dict[Value, str] = {}
        self._current: Node | None = None

    def write(self, graph: Graph) -> None:
        """Add the constants, nodes and outputs of the graph to export.

        Raises:
            CompilerError: A node cannot be exported.
        """
        for constant in graph.constants.values():
            self.constant(constant.data, self.name(constant))
        for node in graph.topological():
            self._current = node
            self._write(node)
        for name, value in graph.outputs.items():
            if self.name(value) != self._outputs[name]:
                self.emit("Identity", self.name(value), name=self._outputs[name])

    def _write(self, node: Node) -> None:
        y, operator = node.outputs[0], node.operator
        name_of = self.name if operator.converts else self.real
        inputs = ["" if value is None else name_of(value) for value in node.inputs]
        if operator.converts:
            operator.to_onnx(self, inputs, self.name(y))
            return
        name = self.name(y) if y.type.quantization is None else self.unique_name(f"{y.name}.real")
        result = operator.to_onnx(self, inputs, name)
        if result is None:
            raise CompilerError("the operator cannot be exported", where=node.where)
        if y.type.quantization is not None:
            self.quantize(result, y)
        elif result != name:
            self.emit("Identity", result, name=name)

    def proto(self, graph: Graph) -> onnx.GraphProto:
        """Return the graph that was written."""
        infos = [self.info(self.name(value), value.type) for value in graph.placeholders.values()]
        outputs = [self.info(self._outputs[name], value.type) for name, value in graph.outputs.items()]
        return helper.make_graph(self.nodes, graph.name, infos, outputs, self.initializers)

    @staticmethod
    def info(name: str, type: TensorType) -> onnx.ValueInfoProto:
        """Return the declaration of a tensor."""
        element = int(helper.np_dtype_to_tensor_dtype(type.dtype))
        return helper.make_tensor_value_info(name, element, list(type.shape))

    @property
    def node(self) -> Node:
        """The node of the HIR that is being exported.

        Raises:
            CompilerError: No node has been started.
        """
        if self._current is None:
            raise CompilerError("no node is being exported")
        return self._current

    @property
    def _node_name(self) -> str:
        return self._current.name if self._current else ""

    def name(self, value: Value) -> str:
        """Return the name of a value."""
        return self._names[value]

    def unique_name(self, name: str) -> str:
        """Return a name that no tensor has yet."""
        return unique_name(name, self._taken)

    def emit(self, op_type: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Add a node with one output and return the name of the output; see `emit_all`."""
        return self.emit_all(op_type, *inputs, names=[name], **attributes)[0]

    def emit_all(
        self, op_type: str, *inputs: str, names: Sequence[str | None], node: str | None = None, **attributes: Any
    ) -> list[str]:
        """Add a node.

        Args:
            op_type: ONNX's name of the operator.
            inputs: Names of tensors, "" for one left out.
            names: Names of the outputs; None for a new name.
            node: Name of the node; derived from the node of the HIR if omitted.
            attributes: The node's attributes; those that are None are left out.
        """
        outputs = [name or self.unique_name(f"{self._node_name}.{op_type.lower()}") for name in names]
        given = {key: _to_onnx(value) for key, value in attributes.items() if value is not None}
        for key, value in given.items():
            self._require_numbers(value if isinstance(value, list) else [value], f"{key} = {value}")
        node_name = self._unique_node_name(op_type, node or self._node_name)
        self.nodes.append(helper.make_node(op_type, list(inputs), outputs, node_name, **given))
        return outputs

    def constant(self, array: np.ndarray, name: str | None = None) -> str:
        """Add an initialiser and return its name."""
        name = name or self.unique_name(f"{self._node_name}.constant")
        self.initializers.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def integers(self, numbers: Sequence[Dim]) -> str:
        """Add a list of integers, such as a shape, as an initialiser."""
        self._require_numbers(numbers, numbers)
        return self.constant(np.array(numbers, np.int64))

    def _require_numbers(self, values: Sequence[Any], got: object) -> None:
        if any(isinstance(value, Length) for value in values):
            what = "a node that depends on the length of a dynamic axis cannot be exported"
            todo = "give the lengths: compile(model, dims={...}), or --dim NAME=LENGTH"
            raise CompilerError(what, where=self._node_name, got=got, todo=todo)

    def real(self, value: Value) -> str:
        """Return the name of a value as reals, in which form rules read it."""
        if value.type.quantization is None:
            return self._names[value]
        if value not in self._reals:
            self._reals[value] = self.dequantize(value, self.unique_name(f"{value.name}.dequantized"))
        return self._reals[value]

    def dequantize(self, value: Value, name: str, node: str | None = None) -> str:
        """Add a DequantizeLinear of a quantised value; its own name is that of its result if omitted."""
        return self._linear("DequantizeLinear", self._names[value], value.type, name, node or name)

    def quantize(self, real: str, value: Value, node: str | None = None) -> str:
        """Add the QuantizeLinear of a quantised value; its own name is derived from the value's if omitted."""
        name = self._names[value]
        return self._linear("QuantizeLinear", real, value.type, name, node or f"{name}.quantize")

    def _linear(self, op_type: str, x: str, type: TensorType, name: str, node: str) -> str:
        quantization = type.quantization or Quantization((1.0,), (0,))
        shape = () if quantization.axis is None else (-1,)
        scale = np.array(quantization.scale, np.float32).reshape(shape)
        inputs = [x, self.constant(scale, self.unique_name(f"{name}.scale"))]
        if type.element != "int32":  # the offset of int32 is always 0, and must be left out
            offset = np.array(quantization.offset, type.dtype).reshape(shape)
            inputs.append(self.constant(offset, self.unique_name(f"{name}.zero_point")))
        return self.emit_all(op_type, *inputs, names=[name], node=node, axis=quantization.axis)[0]

    def _unique_node_name(self, op_type: str, name: str) -> str:
        """Return the HIR node's name for the first ONNX node of it, and derived names for the others."""
        candidate, suffix = name, 0
        while not candidate or candidate in self._node_names:
            candidate = f"{name}/{op_type}" + (f"_{suffix}" if suffix else "")
            suffix += 1
        self._node_names.add(candidate)
        return candidate


def _names(graph: Graph) -> dict[Value, str]:
    """Return the names of the values: their own, or that of an output of the graph."""
    names: dict[Value, str] = {}
    taken = set(graph.placeholders)
    for name, value in graph.outputs.items():
        if value.producer is not None and value not in names:
            names[value] = name
            taken.add(name)
    for value in graph.values():
        if value in names:
            continue
        if value.name in graph.placeholders and value.producer is None and not isinstance(value, Constant):
            names[value] = value.name
            continue
        name = value.name
        while name in taken or name in graph.outputs:
            name = f"{name}.quantized" if value.type.quantization else f"{name}_"
        names[value] = name
        taken.add(name)
    return names


def _to_onnx(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value
