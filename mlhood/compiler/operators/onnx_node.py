"""What an import rule sees of an ONNX node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator, located
from mlhood.compiler.hir.types import LARGEST_RANK, Dim
from mlhood.compiler.hir.values import Constant, Placeholder, Value
from mlhood.errors import CompilerError

_T = TypeVar("_T")

# Elements that all constants together may have that the file does not hold, but says how to fill in.
LARGEST_FILL = 2**24
# Longer integer tensors are data, and no list of axes, sizes or offsets.
LONGEST_LIST = 2**16


class Budget:
    """What an import may still fill in: a file of a few bytes must not cost gigabytes."""

    def __init__(self, elements: int = LARGEST_FILL) -> None:
        self.left = elements

    def spend(self, elements: int) -> None:
        """Take elements out of the budget.

        Raises:
            CompilerError: There are not as many left.
        """
        if elements > self.left:
            raise CompilerError(
                "the model fills in larger constants than the importer allows",
                expected=f"{LARGEST_FILL:,} elements at most in all constants that the file does not hold",
                got=f"{elements:,} where {self.left:,} are left",
                todo="store the tensor in the file, or give the shape as an input",
            )
        self.left -= elements


class ConstantNeeded(CompilerError):
    """An input of the graph must be known when compiling; it can be given as a constant.

    Args:
        input_name: The graph's input.
        where: The node that needs it.
    """

    def __init__(self, input_name: str, where: str) -> None:
        self.input_name = input_name
        super().__init__(
            "an input must be known when compiling, as it decides a shape or a quantisation",
            where=where,
            got=f"{input_name!r} is an input of the graph",
            todo=f"give its value: import_model(model, constants={{{input_name!r}: array}})",
        )


class OnnxNode:
    """One ONNX node, with its inputs as values of the graph that is being built.

    Args:
        proto: The node.
        opset: Version of the operator set that the model is written in.
        graph: Where the rule adds its nodes.
        inputs: The node's inputs; None for one left out.
        known: Elements of integer tensors that are known without running: numbers, and names of axes.
        budget: What may still be filled in.

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
    ) -> None:
        self.op_type = proto.op_type
        self.name = proto.name or next((name for name in proto.output if name), proto.op_type)
        self.opset = opset
        self.graph = graph
        self.inputs = inputs
        self.outputs = [bool(name) for name in proto.output]
        self._known = known
        self._budget = budget
        self._attributes = {one.name: self._read(one) for one in proto.attribute}

    @property
    def where(self) -> str:
        """How errors name this node."""
        return f"node {self.name!r} ({self.op_type})"

    def add(self, operator: Operator, *inputs: Value | None) -> Value:
        """Add a node, return its first output."""
        return self.graph.add(operator, *inputs, name=self.name).outputs[0]

    def add_all(self, operator: Operator, *inputs: Value | None) -> tuple[Value, ...]:
        """Add a node, return all its outputs."""
        return self.graph.add(operator, *inputs, name=self.name).outputs

    def constant(self, data: np.ndarray) -> Value:
        """Add a constant named after this node."""
        return self.graph.constant(f"{self.name}.constant", data)

    def filled(self, shape: Sequence[int], fill: np.ndarray) -> np.ndarray:
        """Return one number in a shape.

        Raises:
            CompilerError: The shape cannot be, or is larger than what may be filled in.
        """
        if min(shape, default=0) < 0 or len(shape) > LARGEST_RANK:
            raise CompilerError("a constant cannot have this shape", where=self.where, got=list(shape[:LARGEST_RANK]))
        self.spend(math.prod(shape))
        return np.full(shape, fill, fill.dtype)

    def spend(self, elements: int) -> None:
        """Take elements that the file does not hold out of the import's budget.

        Raises:
            CompilerError: There are not as many left.
        """
        try:
            self._budget.spend(elements)
        except CompilerError as error:
            raise located(error, self.where) from error

    def has(self, position: int) -> bool:
        """Tell whether the node has this input."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def wants(self, position: int) -> bool:
        """Tell whether the model reads this output."""
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

    def attribute(self, name: str, default: _T) -> _T:
        """Return an attribute; lists come as tuples."""
        return self._attributes.get(name, default)

    def dims(self, position: int) -> tuple[Dim, ...]:
        """Return an input that is a list of numbers and named axes, such as a shape.

        Raises:
            CompilerError: It is not known when compiling.
        """
        value = self.input(position)
        elements = value.data if isinstance(value, Constant) else self._known.get(value)
        if elements is None:
            raise self._unknown(value, position)
        self._check_list(elements, position)
        return tuple(one if isinstance(one, str) else int(one) for one in elements.ravel().tolist())

    def static(self, position: int) -> np.ndarray:
        """Return an input's array.

        Raises:
            CompilerError: It is not known when compiling.
        """
        value = self.input(position)
        if isinstance(value, Constant):
            return value.data
        elements = self._known.get(value)
        if elements is None or elements.dtype == object:
            raise self._unknown(value, position)
        return elements

    def is_constant(self, position: int) -> bool:
        """Tell whether an input's array is known when compiling."""
        value = self.optional(position)
        if isinstance(value, Constant):
            return True
        return value is not None and value in self._known and self._known[value].dtype != object

    def integers(self, position: int) -> tuple[int, ...]:
        """Return an input that is a list of integers; see `static`."""
        elements = self.static(position)
        self._check_list(elements, position)
        return tuple(int(one) for one in elements.ravel())

    def attribute_or_input(self, name: str, position: int) -> tuple[int, ...] | None:
        """Return integers that older opsets give as an attribute and newer ones as an input; None if neither does."""
        if self.has(position):
            return self.integers(position)
        return self._attributes.get(name)

    def refuse(self, what: str, todo: str | None = None) -> CompilerError:
        """Return the error for something that the compiler does not support."""
        return CompilerError(what, where=self.where, todo=todo)

    def _check_list(self, elements: np.ndarray, position: int) -> None:
        if elements.dtype.kind not in "iubO" or elements.size > LONGEST_LIST:
            raise CompilerError(
                "an input must be a list of integers",
                where=self.where,
                expected=f"{LONGEST_LIST} integers at most",
                got=f"input {position}: {elements.dtype.name}{list(elements.shape)}",
            )

    def _read(self, proto: onnx.AttributeProto) -> Any:
        try:
            return _decoded(onnx.helper.get_attribute_value(proto))
        except (ValueError, TypeError) as error:
            what = "an attribute cannot be read"
            raise CompilerError(what, where=self.where, got=f"{proto.name!r}: {error}") from error

    def _unknown(self, value: Value, position: int) -> CompilerError:
        if isinstance(value, Placeholder):
            return ConstantNeeded(value.name, self.where)
        return CompilerError(
            "an input must be known when compiling, but is computed when running",
            where=self.where,
            got=f"input {position}, {value.name!r}",
        )


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return tuple(_decoded(one) for one in value)
    return value
