"""The graph: values, the nodes that make and use them, and edits that keep both sides in step.

Every edit costs what it touches, not what the graph holds, so passes stay linear on graphs of any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mlhood.compiler.hir.garbage_collection import gc_paused
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.hir.values import Constant, Node, Placeholder, Value, inferred, topological
from mlhood.errors import CompilerError


class Graph:
    """A function from placeholders to outputs.

    Args:
        name: The graph's name.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.placeholders: dict[str, Placeholder] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: dict[str, Node] = {}
        self.outputs: dict[str, Value] = {}  # added to by `output`
        self._output_names: dict[Value, set[str]] = {}  # so that asking about one value costs no walk over all outputs
        self._values: dict[str, Value] = {}
        self._counters: dict[str, int] = {}

    def value(self, name: str) -> Value:
        """Return the value of this name.

        Raises:
            CompilerError: There is none.
        """
        if name not in self._values:
            raise CompilerError("the graph has no value of this name", where=f"graph {self.name!r}", got=name)
        return self._values[name]

    def values(self) -> Iterator[Value]:
        """Give all values: placeholders, constants and what nodes make."""
        return iter(self._values.values())

    def placeholder(self, name: str, type: TensorType) -> Placeholder:
        """Add an input.

        Raises:
            CompilerError: The name is taken.
        """
        value = Placeholder(name, type)
        self._register(value)
        self.placeholders[name] = value
        return value

    def constant(self, name: str, data: np.ndarray, quantization: Quantization | None = None) -> Constant:
        """Add a constant, under the given name or, where that is taken, the next free one."""
        value = Constant(self.fresh(name), np.asarray(data), quantization)
        self._register(value)
        self.constants[value.name] = value
        return value

    def add(
        self, operator: Operator, *inputs: Value | None, name: str | None = None, outputs: Sequence[str] = ()
    ) -> Node:
        """Add a node; the operator's type rule gives the types of what it makes.

        Args:
            operator: What to compute.
            inputs: Values of this graph, or None for an optional input.
            name: The node's name; one after the operator if left out. Where it is taken, the next free one.
            outputs: Names of the outputs; after the node if left out.

        Raises:
            CompilerError: The operator does not take these inputs.
        """
        node = Node(self._fresh_in(self.nodes, name or operator.name.lower()), operator, _trimmed(inputs))
        types = inferred(node)
        names = outputs or [node.name if not i else f"{node.name}.{i}" for i in range(len(types))]
        node.outputs = tuple(Value(self.fresh(name), type, node) for name, type in zip(names, types, strict=True))
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
        """Tell whether a value is an output of the graph."""
        return any(self.outputs.get(name) is value for name in self._output_names.get(value, ()))

    def replace_input(self, node: Node, position: int, value: Value | None) -> None:
        """Let a node read another value at one position.

        Raises:
            CompilerError: The node has no input there.
        """
        if not 0 <= position < len(node.inputs):
            expected = f"0 to {len(node.inputs) - 1}"
            raise CompilerError("there is no such input", where=node.where, expected=expected, got=position)
        before = node.inputs[position]
        node.inputs = (*node.inputs[:position], value, *node.inputs[position + 1 :])
        if before is not None and before not in node.inputs:
            before.users.pop(node, None)
        if value is not None:
            value.users[node] = None

    def replace_all_uses(self, old: Value, new: Value) -> None:
        """Let all that read `old` read `new`: nodes, and outputs of the graph, which keep their names.

        The node that makes `new` goes on reading `old`, so that a node can be put behind a value.
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
        """Put a node with another operator, or other inputs, in the place of one that makes a single output.

        The new node takes the old one's name, and its output the old output's: a name in the graph stands for the same
        tensor before and after. Where a rewrite folds a node into the one before it, `replace` the later one and
        `rename_node` it after the earlier one.

        Raises:
            CompilerError: The operator does not take these inputs, or gives another type; the graph is as it was.
        """
        before = old.outputs[0]
        new = self.add(operator, *inputs)
        after = new.outputs[0]
        if len(old.outputs) > 1 or after.type != before.type:
            self.remove(new)
            raise CompilerError(
                "the new node gives another type", where=old.where, expected=before.type, got=after.type
            )
        self.replace_all_uses(before, after)
        self.remove(old)
        self.rename(after, before.name)
        self.rename_node(new, old.name)
        return new

    def rename_node(self, node: Node, name: str) -> None:
        """Give a node another name; the next free one, where it is taken."""
        if name == node.name:
            return
        del self.nodes[node.name]
        node.name = self._fresh_in(self.nodes, name)
        self.nodes[node.name] = node

    def remove(self, node: Node) -> None:
        """Take out a node that nothing reads.

        Raises:
            CompilerError: A node or an output of the graph still reads what it makes, or the node is not in the graph.
        """
        if self.nodes.get(node.name) is not node:
            raise CompilerError("a node that is not in the graph cannot be removed", where=node.where)
        used = [value.name for value in node.outputs if value.users or self.is_output(value)]
        if used:
            raise CompilerError("a node that is read cannot be removed", where=node.where, got=", ".join(used))
        for value in node.inputs:
            if value is not None:
                value.users.pop(node, None)
        for value in node.outputs:
            del self._values[value.name]
        del self.nodes[node.name]

    def remove_constant(self, constant: Constant) -> None:
        """Take out a constant that nothing reads.

        Raises:
            CompilerError: Something still reads it, or it is not in the graph.
        """
        if self.constants.get(constant.name) is not constant:
            raise CompilerError(
                "a constant that is not in the graph cannot be removed", where=f"constant {constant.name!r}"
            )
        if constant.users or self.is_output(constant):
            raise CompilerError("a constant that is read cannot be removed", where=f"constant {constant.name!r}")
        del self._values[constant.name]
        del self.constants[constant.name]

    def rename(self, value: Value, name: str) -> None:
        """Give a constant, or what a node makes, another name.

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
    def copy(self) -> Graph:
        """Return a graph of its own with the same names; the constants' arrays, which nobody can write to, are shared.

        Raises:
            CompilerError: The graph has a cycle.
        """
        other = Graph(self.name)
        values: dict[Value | None, Value | None] = {None: None}
        for placeholder in self.placeholders.values():
            values[placeholder] = other.placeholder(placeholder.name, placeholder.type)
        for constant in self.constants.values():
            values[constant] = other.constant(constant.name, constant.data, constant.type.quantization)
        for node in self.topological():
            names = [value.name for value in node.outputs]
            made = other.add(node.operator, *(values[value] for value in node.inputs), name=node.name, outputs=names)
            values.update(zip(node.outputs, made.outputs, strict=True))
        for name, value in self.outputs.items():
            other.output(other.value(value.name), name)
        return other

    def fresh(self, name: str) -> str:
        """Return a name for a value that is free: this one, or with the lowest number that makes it so."""
        return self._fresh_in(self._values, name)

    def topological(self) -> list[Node]:
        """Return the nodes in an order in which each comes after what it reads; as they were added, where that does.

        Raises:
            CompilerError: The graph has a cycle; the error names a node on it.
        """
        return topological(self.nodes.values())

    def _register(self, value: Value) -> None:
        self._check_name(value.name)
        self._values[value.name] = value

    def _check_name(self, name: str) -> None:
        if not name or name in self._values:
            raise CompilerError(
                "names of values must differ and not be empty", where=f"graph {self.name!r}", got=repr(name)
            )

    def _fresh_in(self, taken: dict, name: str) -> str:
        if name not in taken:
            return name
        while True:
            self._counters[name] = self._counters.get(name, 0) + 1
            candidate = f"{name}_{self._counters[name]}"
            if candidate not in taken:
                return candidate


def _trimmed(inputs: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
    """Return the inputs without those left out at the end."""
    length = len(inputs)
    while length and inputs[length - 1] is None:
        length -= 1
    return inputs[:length]
