"""The graph: values, the nodes that produce and use them, and edits that keep both consistent.

The cost of an edit depends on what it changes, not on the size of the graph, so passes take linear time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mlhood.compiler.hir.names import gc_paused
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.hir.values import Constant, Node, Placeholder, Value, infer_types, topological
from mlhood.errors import CompilerError


class Graph:
    """A function from placeholders to outputs."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.placeholders: dict[str, Placeholder] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: dict[str, Node] = {}
        self.outputs: dict[str, Value] = {}  # filled by `output`
        self._output_names: dict[Value, set[str]] = {}  # for `is_output` in constant time
        self._values: dict[str, Value] = {}
        self._counters: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"Graph({self.name!r})"

    def value(self, name: str) -> Value:
        """Return the value of this name; raise CompilerError if there is none."""
        if name not in self._values:
            raise CompilerError("the graph has no value with this name", where=f"graph {self.name!r}", got=name)
        return self._values[name]

    def values(self) -> Iterator[Value]:
        """Return all values: placeholders, constants and outputs of nodes."""
        return iter(self._values.values())

    def placeholder(self, name: str, type: TensorType) -> Placeholder:
        """Add an input; raise CompilerError if the name is taken."""
        value = Placeholder(name, type)
        self._register(value)
        self.placeholders[name] = value
        return value

    def constant(self, name: str, data: np.ndarray, quantization: Quantization | None = None) -> Constant:
        """Add a constant; if the name is taken, under the next free one."""
        value = Constant(self.unique_name(name), np.asarray(data), quantization)
        self._register(value)
        self.constants[value.name] = value
        return value

    def add(
        self, operator: Operator, *inputs: Value | None, name: str | None = None, outputs: Sequence[str] = ()
    ) -> Node:
        """Add a node; the operator's type rule determines the types of its outputs.

        Args:
            operator: What to compute.
            inputs: Values of this graph, or None for an optional input.
            name: The node's name, the operator's if omitted; if it is taken, the next free one.
            outputs: Names of the outputs; derived from the node's name if omitted.

        Raises:
            CompilerError: The inputs are invalid for the operator.
        """
        node = Node(self._unique_in(self.nodes, name or operator.name.lower()), operator, _trimmed(inputs))
        types = infer_types(node)
        names = outputs or [node.name if not i else f"{node.name}.{i}" for i in range(len(types))]
        node.outputs = tuple(Value(self.unique_name(name), type, node) for name, type in zip(names, types, strict=True))
        for value in node.outputs:
            self._register(value)
        for value in inputs:
            if value is not None:
                value.users[node] = None
        self.nodes[node.name] = node
        return node

    def output(self, value: Value, name: str | None = None) -> None:
        """Make a value an output of the graph, under its own name or another."""
        name = name or value.name
        self.outputs[name] = value
        self._output_names.setdefault(value, set()).add(name)

    def is_output(self, value: Value) -> bool:
        """Return whether a value is an output of the graph."""
        return any(self.outputs.get(name) is value for name in self._output_names.get(value, ()))

    def replace_input(self, node: Node, position: int, value: Value | None) -> None:
        """Replace one input of a node.

        Raises:
            CompilerError: The node has no input at this position.
        """
        if not 0 <= position < len(node.inputs):
            expected = f"0 to {len(node.inputs) - 1}"
            raise CompilerError("the input position is out of range", where=node.where, expected=expected, got=position)
        before = node.inputs[position]
        node.inputs = (*node.inputs[:position], value, *node.inputs[position + 1 :])
        if before is not None and before not in node.inputs:
            before.users.pop(node, None)
        if value is not None:
            value.users[node] = None

    def replace_all_uses(self, old: Value, new: Value) -> None:
        """Replace all uses of a value: by nodes, and as outputs of the graph, which keep their names.

        The producer of `new` is excepted, so that a node can be inserted after a value.
        """
        if old is new:
            return
        for node in list(old.users):
            if node is new.producer:
                continue
            node.inputs = tuple(new if value is old else value for value in node.inputs)
            new.users[node] = None
            del old.users[node]
        for name in self._output_names.pop(old, ()):
            if self.outputs.get(name) is old:
                self.output(new, name)

    def replace(self, old: Node, operator: Operator, *inputs: Value | None) -> Node:
        """Replace a node that has a single output by one with another operator or other inputs.

        The new node and its output take the names of the old ones: a name denotes the same tensor before and after. A
        rewrite that folds a node into its predecessor should `replace` the later one and then `rename_node` it.

        Raises:
            CompilerError: The operator rejects the inputs, or the output's type differs; the graph is unchanged.
        """
        before = old.outputs[0]
        new = self.add(operator, *inputs)
        after = new.outputs[0]
        if len(old.outputs) > 1 or after.type != before.type:
            self.remove(new)
            what = "the new node's output has another type"
            raise CompilerError(what, where=old.where, expected=before.type, got=after.type)
        self.replace_all_uses(before, after)
        self.remove(old)
        self.rename(after, before.name)
        self.rename_node(new, old.name)
        return new

    def rename_node(self, node: Node, name: str) -> None:
        """Rename a node; if the name is taken, to the next free one."""
        if name == node.name:
            return
        del self.nodes[node.name]
        node.name = self._unique_in(self.nodes, name)
        self.nodes[node.name] = node

    def remove(self, node: Node) -> None:
        """Remove a node whose outputs have no uses.

        Raises:
            CompilerError: An output of the node is used by a node or is an output of the graph, or the node is not in
                the graph.
        """
        if self.nodes.get(node.name) is not node:
            raise CompilerError("a node that is not in the graph cannot be removed", where=node.where)
        used = [value.name for value in node.outputs if value.users or self.is_output(value)]
        if used:
            raise CompilerError("a node whose output is used cannot be removed", where=node.where, got=", ".join(used))
        for value in node.inputs:
            if value is not None:
                value.users.pop(node, None)
        for value in node.outputs:
            del self._values[value.name]
        del self.nodes[node.name]

    def remove_constant(self, constant: Constant) -> None:
        """Remove a constant that has no uses.

        Raises:
            CompilerError: It is used, or not in the graph.
        """
        where = f"constant {constant.name!r}"
        if self.constants.get(constant.name) is not constant:
            raise CompilerError("a constant that is not in the graph cannot be removed", where=where)
        if constant.users or self.is_output(constant):
            raise CompilerError("a constant that is used cannot be removed", where=where)
        del self._values[constant.name]
        del self.constants[constant.name]

    def rename(self, value: Value, name: str) -> None:
        """Rename a constant or an output of a node.

        Raises:
            CompilerError: The name is taken.
        """
        if name == value.name:
            return
        self._check_name(name)
        del self._values[value.name]
        if isinstance(value, Constant):
            del self.constants[value.name]
            self.constants[name] = value
        value.name = name
        self._values[name] = value

    @gc_paused()
    def copy(self, dims: Mapping[str, int] | None = None) -> Graph:
        """Return a copy with the same names; the constants' arrays, which are read-only, are shared.

        Args:
            dims: Lengths of dynamic axes by name; all types in the copy follow from them.

        Raises:
            CompilerError: The graph has a cycle, or an operator rejects the lengths.
        """
        dims = dims or {}
        other = Graph(self.name)
        values: dict[Value | None, Value | None] = {None: None}
        for placeholder in self.placeholders.values():
            shape = tuple(dims.get(axis, axis) if isinstance(axis, str) else axis for axis in placeholder.type.shape)
            values[placeholder] = other.placeholder(placeholder.name, replace(placeholder.type, shape=shape))
        for constant in self.constants.values():
            values[constant] = other.constant(constant.name, constant.data, constant.type.quantization)
        for node in self.topological():
            names = [value.name for value in node.outputs]
            inputs = [values[value] for value in node.inputs]
            operator, count = node.operator.specialized([value and value.type.shape for value in inputs])
            copy = other.add(operator, *inputs[:count], name=node.name, outputs=names)
            values.update(zip(node.outputs, copy.outputs, strict=True))
        for name, value in self.outputs.items():
            other.output(other.value(value.name), name)
        return other

    def unique_name(self, name: str) -> str:
        """Return a free name for a value: this one, or this one with the lowest number for which it is free."""
        return self._unique_in(self._values, name)

    def unique_node_name(self, name: str) -> str:
        """Return a free name for a node, as `unique_name` does for a value."""
        return self._unique_in(self.nodes, name)

    def topological(self) -> list[Node]:
        """Return the nodes, each after the producers of its inputs; in the order of insertion if that is such an order.

        Raises:
            CompilerError: The graph has a cycle; the error names a node on it.
        """
        return topological(self.nodes.values())

    def _register(self, value: Value) -> None:
        self._check_name(value.name)
        self._values[value.name] = value

    def _check_name(self, name: str) -> None:
        if not name or name in self._values:
            what = "names of values must be unique and not empty"
            raise CompilerError(what, where=f"graph {self.name!r}", got=repr(name))

    def _unique_in(self, taken: dict, name: str) -> str:
        if name not in taken:
            return name
        while True:
            self._counters[name] = self._counters.get(name, 0) + 1
            candidate = f"{name}_{self._counters[name]}"
            if candidate not in taken:
                return candidate


def subgraph(
    graph: Graph,
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    inputs: Sequence[Value] = (),
) -> Graph:
    """Return some nodes of a graph as a graph.

    Args:
        graph: The graph.
        nodes: The nodes, in topological order.
        outputs: The values that the new graph returns.
        inputs: Its first placeholders; what else the nodes read, and others compute, are the next ones.
    """
    part, values = Graph(graph.name), dict[Value | None, Value | None]({None: None})

    def use(value: Value | None) -> Value | None:
        if isinstance(value, Constant) and value not in values:
            values[value] = part.constant(value.name, value.data, value.type.quantization)
        elif value is not None and value not in values:
            values[value] = part.placeholder(value.name, value.type)
        return values[value]

    for value in inputs:
        use(value)
    for node in nodes:
        copy = part.add(
            node.operator, *map(use, node.inputs), name=node.name, outputs=[value.name for value in node.outputs]
        )
        values.update(zip(node.outputs, copy.outputs, strict=True))
    for value in outputs:
        if (copied := use(value)) is not None:
            part.output(copied)
    return part


def _trimmed(inputs: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
    """Return the inputs without trailing ones that are left out."""
    length = len(inputs)
    while length and inputs[length - 1] is None:
        length -= 1
    return inputs[:length]
