"""From an ONNX model to a graph: one rule an operator, which stands with the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.inliner import inline_local_functions

from mlhood.compiler.hir.garbage_collection import gc_paused
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import as_tuple, footprint, located
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators import IMPORT_RULES, ImportRule
from mlhood.compiler.operators.cast import array_of, element_of
from mlhood.compiler.operators.creation import Shape
from mlhood.compiler.operators.onnx_node import Budget, OnnxNode
from mlhood.errors import CompilerError
from mlhood.exchange.load import load

_STANDARD = ("", "ai.onnx")
# Shapes are short; longer integer tensors are data, and are not followed.
_LONGEST_KNOWN = 1024
# Bytes that an operator may take to work out such a tensor.
_LARGEST_STEP = 2**24
_LONGEST_NAME = 120
_REPAIR = "repair the node's attributes or the types of its inputs, or export the model again"


@gc_paused()
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
    proto = load(model, types=False)
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
        self.opset = max((entry.version for entry in proto.opset_import if entry.domain in _STANDARD), default=1)
        self.rules = rules
        self.constants = constants
        self.dims = dims
        self.shapes = shapes
        self.graph = Graph(proto.graph.name or "graph")
        self.values: dict[str, Value] = {}
        self.known: dict[Value, np.ndarray] = {}
        self.budget = Budget()

    def build(self) -> Graph:
        self._inputs()
        for node in self.proto.node:
            self._node(node)
        for output in self.proto.output:
            self._output(output)
        self._drop_absorbed()
        return self.graph

    def _drop_absorbed(self) -> None:
        """Take out the constants that nothing reads: shapes, axes, limits and scales that have become attributes."""
        read = set(self.graph.outputs.values())
        for constant in list(self.graph.constants.values()):
            if not constant.users and constant not in read:
                self.graph.remove_constant(constant)

    def _value(self, name: str, where: str) -> Value:
        if name in self.values:
            return self.values[name]
        raise CompilerError(
            "the graph reads a tensor that nothing makes before",
            where=where,
            expected="an input, an initialiser or an output of an earlier node",
            got=repr(name),
            todo="put the nodes in order of execution, or repair the name",
        )

    def _output(self, declared: onnx.ValueInfoProto) -> None:
        where = f"output {declared.name!r}"
        value = self._value(declared.name, where)
        if declared.name in self.graph.outputs:
            raise CompilerError("two outputs have the same name", where=where)
        tensor = declared.type.tensor_type
        element = _element(tensor.elem_type, where) if tensor.elem_type else value.type.element
        rank = len(tensor.shape.dim) if tensor.HasField("shape") else value.type.rank
        # Lengths are not compared: ONNX's own rules give wrong ones for some windows.
        if (element, rank) != (value.type.element, value.type.rank):
            raise CompilerError(
                "the model makes something other than it declares",
                where=where,
                expected=f"{element} of {rank} axes",
                got=f"{value.type.element} of {value.type.rank} axes, {list(value.type.shape)}",
                todo="export the model again, or correct the type that it declares for the output",
            )
        self.graph.output(value, declared.name)

    def _inputs(self) -> None:
        if self.proto.sparse_initializer:
            names = [repr(one.values.name) for one in self.proto.sparse_initializer]
            raise CompilerError(
                "sparse initialisers are not supported",
                where=f"graph {self.graph.name!r}",
                got=_some(names),
                todo="store these tensors as dense ones",
            )
        for tensor in self.proto.initializer:
            if tensor.name in self.values:
                raise CompilerError("two initialisers have the same name", where=f"tensor {tensor.name!r}")
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
        if name.isdecimal() or len(name) > _LONGEST_NAME:  # no name, or no name that a type should carry
            return otherwise
        return self.dims.get(name, name)

    def _node(self, proto: onnx.NodeProto) -> None:
        before = len(self.graph.nodes)
        where = f"node {proto.name or next(iter(proto.output), '')!r} ({proto.op_type})"
        inputs = [self._value(name, where) if name else None for name in proto.input]
        source = OnnxNode(proto, self.opset, self.graph, inputs, self.known, self.budget)
        try:
            made = self.rules[proto.op_type](source)
        except CompilerError as error:
            raise _explained(error, source.where) from error
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
            raise CompilerError(
                "the node cannot be imported",
                where=source.where,
                got=f"{type(error).__name__}: {error}",
                todo=_REPAIR,
            ) from error
        added = _last(self.graph.nodes, len(self.graph.nodes) - before)
        new = set(added)
        for name, value in zip(proto.output, _made(made, source), strict=False):
            if not name:
                continue
            if value is None:
                raise source.refuse(f"the output {name!r} is not supported")
            self.values[name] = value
            if (value.producer is not None and value.producer in new) or (
                isinstance(value, Constant) and value not in inputs
            ):
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
            types = [None if value is None else value.type for value in node.inputs]
            if footprint(node.operator, types, [value.type for value in node.outputs]) > _LARGEST_STEP:
                return
            with np.errstate(all="ignore"):
                result = as_tuple(node.operator.evaluate(*arrays))[0]
        except (CompilerError, ValueError, TypeError, IndexError, ArithmeticError):
            return  # what it makes stays unknown; if it runs at all, the interpreter says what is wrong
        self.known[output] = _elements(np.asarray(result))

    def _elements_of(self, value: Value) -> np.ndarray | None:
        if isinstance(value, Constant) and not _is_long(value.data.size) and value.data.dtype.kind in "iub":
            return value.data
        return self.known.get(value)


def _made(made: Any, source: OnnxNode) -> Sequence[Value | None]:
    """What a rule returned, as a sequence of values."""
    values: Sequence[Any] = made if isinstance(made, (tuple, list)) else (made,)
    if any(not isinstance(value, Value) for value in values if value is not None) or values == (None,):
        raise CompilerError(
            "the import rule does not return what the node makes",
            where=source.where,
            expected="a Value, or a sequence of them",
            got=type(made).__name__,
            todo="return source.add(operator, *inputs)",
        )
    return values


def _explained(error: CompilerError, where: str) -> CompilerError:
    """Return the error with the node's name, and with what to do where it does not say so."""
    error = located(error, where)
    if "what to do" not in error.parts:
        error.parts["what to do"] = _REPAIR
    return error


def _is_long(size: Dim) -> bool:
    return isinstance(size, str) or size > _LONGEST_KNOWN


def _elements(array: np.ndarray) -> np.ndarray:
    """Return integers as int64, and names of axes among them as objects."""
    if array.dtype.kind == "U":  # a name that NumPy took out of its array
        array = array.astype(object)
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
    try:
        return array_of(tensor)
    except CompilerError as error:
        raise located(error, f"tensor {tensor.name!r}") from error


def _element(number: int, where: str) -> str:
    try:
        return element_of(number)
    except CompilerError as error:
        raise located(error, where) from error
