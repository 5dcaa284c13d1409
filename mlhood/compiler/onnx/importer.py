"""From an ONNX model to a graph: each operator's class has its import rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import as_array, as_constant, check_given, check_names
from mlhood.compiler.hir.names import gc_paused
from mlhood.compiler.hir.operator import as_tuple, footprint, locate_error
from mlhood.compiler.hir.types import STORED, Dim, TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.onnx import control_flow
from mlhood.compiler.onnx.functions import expand_functions
from mlhood.compiler.onnx.shape_arithmetic import evaluate_names
from mlhood.compiler.operators import IMPORT_RULES, ImportRule
from mlhood.compiler.operators.cast import Cast, array_of, element_of, widened
from mlhood.compiler.operators.creation import Shape
from mlhood.compiler.operators.onnx_node import MAX_NODES, Budget, OnnxNode
from mlhood.errors import CompilerError
from mlhood.exchange.functions import STANDARD, all_nodes, inline_functions
from mlhood.exchange.load import load
from mlhood.files.mapped import map_arrays

# Shapes are short: larger integer tensors are data, and are not evaluated.
_MAX_KNOWN_ELEMENTS = 1024
# Of the largest array that evaluating such a tensor may allocate.
_MAX_EVALUATION_BYTES = 2**24
# Operators that accept and return types that are only stored; those with graphs in them pass values on.
_CONVERSIONS = {"Cast", "CastLike", "Identity", "QuantizeLinear", "DequantizeLinear", "If", "Loop", "Scan"}
_NUMBERS = "iubfV"  # kinds of NumPy's types; reals as well, since lengths are multiplied by the scale of a Resize
_MAX_NAME_CHARS = 120
_MAX_LISTED_NODES = 10
_REPAIR = "correct the node's attributes or the types of its inputs, or export the model again"


@gc_paused()
def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    *,
    constants: Mapping[str, ArrayLike] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    rules: Mapping[str, ImportRule] | None = None,
) -> Graph:
    """Return a model as a graph, without optimising it.

    Initialisers and Constant nodes become constants, inputs become placeholders, and dynamic axes keep their names.
    Constants that only parametrise an operator (shapes, axes, limits, scales) become its attributes.

    Args:
        model: As for `mlhood.exchange.load`.
        constants: Inputs that become constants, by name: arrays, or numbers and lists of the declared type.
        dims: Lengths of dynamic axes, by name.
        shapes: Shapes of inputs, by name, instead of those that the model declares; an axis is a number, or a name.
        rules: Import rules by the name of the ONNX operator ("domain::name" outside of the standard), which override
            the compiler's own.

    Raises:
        ExchangeError: The model cannot be read, or is invalid.
        CompilerError: Operators (all are listed) or features of operators are not supported, or an argument names no
            input or does not have its type.
        ConstantNeeded: An input determines a shape, and is not among `constants`.
    """
    proto = load(model, types=False)
    if proto.functions:
        proto = inline_functions(proto)
    if proto.graph.sparse_initializer:
        name, todo = proto.graph.sparse_initializer[0].values.name, "write it as a dense initialiser"
        raise CompilerError("sparse initialisers are not supported", where=f"initialiser {name!r}", todo=todo)
    all_rules = {**IMPORT_RULES, **(rules or {})}
    proto = expand_functions(proto, all_rules)
    _check_operators(proto.graph, all_rules)
    check_names((), dims if dims and not isinstance(dims, Mapping) else {})
    return _Import(proto, all_rules, constants or {}, dims or {}, shapes or {}).build()


def rule_key(node: onnx.NodeProto) -> str:
    """Return the name of a node's operator among the import rules, such as "Conv" or "com.microsoft::QGemm"."""
    return node.op_type if node.domain in STANDARD else f"{node.domain}::{node.op_type}"


def _check_operators(graph: onnx.GraphProto, rules: Mapping[str, ImportRule]) -> None:
    unknown: dict[str, list[str]] = {}
    for node in graph.node:
        # The graphs in an If or a Loop are checked when they are imported: one branch may not be.
        if rule_key(node) not in rules and rule_key(node) not in control_flow.RULES:
            name = node.name or next(iter(node.output), "")
            unknown.setdefault(rule_key(node), []).append(repr(name))
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
        constants: Mapping[str, ArrayLike],
        dims: Mapping[str, int],
        shapes: Mapping[str, Sequence[Dim]],
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
        self.budget.nodes += sum(1 for _ in all_nodes(proto.graph))
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
            todo="correct the name, or export the model again",
        )

    def _output(self, declared: onnx.ValueInfoProto) -> None:
        where = f"output {declared.name!r}"
        value = self._value(declared.name, where)
        if declared.name in self.graph.outputs:
            return  # listed twice
        number = declared.type.tensor_type.elem_type
        element = _element(number, where) if number else value.type.element
        # Shapes are not compared: tools leave them out, or write wrong ones, and ours follow from the nodes.
        if element != value.type.element:
            raise CompilerError(
                "the output's element type is not the one that the model declares",
                where=where,
                expected=element,
                got=value.type.element,
                todo="export the model again, or correct the declared type of the output",
            )
        self.graph.output(value, declared.name)

    def _inputs(self) -> None:
        tensors = self.proto.initializer
        for tensor, array in zip(tensors, map_arrays(map(_array, tensors)), strict=True):
            if tensor.name in self.values:
                raise CompilerError("two initialisers have the same name", where=f"tensor {tensor.name!r}")
            self._constant(tensor.name, array)
        inputs = [value for value in self.proto.input if value.name not in self.values]  # older files list initialisers
        names = [value.name for value in inputs]
        check_given("constants", self.constants, names)
        check_given("shapes", self.shapes, names)
        for value in inputs:
            if value.name in self.constants:
                self._constant(value.name, self._given(value))
                continue
            type, where = self._type(value), f"input {value.name!r}"
            if violations := type.violations():
                raise CompilerError("the type of an input is invalid", where=where, got="; ".join(violations))
            self.values[value.name] = self.graph.placeholder(value.name, type)
        check_names(self.axes, self.dims)

    def _constant(self, name: str, data: np.ndarray) -> None:
        self.values[name] = self.graph.constant(name, data)

    def _given(self, value: onnx.ValueInfoProto) -> np.ndarray:
        """Return the constant that is given for an input, converted to its declared type."""
        given = self.constants[value.name]
        if not value.type.tensor_type.HasField("shape") and value.name not in self.shapes:
            self.shapes = {**self.shapes, value.name: as_array(value.name, given).shape}
        return as_constant(value.name, given, self._type(value))

    def _type(self, value: onnx.ValueInfoProto) -> TensorType:
        where = f"input {value.name!r}"
        if value.type.WhichOneof("value") != "tensor_type":
            raise CompilerError("only tensors are supported as inputs", where=where, got=value.type.WhichOneof("value"))
        tensor = value.type.tensor_type
        element = _element(tensor.elem_type, where)
        if value.name in self.shapes:
            shape = self.shapes[value.name]
        elif tensor.HasField("shape"):
            shape = [self._declared(axis, f"{value.name}_{i}") for i, axis in enumerate(tensor.shape.dim)]
        else:
            raise CompilerError(
                "the model does not declare the shape of this input",
                where=where,
                todo=f"give it: compile(model, shapes={{{value.name!r}: (1, ...)}}), or --shape {value.name}=1,...",
            )
        self.axes += [axis for axis in shape if isinstance(axis, str)]
        return TensorType(element, tuple(self.dims.get(str(axis), axis) for axis in shape))

    def _declared(self, axis: onnx.TensorShapeProto.Dimension, default: str) -> Dim:
        """Return the length of an axis, or its name: the default for one without a name, such as -1 or "?"."""
        if axis.HasField("dim_value") and axis.dim_value >= 0:
            return axis.dim_value
        is_name = any(map(str.isalpha, axis.dim_param)) and len(axis.dim_param) <= _MAX_NAME_CHARS
        return axis.dim_param if is_name else default

    def _node(self, proto: onnx.NodeProto) -> None:
        before = len(self.graph.nodes)
        where = f"node {proto.name or next(iter(proto.output), '')!r} ({proto.op_type})"
        inputs = [self._value(name, where) if name else None for name in proto.input]
        computed = inputs
        if proto.op_type not in _CONVERSIONS:
            computed = [None if value is None else widened(self.graph, value) for value in inputs]
        source = OnnxNode(proto, self.opset, self.graph, computed, self.known, self.budget, self.rules)
        try:
            if (key := rule_key(proto)) in self.rules:
                results = self.rules[key](source)
            else:
                results = control_flow.RULES[key](source, self._inner)
        except CompilerError as error:
            located = locate_error(error, source.where)
            located.parts.setdefault("what to do", _REPAIR)
            raise located from error
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
            got = f"{type(error).__name__}: {error}"
            raise CompilerError("the node cannot be imported", where=source.where, got=got, todo=_REPAIR) from error
        if computed != inputs:
            results = self._narrowed(source, proto, inputs, _as_values(results, source))
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
            if node.outputs[0] not in self.known:  # as those of a loop that is unrolled may be
                self._evaluate(node)

    def _narrowed(
        self, source: OnnxNode, proto: onnx.NodeProto, inputs: list[Value | None], results: Sequence[Value | None]
    ) -> list[Value | None]:
        """Return results in the types that the operator's schema gives them, those of inputs that were widened."""
        names = [""] * len(inputs), [""] * len(results)  # of the type constraints
        if onnx.defs.has(proto.op_type, proto.domain):
            schema = onnx.defs.get_schema(proto.op_type, self.opset, proto.domain)
            formal = zip((schema.inputs, schema.outputs), names, strict=True)
            names = [[each[min(i, len(each) - 1)].type_str for i in range(len(given))] for each, given in formal]
        given = [(name, x.type.element) for name, x in zip(names[0], inputs, strict=True) if x is not None]
        elements = {name: element for name, element in given if element in STORED}
        narrowed = list(results)
        for i, (name, y) in enumerate(zip(names[1], results, strict=True)):
            if y is not None and name in elements and STORED[elements[name]] == y.type.element:
                narrowed[i] = source.add(Cast(elements[name]), y)
        return narrowed

    def _inner(self, graph: onnx.GraphProto, inputs: Sequence[Value]) -> list[Value]:
        """Import the nodes of a branch or body, which see the values around it; return the outputs."""
        _check_operators(graph, self.rules)
        self.budget.nodes -= 1 + len(graph.node)
        if self.budget.nodes < 0:
            raise CompilerError(f"the iterations of the loops take more than {MAX_NODES:,} nodes to import")
        outer = dict(self.values)
        self.values |= {declared.name: value for declared, value in zip(graph.input, inputs, strict=True)}
        for tensor in graph.initializer:
            self.values[tensor.name] = self.graph.constant(self.graph.unique_name(tensor.name), _array(tensor))
        for node in graph.node:
            self._node(node)
        results = [self._value(output.name, f"output {output.name!r} of {graph.name!r}") for output in graph.output]
        self.values = outer
        return results

    def _evaluate(self, node: Node) -> None:
        """Evaluate numbers that do not depend on data: shapes, and what is computed from them."""
        output = node.outputs[0]
        if isinstance(node.operator, Shape) and node.inputs[0] is not None:
            shape = node.inputs[0].type.shape[node.operator.start : node.operator.stop]
            self.known[output] = _normalize(np.array(shape, object))
            return
        inputs = [self._known_elements(value) for value in node.inputs if value is not None]
        arrays = [array for array in inputs if array is not None]
        if len(arrays) < len(inputs) or output.type.dtype.kind not in _NUMBERS or _is_large(output.type.size):
            return
        try:
            types = [None if value is None else value.type for value in node.inputs]
            if any(array.dtype == object for array in arrays) and not node.operator.moves:
                given = [type for type in types if type is not None]
                if (result := evaluate_names(node.operator, given, arrays, output.type)) is not None:
                    self.known[output] = _normalize(result, output.type.dtype)
                return
            if footprint(node.operator, types, [value.type for value in node.outputs]) > _MAX_EVALUATION_BYTES:
                return
            with np.errstate(all="ignore"):
                operands = [None if value is None else self._known_elements(value) for value in node.inputs]
                result = as_tuple(node.operator.evaluate_typed(tuple(types), *operands))[0]
        except (CompilerError, ValueError, TypeError, IndexError, ArithmeticError):
            return  # the output remains unknown; if the node is ever run, the interpreter reports the error
        array = np.asarray(result)
        if array.dtype.kind == "U":  # NumPy makes plain text of a single length
            lengths = {str(each): each for given in arrays for each in given.ravel().tolist()}
            array = np.array([lengths[text] for text in array.ravel().tolist()], object).reshape(array.shape)
        self.known[output] = _normalize(array, output.type.dtype)

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


def _normalize(array: np.ndarray, dtype: Any = np.int64) -> np.ndarray:
    """Return numbers mixed with names of axes as objects, and numbers without names among them in their own type."""
    if array.dtype != object:
        return array
    return array if any(isinstance(element, str) for element in array.ravel().tolist()) else array.astype(dtype)


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
