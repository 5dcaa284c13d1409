"""The difference of two graphs in words: which nodes came, went and changed, and what changed about them.

Nodes are matched by name. A name of a value stands for the same tensor before and after a pass, so a node that reads
another name reads another tensor. Constants are compared by their elements, not by their names.

    --- lenet (12 nodes)
    +++ lenet (9 nodes)
    ~ Conv conv1
        activation: none -> Relu
        output: conv1 -> relu
    - Relu relu
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.drawing.labels import (
    activation_words,
    attribute_words,
    constant_words,
    input_names,
    scale_words,
    type_words,
)
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.text import PLAIN_NAME
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.hir.values import Constant, Node, Value

SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True)
class Change:
    """What happened to one node, input or output of the graph.

    Args:
        kind: "added", "removed" or "changed".
        sort: "node", "input" or "output".
        name: Its name.
        operator: What the node computes, afterwards if it is still there; "" for an input or an output.
        details: What changed, in words; empty for what came or went.
    """

    kind: str
    sort: str
    name: str
    operator: str = ""
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{SIGNS[self.kind]} {self.operator or self.sort} {_spelled(self.name)}"
        return "\n".join([head, *(f"    {detail}" for detail in self.details)])


@dataclass(frozen=True)
class Diff:
    """The changes from one graph to another, in the order of the later one; what went stands where it was.

    Args:
        before: Name and number of nodes of the earlier graph.
        after: The same of the later one.
        changes: What happened.
    """

    before: tuple[str, int]
    after: tuple[str, int]
    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        heads = [f"{sign} {name} ({_nodes(count)})" for sign, (name, count) in self._ends]
        return "\n".join([*heads, *map(str, self.changes), "" if self.changes else "no difference\n"])

    @property
    def _ends(self) -> list[tuple[str, tuple[str, int]]]:
        return [("---", self.before), ("+++", self.after)]

    def of(self, kind: str) -> dict[str, Change]:
        """Return the nodes of one kind of change by name: "added", "removed" or "changed"."""
        return {change.name: change for change in self.changes if change.kind == kind and change.sort == "node"}

    @property
    def added(self) -> dict[str, Change]:
        """Nodes that only the later graph has, by name."""
        return self.of("added")

    @property
    def removed(self) -> dict[str, Change]:
        """Nodes that only the earlier graph has, by name."""
        return self.of("removed")

    @property
    def changed(self) -> dict[str, Change]:
        """Nodes that both have, and that differ, by name."""
        return self.of("changed")


def diff(before: Graph, after: Graph) -> Diff:
    """Return what changed from one graph to another.

    Raises:
        CompilerError: A graph has a cycle.
    """
    changes = [*_ends("input", before, after), *_nodes_changed(before, after), *_ends("output", before, after)]
    return Diff((before.name, len(before.nodes)), (after.name, len(after.nodes)), tuple(changes))


def _spelled(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else json.dumps(name)


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _ends(sort: str, before: Graph, after: Graph) -> Iterator[Change]:
    """Compare inputs, or outputs, of the two graphs."""
    old: dict[str, Value] = dict(before.placeholders if sort == "input" else before.outputs)
    new: dict[str, Value] = dict(after.placeholders if sort == "input" else after.outputs)
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield Change("removed", sort, name)
        elif name not in old:
            yield Change("added", sort, name)
        elif details := (*_source(sort, old[name], new[name]), *_types("type", old[name].type, new[name].type)):
            yield Change("changed", sort, name, details=details)


def _source(sort: str, old: Value, new: Value) -> Iterator[str]:
    if sort == "output":
        yield from _input("value", old, new)


def _nodes_changed(before: Graph, after: Graph) -> Iterator[Change]:
    """Compare the nodes in the order of the later graph; what went follows the node that it followed."""
    behind: dict[str | None, list[Node]] = {}
    last = None
    for node in before.topological():
        last = node.name if node.name in after.nodes else last
        if node.name not in after.nodes:
            behind.setdefault(last, []).append(node)
    yield from _removed(behind.get(None, []))
    for node in after.topological():
        if node.name not in before.nodes:
            yield Change("added", "node", node.name, node.operator.name)
            continue
        if details := tuple(_details(before.nodes[node.name], node)):
            yield Change("changed", "node", node.name, node.operator.name, details)
        yield from _removed(behind.get(node.name, []))


def _removed(nodes: list[Node]) -> Iterator[Change]:
    return (Change("removed", "node", node.name, node.operator.name) for node in nodes)


def _details(old: Node, new: Node) -> Iterator[str]:
    if old.operator.name != new.operator.name:
        yield f"operator: {old.operator.name} -> {new.operator.name}"
    yield from _attributes(old, new)
    yield from _inputs(old, new)
    yield from _outputs(old, new)


def _attributes(old: Node, new: Node) -> Iterator[str]:
    """Compare attributes; one that only one of two operators has counts where it is not at its default."""
    first, second = old.operator.attributes, new.operator.attributes
    shown = [value.type.quantization for value in new.outputs]
    for name in [*first, *(name for name in second if name not in first)]:
        if name in first and name in second:
            differ = first[name] != second[name] and not (
                _is_shown(second[name], shown) and _is_parameters(first[name])
            )
        else:
            stated = {**old.operator.stated, **new.operator.stated}
            differ = name in stated and not _is_shown(stated[name], shown)
        if differ:
            yield f"{name}: {_attribute(name, first)} -> {_attribute(name, second)}"


def _is_parameters(value: object) -> bool:
    return isinstance(value, Quantization)


def _is_shown(value: object, shown: list[Quantization | None]) -> bool:
    return _is_parameters(value) and value in shown


def _attribute(name: str, attributes: dict) -> str:
    if name == "activation":
        return activation_words(attributes.get(name, ()))
    return attribute_words(attributes[name]) if name in attributes else "none"


def _inputs(old: Node, new: Node) -> Iterator[str]:
    """Compare what the nodes read, by the names that the operators' type rules give the inputs."""
    first = dict(zip(input_names(old), old.inputs, strict=True))
    second = dict(zip(input_names(new), new.inputs, strict=True))
    for role in [*first, *(role for role in second if role not in first)]:
        yield from _input(role, first.get(role), second.get(role))


def _input(role: str, old: Value | None, new: Value | None) -> Iterator[str]:
    if isinstance(old, Constant) and isinstance(new, Constant):
        yield from _types(role, old.type, new.type)
        if old.type == new.type and not same_elements(old.data, new.data):
            yield f"{role}: other numbers"
    elif _reference(old) != _reference(new):
        yield f"{role}: {_reference(old)} -> {_reference(new)}"


def _reference(value: Value | None) -> str:
    if isinstance(value, Constant):
        return f"constant {constant_words(value)}"
    return "none" if value is None else f"%{_spelled(value.name)}"


def _outputs(old: Node, new: Node) -> Iterator[str]:
    if len(old.outputs) != len(new.outputs):
        yield f"outputs: {len(old.outputs)} -> {len(new.outputs)}"
        return
    for first, second in zip(old.outputs, new.outputs, strict=True):
        if first.name != second.name:
            yield f"output: {_reference(first)} -> {_reference(second)}"
        yield from _types("output", first.type, second.type)


def _types(role: str, old: TensorType, new: TensorType) -> Iterator[str]:
    """Say how two types differ: only the parameters, where only they do."""
    if old == new:
        return
    if (old.element, old.shape) == (new.element, new.shape) and old.quantization and new.quantization:
        yield f"{role}: {scale_words(old.quantization)} -> {scale_words(new.quantization)}"
    elif old.shape == new.shape:
        yield f"{role}: {_element(old)} -> {_element(new)}"
    else:
        yield f"{role}: {type_words(old)} -> {type_words(new)}"


def _element(type: TensorType) -> str:
    return type.element + (f" with {scale_words(type.quantization)}" if type.quantization else "")


def same_elements(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two arrays of one type and shape hold the same bits; NaN equals itself."""
    if first.__array_interface__ == second.__array_interface__:
        return True
    return first.tobytes() == second.tobytes()
