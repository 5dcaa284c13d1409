"""The argument of import rules: one ONNX node, and the graph that is being built."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import onnx

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.lengths import Dim, Length
from mlhood.compiler.hir.operator import Operator, locate_error, single
from mlhood.compiler.hir.types import MAX_RANK
from mlhood.compiler.hir.values import Constant, Placeholder, Value
from mlhood.compiler.operators.dynamic import with_references
from mlhood.compiler.operators.reinterpret import Reinterpret
from mlhood.errors import CompilerError

_T = TypeVar("_T")

# Nodes that the file does not have, but loops repeat.
MAX_NODES = 2**13

# Elements of all constants together that the model does not store, but describes by a shape.
_MAX_FILLED = 2**24
# Larger integer tensors are data, not lists of axes, sizes or offsets.
_MAX_LIST = 2**16


class Budget:
    """How many elements and nodes an import may still generate: a file of a few bytes must not allocate gigabytes."""

    def __init__(self, elements: int = _MAX_FILLED) -> None:
        self.remaining = elements
        self.nodes = MAX_NODES  # for each time that a branch or a body is imported

    def spend(self, elements: int) -> None:
        """Subtract elements from the budget.

        Raises:
            CompilerError: The budget is exceeded.
        """
        if elements > self.remaining:
            raise CompilerError(
                "the model generates larger constants than the importer allows",
                expected=f"at most {_MAX_FILLED:,} elements in all constants that the file does not store",
                got=f"{elements:,} where {self.remaining:,} are left",
                todo="store the tensor in the file, or give the shape as an input",
            )
        self.remaining -= elements


class ConstantNeeded(CompilerError):
    """An input of the graph must be known at compile time; it can be given as a constant.

    Args:
        input_name: The graph's input.
        where: The node that needs it.
    """

    def __init__(self, input_name: str, where: str) -> None:
        self.input_name = input_name
        super().__init__(
            "an input that determines a shape or a quantisation must be known at compile time",
            where=where,
            got=f"{input_name!r} is an input of the graph",
            todo=f"give its value: compile(model, constants={{{input_name!r}: ...}}), or --constant {input_name}=...",
        )


class OnnxNode:
    """One ONNX node, with its inputs as values of the graph that is being built.

    Args:
        proto: The node.
        opset: Version of the model's operator set.
        graph: The graph to which the rule adds nodes.
        inputs: The node's inputs; None for one left out.
        known: Elements of integer tensors that are known at compile time: numbers and names of axes.
        budget: How many elements may still be generated.
        rules: The import rules, for `call`.

    Raises:
        CompilerError: An attribute cannot be read.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        opset: int,
        graph: Graph,
        inputs: list[Value | None],
        known: Mapping[Value, np.ndarray],
        budget: Budget,
        rules: Mapping[str, Callable[[OnnxNode], Any]],
    ) -> None:
        self.op_type = proto.op_type
        # A body that is imported once for each iteration has nodes of the same names.
        name = proto.name or next((name for name in proto.output if name), proto.op_type)
        self.name = graph.unique_node_name(name)
        self.opset = opset
        self.graph = graph
        self.inputs = inputs
        self.outputs = [bool(name) for name in proto.output]
        self._known = known
        self.budget = budget
        self._rules = rules
        self._attributes = {attribute.name: self._decode(attribute) for attribute in proto.attribute}

    @property
    def where(self) -> str:
        """The node in error messages."""
        return f"node {self.name!r} ({self.op_type})"

    def add(self, operator: Operator, *inputs: Value | None) -> Value:
        """Add a node and return its first output; see `add_all`."""
        return self.add_all(operator, *inputs)[0]

    def add_all(self, operator: Operator, *inputs: Value | None) -> tuple[Value, ...]:
        """Add a node and return all its outputs.

        ONNX's integers have no quantisation parameters: an operator that accepts none in the types of its inputs gets
        them without.
        """
        try:
            whole, operands = with_references(self.graph, operator, inputs)
            return self.graph.add(whole, *operands, name=self.name).outputs
        except CompilerError:
            if not any(value is not None and value.type.quantization for value in inputs):
                raise
        return self.graph.add(operator, *map(self.as_stored, inputs), name=self.name).outputs

    def call(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Import an operator as a part of this node, and return its first output; see `call_all`."""
        return self.call_all(op_type, 1, *inputs, **attributes)[0]

    def call_all(self, op_type: str, outputs: int, *inputs: Value | None, **attributes: Any) -> Sequence[Value]:
        """Import an operator of ONNX's newest set as a part of this node, and return its outputs.

        Args:
            op_type: The operator.
            outputs: How many outputs are used.
            inputs: Its inputs; None for one left out.
            attributes: Its attributes; those that are None are left out.
        """
        given = {name: value for name, value in attributes.items() if value is not None}
        proto = onnx.helper.make_node(op_type, [], [self.name] * outputs, self.name, **given)
        opset = onnx.defs.onnx_opset_version()
        node = OnnxNode(proto, opset, self.graph, list(inputs), self._known, self.budget, self._rules)
        results = self._rules[op_type](node)
        return [results] if isinstance(results, Value) else results

    @overload
    def as_stored(self, value: Value) -> Value: ...

    @overload
    def as_stored(self, value: Value | None) -> Value | None: ...

    def as_stored(self, value: Value | None) -> Value | None:
        """Return a value as the integers that are stored, without quantisation parameters."""
        if value is None or value.type.quantization is None:
            return value
        if isinstance(value, Constant):
            return self.graph.constant(f"{value.name}.stored", value.data)
        return self.graph.add(Reinterpret(None), value, name=f"{value.name}.stored").outputs[0]

    def constant(self, data: np.ndarray) -> Value:
        """Add a constant named after this node."""
        return self.graph.constant(f"{self.name}.constant", data)

    def filled(self, shape: Sequence[int], fill: np.ndarray) -> np.ndarray:
        """Return an array of equal elements.

        Raises:
            CompilerError: The shape is invalid, or exceeds the import's budget.
        """
        if min(shape, default=0) < 0 or len(shape) > MAX_RANK:
            raise CompilerError("invalid shape of a constant", where=self.where, got=list(shape[:MAX_RANK]))
        self.spend(math.prod(shape))
        return np.full(shape, fill, fill.dtype)

    def spend(self, elements: int) -> None:
        """Subtract elements that the file does not store from the import's budget.

        Raises:
            CompilerError: The budget is exceeded.
        """
        try:
            self.budget.spend(elements)
        except CompilerError as error:
            raise locate_error(error, self.where) from error

    def has(self, position: int) -> bool:
        """Return whether the node has this input."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def uses_output(self, position: int) -> bool:
        """Return whether the model names, and so may use, this output."""
        return position < len(self.outputs) and self.outputs[position]

    def input(self, position: int) -> Value:
        """Return an input.

        Raises:
            CompilerError: The node does not have it.
        """
        value = self.optional(position)
        if value is None:
            raise CompilerError("an input is missing", where=self.where, got=f"no input {position}")
        return value

    def optional(self, position: int) -> Value | None:
        """Return an input, None if it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def attribute(self, name: str, default: _T = None) -> _T:
        """Return an attribute; lists are returned as tuples. Without a default, an omitted one is None.

        A real default is rounded as ONNX stores it.
        """
        fallback: Any = single(default) if isinstance(default, float) else default
        return self._attributes.get(name, fallback)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes that the node gives."""
        return self._attributes

    def dims(self, position: int) -> tuple[Dim, ...]:
        """Return an input that is a list of numbers and names of axes, such as a shape.

        Raises:
            CompilerError: It is not known at compile time.
        """
        value = self.input(position)
        elements = value.data if isinstance(value, Constant) else self._known.get(value)
        if elements is None:
            raise self.not_known(position)
        self._check_list(elements, position)
        return tuple(Length.of(axis if isinstance(axis, str) else int(axis)) for axis in elements.ravel().tolist())

    def known_dims(self, position: int) -> tuple[Dim, ...] | None:
        """Return an input as `dims` does; None if it is not a list that is known at compile time."""
        try:
            return self.dims(position)
        except CompilerError:
            return None

    def refuse_input(self, position: int) -> None:
        """Raise ConstantNeeded if an input of the node is an input of the graph."""
        value = self.input(position)
        if isinstance(value, Placeholder):
            raise self.not_known(position)

    def elements(self, value: Value) -> np.ndarray | None:
        """Return the array of a value that is known at compile time; None if it is not."""
        if isinstance(value, Constant):
            return value.data
        elements = self._known.get(value)
        return None if elements is None or elements.dtype == object else elements

    def static(self, position: int) -> np.ndarray:
        """Return an input's array.

        Raises:
            CompilerError: It is not known at compile time.
        """
        elements = self.elements(self.input(position))
        if elements is None:
            raise self.not_known(position)
        return elements

    def is_constant(self, position: int) -> bool:
        """Return whether an input's array is known at compile time."""
        value = self.optional(position)
        return value is not None and self.elements(value) is not None

    def integers(self, position: int) -> tuple[int, ...]:
        """Return an input that is a list of integers; see `static`."""
        elements = self.static(position)
        self._check_list(elements, position)
        return tuple(map(int, elements.ravel()))

    def attribute_or_input(self, name: str, position: int) -> tuple[int, ...] | None:
        """Return integers that are an attribute in old opsets and an input in new ones; None if there is neither."""
        return self.integers(position) if self.has(position) else self._attributes.get(name)

    def unsupported(self, what: str, todo: str | None = None) -> CompilerError:
        """Return the error for a feature that the compiler does not support."""
        return CompilerError(what, where=self.where, todo=todo)

    def _check_list(self, elements: np.ndarray, position: int) -> None:
        if elements.dtype.kind not in "iubO" or elements.size > _MAX_LIST:
            raise CompilerError(
                "an input must be a list of integers",
                where=self.where,
                expected=f"at most {_MAX_LIST} integers",
                got=f"input {position}: {elements.dtype.name}{list(elements.shape)}",
            )

    def _decode(self, proto: onnx.AttributeProto) -> Any:
        try:
            return _to_python(onnx.helper.get_attribute_value(proto))
        except (ValueError, TypeError) as error:
            what = "an attribute cannot be read"
            raise CompilerError(what, where=self.where, got=f"{proto.name!r}: {error}") from error

    def not_known(self, position: int) -> CompilerError:
        """Return the error for an input that has to be known when compiling; it names the graph's input behind it."""
        value = self.input(position)
        if (origin := _origin(value)) is not None:
            return ConstantNeeded(origin.name, self.where)
        return CompilerError(
            "an input must be known at compile time, but is computed at run time",
            where=self.where,
            got=f"input {position}, {value.name!r}",
        )


def _origin(value: Value) -> Placeholder | None:
    """Return the first input of the graph that a value is computed from, if all are numbers or lists of integers."""
    if isinstance(value, Placeholder):
        return value
    worklist, seen = [value], {value}
    origins: list[Placeholder] = []
    while worklist:
        value = worklist.pop()
        if isinstance(value, Placeholder):
            origins.append(value)
        elif value.producer is not None and value.producer.operator.name != "Shape":
            inputs = [each for each in value.producer.inputs if each is not None and each not in seen]
            seen.update(inputs)
            worklist += inputs
    lists = all(each.type.rank == 0 or (each.type.dtype.kind in "iub" and each.type.rank == 1) for each in origins)
    return origins[0] if origins and lists else None


def _to_python(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return tuple(map(_to_python, value))
    return value
