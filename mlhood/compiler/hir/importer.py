"""From an ONNX model to a graph: one rule an operator, which stands with the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.inliner import inline_local_functions

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import as_tuple, located
from mlhood.compiler.hir.source import Source
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators import IMPORT_RULES, ImportRule
from mlhood.compiler.operators.cast import element_of
from mlhood.compiler.operators.creation import Shape
from mlhood.errors import CompilerError
from mlhood.exchange.load import load

_STANDARD = ("", "ai.onnx")
# Shapes are short; longer integer tensors are data, and are not followed.
_LONGEST_KNOWN = 1024


def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    rules: Mapping[str, ImportRule] | None = None,
) -> Graph:
    """Return a model as a graph, as it is: nothing is optimised.

    Initialisers and Constant nodes become constants, inputs become placeholders, and open axes keep their names.
    Constants that only say how an operator works (shapes, axes, limits, scales) become its attributes.

    Args:
        model: What `mlhood.exchange.load` takes.
        constants: Arrays for inputs that are to be constants.
        dims: Numbers for open axes, by name.
        shapes: Shapes for inputs, by name, instead of those that the model declares.
        rules: Import rules by the name of the ONNX operator, which go before the compiler's own.

    Raises:
        ExchangeError: The model cannot be read, or is not valid.
        CompilerError: The compiler does not have some of its operators (all are listed), or not all that they do.
        ConstantNeeded: An input decides a shape, and is not among `constants`.
    """
    proto = load(model)
    if proto.functions:
        proto = inline_local_functions(proto)
    known = {**IMPORT_RULES, **(rules or {})}
    _check_operators(proto.graph, known)
    return _Import(proto, known, constants or {}, dims or {}, shapes or {}).build()


def _check_operators(graph: onnx.GraphProto, rules: Mapping[str, ImportRule]) -> None:
    unknown: dict[str, list[str]] = {}
    for node in graph.node:
        if node.domain not in _STANDARD or node.op_type not in rules:
            name = node.name or next(iter(node.output), "")
            domain = "" if node.domain in _STANDARD else f"{node.domain}::"
            unknown.setdefault(f"{domain}{node.op_type}", []).append(repr(name))
    if not unknown:
        return
    listed = "; ".join(f"{op} ({_some(nodes)})" for op, nodes in sorted(unknown.items()))
    raise CompilerError(
        "the compiler does not have these operators",
        where=f"graph {graph.name!r}",
        got=listed,
        todo="export the model without them, or add them to mlhood.compiler.operators",
    )


def _some(nodes: list[str]) -> str:
    shown = ", ".join(nodes[:10])
    return shown if len(nodes) <= 10 else f"{shown} and {len(nodes) - 10} more"


class _Import:
    """One run of the importer."""

    def __init__(
        self,
        proto: onnx.ModelProto,
        rules: Mapping[str, ImportRule],
        constants: Mapping[str, np.ndarray],
        dims: Mapping[str, int],
        shapes: Mapping[str, Sequence[int]],
    ) -> None:
        self.proto = proto.graph
        self.opset = next(entry.version for entry in proto.opset_import if entry.domain in _STANDARD)
        self.rules = rules
        self.constants = constants
        self.dims = dims
        self.shapes = shapes
        self.graph = Graph(proto.graph.name or "graph")
        self.values: dict[str, Value] = {}
        self.known: dict[Value, np.ndarray] = {}

    def build(self) -> Graph:
        self._inputs()
        for node in self.proto.node:
            self._node(node)
        for output in self.proto.output:
            self.graph.output(self.values[output.name], output.name)
        self._drop_absorbed()
        return self.graph

    def _drop_absorbed(self) -> None:
        """Take out the constants that nothing reads: shapes, axes, limits and scales that have become attributes."""
        read = set(self.graph.outputs.values())
        for constant in list(self.graph.constants.values()):
            if not constant.users and constant not in read:
                self.graph.remove_constant(constant)

    def _inputs(self) -> None:
        for tensor in self.proto.initializer:
            self._constant(tensor.name, _array(tensor))
        for value in self.proto.input:
            if value.name in self.values:
                continue  # an initialiser, which older files list among the inputs
            if value.name in self.constants:
                self._constant(value.name, np.asarray(self.constants[value.name]))
            else:
                self.values[value.name] = self.graph.placeholder(value.name, _sound(self._type(value), value.name))

    def _constant(self, name: str, data: np.ndarray) -> None:
        self.values[name] = self.graph.constant(name, data)

    def _type(self, value: onnx.ValueInfoProto) -> TensorType:
        where = f"input {value.name!r}"
        if value.type.WhichOneof("value") != "tensor_type":
            raise CompilerError("only tensors are supported as inputs", where=where, got=value.type.WhichOneof("value"))
        tensor = value.type.tensor_type
        element = _element(tensor.elem_type, where)
        if value.name in self.shapes:
            return TensorType(element, tuple(self.shapes[value.name]))
        if not tensor.HasField("shape"):
            raise CompilerError(
                "the model does not say how many axes this input has",
                where=where,
                todo=f"give its shape: import_model(model, shapes={{{value.name!r}: (...)}})",
            )
        axes = enumerate(tensor.shape.dim)
        return TensorType(element, tuple(self._axis(axis, f"{value.name}_{i}") for i, axis in axes))

    def _axis(self, axis: onnx.TensorShapeProto.Dimension, otherwise: str) -> Dim:
        if axis.HasField("dim_value"):
            return axis.dim_value
        name = axis.dim_param or otherwise
        return self.dims.get(name, name)

    def _node(self, proto: onnx.NodeProto) -> None:
        before = len(self.graph.nodes)
        inputs = [self.values[name] if name else None for name in proto.input]
        source = Source(proto, self.opset, self.graph, inputs, self.known)
        try:
            made = self.rules[proto.op_type](source)
        except CompilerError as error:
            raise located(error, source.where) from error
        except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as error:
            raise CompilerError("the node cannot be imported", where=source.where, got=error) from error
        added = _last(self.graph.nodes, len(self.graph.nodes) - before)
        for name, value in zip(proto.output, _made(made, source), strict=False):
            if not name:
                continue
            if value is None:
                raise source.refuse(f"the output {name!r} is not supported")
            self.values[name] = value
            if value.producer in added or (isinstance(value, Constant) and value not in inputs):
                self._rename(value, name)
        for node in added:
            self._follow(node)

    def _rename(self, value: Value, name: str) -> None:
        if self.graph.fresh(name) == name:
            self.graph.rename(value, name)

    def _follow(self, node: Node) -> None:
        """Work out integers that do not depend on data: shapes, and what is computed from them."""
        output = node.outputs[0]
        if isinstance(node.operator, Shape) and node.inputs[0] is not None:
            shape = node.inputs[0].type.shape[node.operator.start : node.operator.stop]
            self.known[output] = _elements(np.array(shape, object))
            return
        read = [self._elements_of(value) for value in node.inputs if value is not None]
        if any(one is None for one in read) or output.type.dtype.kind not in "iub" or _is_long(output.type.size):
            return
        arrays = [one for one in read if one is not None]
        if any(one.dtype == object for one in arrays) and not node.operator.moves:
            return
        try:
            with np.errstate(all="ignore"):
                result = as_tuple(node.operator.evaluate(*arrays))[0]
        except (CompilerError, ValueError, TypeError, IndexError):
            return  # what it makes stays unknown; if it runs at all, the interpreter says what is wrong
        self.known[output] = _elements(np.asarray(result))

    def _elements_of(self, value: Value) -> np.ndarray | None:
        if isinstance(value, Constant) and not _is_long(value.data.size) and value.data.dtype.kind in "iub":
            return value.data
        return self.known.get(value)


def _made(made: object, source: Source) -> Sequence[Value | None]:
    """What a rule returned, as a sequence of values."""
    values = made if isinstance(made, (tuple, list)) else (made,)
    if any(not isinstance(value, Value) for value in values if value is not None) or values == (None,):
        raise CompilerError(
            "the import rule does not return what the node makes",
            where=source.where,
            expected="a Value, or a sequence of them",
            got=type(made).__name__,
            todo="return source.add(operator, *inputs)",
        )
    return values


def _is_long(size: Dim) -> bool:
    return isinstance(size, str) or size > _LONGEST_KNOWN


def _elements(array: np.ndarray) -> np.ndarray:
    """Return integers as int64, and names of axes among them as objects."""
    if array.dtype == object and not any(isinstance(one, str) for one in array.ravel().tolist()):
        return array.astype(np.int64)
    return array


def _sound(type: TensorType, name: str) -> TensorType:
    if faults := type.faults():
        raise CompilerError("the type of an input is not sound", where=f"input {name!r}", got="; ".join(faults))
    return type


def _last(nodes: dict[str, Node], count: int) -> list[Node]:
    names = [name for name, _ in zip(reversed(nodes), range(count), strict=False)]
    return [nodes[name] for name in reversed(names)]


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    _element(tensor.data_type, f"tensor {tensor.name!r}")
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise CompilerError("a constant cannot be read", where=f"tensor {tensor.name!r}", got=error) from error


def _element(number: int, where: str) -> str:
    try:
        return element_of(number)
    except CompilerError as error:
        raise located(error, where) from error
