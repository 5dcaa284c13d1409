"""From an ONNX model to a graph: each operator's class has its import rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.inliner import inline_local_functions

from mlhood.compiler.hir.garbage_collection import gc_paused
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import check_names
from mlhood.compiler.hir.operator import as_tuple, footprint, locate_error
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.onnx.functions import STANDARD, expand_functions
from mlhood.compiler.onnx.shape_arithmetic import evaluate_names
from mlhood.compiler.operators import IMPORT_RULES, ImportRule
from mlhood.compiler.operators.arithmetic import Where
from mlhood.compiler.operators.cast import array_of, element_of
from mlhood.compiler.operators.creation import Shape, Size
from mlhood.compiler.operators.onnx_node import Budget, ConstantNeeded, OnnxNode
from mlhood.compiler.operators.shape import Reshape
from mlhood.errors import CompilerError
from mlhood.exchange.load import load
from mlhood.files.mapped import map_arrays

# Shapes are short: larger integer tensors are data, and are not evaluated.
_MAX_KNOWN_ELEMENTS = 1024
# Of the largest array that evaluating such a tensor may allocate.
_MAX_EVALUATION_BYTES = 2**24
_NUMBERS = "iubf"  # kinds of NumPy's types; reals as well, since lengths are multiplied by the scale of a Resize
_MAX_NAME_CHARS = 120
_MAX_LISTED_NODES = 10
_REPAIR = "correct the node's attributes or the types of its inputs, or export the model again"


@gc_paused()
def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    rules: Mapping[str, ImportRule] | None = None,
) -> Graph:
    """Return a model as a graph, without optimising it.

    Initialisers and Constant nodes become constants, inputs become placeholders, and dynamic axes keep their names.
    Constants that only parametrise an operator (shapes, axes, limits, scales) become its attributes.

    Args:
        model: As for `mlhood.exchange.load`.
        constants: Arrays for inputs that become constants.
        dims: Lengths of dynamic axes, by name.
        shapes: Shapes of inputs, by name, instead of those that the model declares.
        rules: Import rules by the name of the ONNX operator, which override the compiler's own.

    Raises:
        ExchangeError: The model cannot be read, or is invalid.
        CompilerError: Operators (all are listed) or features of operators are not supported.
        ConstantNeeded: An input determines a shape, and is not among `constants`.
    """
    proto = load(model, types=False)
    if proto.functions:
        proto = inline_local_functions(proto)
    all_rules = {**IMPORT_RULES, **(rules or {})}
    proto = expand_functions(proto, all_rules)
    _check_operators(proto.graph, all_rules)
    check_names((), dims if dims and not isinstance(dims, Mapping) else {})
    return _Import(proto, all_rules, constants or {}, dims or {}, shapes or {}).build()


def _check_operators(graph: onnx.GraphProto, rules: Mapping[str, ImportRule]) -> None:
    unknown: dict[str, list[str]] = {}
    for node in graph.node:
        if node.domain in STANDARD and node.op_type == "If":
            continue  # its branches are checked when it is known which of them is taken
        if node.domain not in STANDARD or node.op_type not in rules:
            name = node.name or next(iter(node.output), "")
            domain = "" if node.domain in STANDARD else f"{node.domain}::"
            unknown.setdefault(f"{domain}{node.op_type}", []).append(repr(name))
    if not unknown:
        return
    raise CompilerError(
        "some operators are not supported",
        where=f"graph {graph.name!r}",
        got="; ".join(f"{op} ({_list_some(nodes)})" for op, nodes in sorted(unknown.items())),
        todo="export the model without them, or add them to mlhood.compiler.operators",
    )


def _list_some(nodes: list[str]) -> str:
    shown, hidden = ", ".join(nodes[:_MAX_LISTED_NODES]), len(nodes) - _MAX_LISTED_NODES
    return f"{shown} and {hidden} more" if hidden > 0 else shown


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
        self.opset = max((entry.version for entry in proto.opset_import if entry.domain in STANDARD), default=1)
        self.rules = rules
        self.constants = constants
        self.dims = dims
        self.shapes = shapes
        self.graph = Graph(proto.graph.name or "graph")
        self.values: dict[str, Value] = {}
        self.known: dict[Value, np.ndarray] = {}
        self.budget = Budget()
        self.axes: list[str] = []  # names of the inputs' dynamic axes

    def build(self) -> Graph:
        self._inputs()
        for node in self.proto.node:
            self._node(node)
        for output in self.proto.output:
            self._output(output)
        for constant in list(self.graph.constants.values()):
            if not constant.users and not self.graph.is_output(constant):  # it became an attribute
                self.graph.remove_constant(constant)
        return self.graph

    def _value(self, name: str, where: str) -> Value:
        if name in self.values:
            return self.values[name]
        raise CompilerError(
            "a tensor is used before its definition",
            where=where,
            expected="an input, an initialiser or an output of an earlier node",
            got=repr(name),
            todo="sort the nodes topologically, or correct the name",
        )

    def _output(self, declared: onnx.ValueInfoProto) -> None:
        where = f"output {declared.name!r}"
        value = self._value(declared.name, where)
        if declared.name in self.graph.outputs:
            raise CompilerError("two outputs have the same name", where=where)
        tensor = declared.type.tensor_type
        element = _element(tensor.elem_type, where) if tensor.elem_type else value.type.element
        rank = len(tensor.shape.dim) if tensor.HasField("shape") else value.type.rank
        # Lengths are not compared: ONNX's shape inference is wrong for some windows.
        if (element, rank) != (value.type.element, value.type.rank):
            raise CompilerError(
                "the output's type is not the one that the model declares",
                where=where,
                expected=f"{element} of {rank} axes",
                got=f"{value.type.element} of {value.type.rank} axes, {list(value.type.shape)}",
                todo="export the model again, or correct the declared type of the output",
            )
        self.graph.output(value, declared.name)

    def _inputs(self) -> None:
        if self.proto.sparse_initializer:
            names = [repr(tensor.values.name) for tensor in self.proto.sparse_initializer]
            raise CompilerError(
                "sparse initialisers are not supported",
                where=f"graph {self.graph.name!r}",
                got=_list_some(names),
                todo="store these tensors densely",
            )
        tensors = self.proto.initializer
        for tensor, array in zip(tensors, map_arrays(map(_array, tensors)), strict=True):
            if tensor.name in self.values:
                raise CompilerError("two initialisers have the same name", where=f"tensor {tensor.name!r}")
            self._constant(tensor.name, array)
        for value in self.proto.input:
            if value.name in self.values:
                continue  # an initialiser, which older files list among the inputs
            if value.name in self.constants:
                self._constant(value.name, np.asarray(self.constants[value.name]))
                continue
            type, where = self._type(value), f"input {value.name!r}"
            if violations := type.violations():
                raise CompilerError("the type of an input is invalid", where=where, got="; ".join(violations))
            self.values[value.name] = self.graph.placeholder(value.name, type)
        check_names(self.axes, self.dims)

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
                "the model does not declare the rank of this input",
                where=where,
                todo=f"give its shape: import_model(model, shapes={{{value.name!r}: (...)}})",
            )
        axes = enumerate(tensor.shape.dim)
        return TensorType(element, tuple(self._axis(axis, f"{value.name}_{i}") for i, axis in axes))

    def _axis(self, axis: onnx.TensorShapeProto.Dimension, default: str) -> Dim:
        if axis.HasField("dim_value"):
            return axis.dim_value
        name = axis.dim_param or default
        if name.isdecimal() or len(name) > _MAX_NAME_CHARS:  # not usable as a name
            return default
        self.axes.append(name)
        return self.dims.get(name, name)

    def _node(self, proto: onnx.NodeProto) -> None:
        before = len(self.graph.nodes)
        where = f"node {proto.name or next(iter(proto.output), '')!r} ({proto.op_type})"
        inputs = [self._value(name, where) if name else None for name in proto.input]
        source = OnnxNode(proto, self.opset, self.graph, inputs, self.known, self.budget)
        try:
            results = self._if(source, proto) if proto.op_type == "If" else self.rules[proto.op_type](source)
        except CompilerError as error:
            located = locate_error(error, source.where)
            located.parts.setdefault("what to do", _REPAIR)
            raise located from error
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
            got = f"{type(error).__name__}: {error}"
            raise CompilerError("the node cannot be imported", where=source.where, got=got, todo=_REPAIR) from error
        new_nodes = list(islice(reversed(self.graph.nodes.values()), len(self.graph.nodes) - before))[::-1]
        for name, value in zip(proto.output, _as_values(results, source), strict=False):
            if not name:
                continue
            if value is None:
                raise source.unsupported(f"the output {name!r} is not supported")
            self.values[name] = value
            is_new = value.producer in new_nodes or (isinstance(value, Constant) and value not in inputs)
            if is_new and self.graph.unique_name(name) == name:
                self.graph.rename(value, name)
        for node in new_nodes:
            self._evaluate(node)

    def _if(self, source: OnnxNode, proto: onnx.NodeProto) -> list[Value]:
        """Import the branch that is taken, or both where that depends on data, and select."""
        branches = {attribute.name: attribute.g for attribute in proto.attribute}
        if set(branches) != {"then_branch", "else_branch"}:
            raise source.unsupported("If must have a then_branch and an else_branch")
        if source.is_constant(0):
            return self._branch(branches["then_branch" if source.static(0).all() else "else_branch"])
        results = [self._branch(branches[name]) for name in ("then_branch", "else_branch")]
        if [value.type for value in results[0]] != [value.type for value in results[1]]:
            if isinstance(error := source.not_known(0), ConstantNeeded):
                raise error
            types = " and ".join(str([list(value.type.shape) for value in branch]) for branch in results)
            todo = "give the lengths of the open axes: compile(model, dims={...}), or --dim NAME=LENGTH"
            raise source.unsupported(f"which branch is taken depends on data, but their types differ: {types}", todo)
        condition = source.add(Reshape(()), source.input(0))
        return [source.add(Where(), condition, *values) for values in zip(*results, strict=True)]

    def _branch(self, graph: onnx.GraphProto) -> list[Value]:
        """Import the nodes of a branch, which see the values of the graph around it; return the branch's outputs."""
        _check_operators(graph, self.rules)
        outer = dict(self.values)
        for tensor in graph.initializer:
            self.values[tensor.name] = self.graph.constant(self.graph.unique_name(tensor.name), _array(tensor))
        for node in graph.node:
            self._node(node)
        results = [self._value(output.name, f"output {output.name!r} of a branch") for output in graph.output]
        self.values = outer
        return results

    def _evaluate(self, node: Node) -> None:
        """Evaluate numbers that do not depend on data: shapes, and what is computed from them."""
        output = node.outputs[0]
        if isinstance(node.operator, Shape) and node.inputs[0] is not None:
            shape = node.inputs[0].type.shape[node.operator.start : node.operator.stop]
            self.known[output] = _normalize(np.array(shape, object))
            return
        if isinstance(node.operator, Size) and node.inputs[0] is not None:
            self.known[output] = _normalize(np.array(node.inputs[0].type.size, object))
            return
        inputs = [self._known_elements(value) for value in node.inputs if value is not None]
        arrays = [array for array in inputs if array is not None]
        if len(arrays) < len(inputs) or output.type.dtype.kind not in _NUMBERS or _is_large(output.type.size):
            return
        if any(array.dtype == object for array in arrays) and not node.operator.moves:
            if output.type.is_float:
                return
            if (result := evaluate_names(node.operator, arrays)) is not None:
                self.known[output] = _normalize(result)
            return
        try:
            types = [None if value is None else value.type for value in node.inputs]
            if footprint(node.operator, types, [value.type for value in node.outputs]) > _MAX_EVALUATION_BYTES:
                return
            with np.errstate(all="ignore"):
                operands = [None if value is None else self._known_elements(value) for value in node.inputs]
                result = as_tuple(node.operator.evaluate_typed(tuple(types), *operands))[0]
        except (CompilerError, ValueError, TypeError, IndexError, ArithmeticError):
            return  # the output remains unknown; if the node is ever run, the interpreter reports the error
        self.known[output] = _normalize(np.asarray(result))

    def _known_elements(self, value: Value) -> np.ndarray | None:
        if isinstance(value, Constant) and not _is_large(value.data.size) and value.data.dtype.kind in _NUMBERS:
            return value.data
        return self.known.get(value)


def _as_values(results: Any, source: OnnxNode) -> Sequence[Value | None]:
    """Return the result of an import rule as a sequence of values."""
    values: Sequence[Any] = results if isinstance(results, (tuple, list)) else (results,)
    if any(not isinstance(value, Value) for value in values if value is not None) or values == (None,):
        raise CompilerError(
            "the import rule does not return the node's outputs",
            where=source.where,
            expected="a Value, or a sequence of them",
            got=type(results).__name__,
            todo="return source.add(operator, *inputs)",
        )
    return values


def _is_large(size: Dim) -> bool:
    return isinstance(size, str) or size > _MAX_KNOWN_ELEMENTS


def _normalize(array: np.ndarray) -> np.ndarray:
    """Return integers mixed with names of axes as objects, and integers without names among them as int64."""
    if array.dtype == object and array.size and all(isinstance(element, bool) for element in array.ravel().tolist()):
        return array.astype(bool)
    if array.dtype.kind == "U":  # a single name, which NumPy converts to a string array
        array = array.astype(object)
    if array.dtype == object and not any(isinstance(element, str) for element in array.ravel().tolist()):
        return array.astype(np.int64)
    return array


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        return array_of(tensor)
    except CompilerError as error:
        raise locate_error(error, f"tensor {tensor.name!r}") from error


def _element(number: int, where: str) -> str:
    try:
        return element_of(number)
    except CompilerError as error:
        raise locate_error(error, where) from error
