"""The difference of two graphs as text: which nodes were added, removed and changed, and what changed about them.

Nodes are matched by name. A value's name denotes the same tensor before and after a pass, so a node that reads another
name reads another tensor. Constants are compared by their elements, not by their names.

    --- lenet (12 nodes)
    +++ lenet (9 nodes)
    ~ Conv conv1
        activation: none -> Relu
        output: conv1 -> relu
    - Relu relu
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.describe import (
    format_activation,
    format_attribute,
    format_constant,
    format_quantization,
    format_type,
    input_names,
)
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.text import quote_name
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.hir.values import Constant, Node, Value

SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True)
class Change:
    """The change of one node, input or output of the graph.

    Args:
        kind: "added", "removed" or "changed".
        entity: "node", "input" or "output".
        name: Its name.
        operator: What the node computes, in the later graph unless it was removed; "" for an input or an output.
        details: What changed, as text; empty for an addition or removal.
    """

    kind: str
    entity: str
    name: str
    operator: str = ""
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{SIGNS[self.kind]} {self.operator or self.entity} {quote_name(self.name)}"
        return "\n".join([head, *(f"    {detail}" for detail in self.details)])


@dataclass(frozen=True)
class Diff:
    """The changes from one graph to another, in the order of the later one; removed nodes follow their predecessors.

    Args:
        before: Name and number of nodes of the earlier graph.
        after: The same of the later one.
        changes: All changes.
    """

    before: tuple[str, int]
    after: tuple[str, int]
    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        heads = []
        for sign, (name, count) in (("---", self.before), ("+++", self.after)):
            heads.append(f"{sign} {name} ({count} node{'' if count == 1 else 's'})")
        return "\n".join([*heads, *map(str, self.changes), "" if self.changes else "no difference\n"])

    def of(self, kind: str) -> dict[str, Change]:
        """Return the changes of nodes of one kind, "added", "removed" or "changed", by name."""
        return {change.name: change for change in self.changes if (change.kind, change.entity) == (kind, "node")}

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
        """Nodes of both that differ, by name."""
        return self.of("changed")


def diff(before: Graph, after: Graph) -> Diff:
    """Return what changed from one graph to another.

    Raises:
        CompilerError: A graph has a cycle.
    """
    changes = [
        *_compare_ends("input", before.placeholders, after.placeholders),
        *_compare_nodes(before, after),
        *_compare_ends("output", before.outputs, after.outputs),
    ]
    return Diff((before.name, len(before.nodes)), (after.name, len(after.nodes)), tuple(changes))


def _compare_ends(entity: str, old: Mapping[str, Value], new: Mapping[str, Value]) -> Iterator[Change]:
    """Compare the inputs, or the outputs, of the two graphs."""
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield Change("removed", entity, name)
        elif name not in old:
            yield Change("added", entity, name)
        else:
            producer = _compare_values("value", old[name], new[name]) if entity == "output" else ()
            if details := (*producer, *_compare_types("type", old[name].type, new[name].type)):
                yield Change("changed", entity, name, details=details)


def _compare_nodes(before: Graph, after: Graph) -> Iterator[Change]:
    """Compare the nodes in the order of the later graph; a removed node comes after the node that it followed."""
    removed: dict[str | None, list[Node]] = {}
    last = None
    for node in before.topological():
        last = node.name if node.name in after.nodes else last
        if node.name not in after.nodes:
            removed.setdefault(last, []).append(node)
    yield from _removals(removed.get(None, []))
    for node in after.topological():
        if node.name not in before.nodes:
            yield Change("added", "node", node.name, node.operator.name)
            continue
        if details := tuple(_compare_node(before.nodes[node.name], node)):
            yield Change("changed", "node", node.name, node.operator.name, details)
        yield from _removals(removed.get(node.name, []))


def _removals(nodes: list[Node]) -> Iterator[Change]:
    return (Change("removed", "node", node.name, node.operator.name) for node in nodes)


def _compare_node(old: Node, new: Node) -> Iterator[str]:
    if old.operator.name != new.operator.name:
        yield f"operator: {old.operator.name} -> {new.operator.name}"
    yield from _compare_attributes(old, new)
    first, second = (dict(zip(input_names(node), node.inputs, strict=True)) for node in (old, new))
    for name in [*first, *(name for name in second if name not in first)]:
        yield from _compare_values(name, first.get(name), second.get(name))
    yield from _compare_outputs(old, new)


def _compare_attributes(old: Node, new: Node) -> Iterator[str]:
    """Compare attributes; one that only one of two operators has is reported unless it is at its default.

    Parameters that are those of an output are reported with the output's type.
    """
    first, second = old.operator.attributes, new.operator.attributes
    output_parameters = [value.type.quantization for value in new.outputs]

    def belongs_to_output(value: object) -> bool:
        return isinstance(value, Quantization) and value in output_parameters

    for name in [*first, *(name for name in second if name not in first)]:
        if name in first and name in second:
            reported = belongs_to_output(second[name]) and isinstance(first[name], Quantization)
            differs = first[name] != second[name] and not reported
        else:
            non_default = {**old.operator.non_default_attributes, **new.operator.non_default_attributes}
            differs = name in non_default and not belongs_to_output(non_default[name])
        if differs:
            yield f"{name}: {_format(name, first)} -> {_format(name, second)}"


def _format(name: str, attributes: dict) -> str:
    if name == "activation":
        return format_activation(attributes.get(name, ()))
    return format_attribute(attributes[name]) if name in attributes else "none"


def _compare_values(name: str, old: Value | None, new: Value | None) -> Iterator[str]:
    if isinstance(old, Constant) and isinstance(new, Constant):
        yield from _compare_types(name, old.type, new.type)
        if old.type == new.type and not same_elements(old.data, new.data):
            yield f"{name}: other numbers"
    elif _reference(old) != _reference(new):
        yield f"{name}: {_reference(old)} -> {_reference(new)}"


def _reference(value: Value | None) -> str:
    if isinstance(value, Constant):
        return f"constant {format_constant(value)}"
    return "none" if value is None else f"%{quote_name(value.name)}"


def _compare_outputs(old: Node, new: Node) -> Iterator[str]:
    if len(old.outputs) != len(new.outputs):
        yield f"outputs: {len(old.outputs)} -> {len(new.outputs)}"
        return
    for first, second in zip(old.outputs, new.outputs, strict=True):
        if first.name != second.name:
            yield f"output: {_reference(first)} -> {_reference(second)}"
        yield from _compare_types("output", first.type, second.type)


def _compare_types(name: str, old: TensorType, new: TensorType) -> Iterator[str]:
    """Yield how two types differ: the quantisation parameters or the element type alone if the rest is the same."""
    if old == new:
        return
    if (old.element, old.shape) == (new.element, new.shape) and old.quantization and new.quantization:
        yield f"{name}: {format_quantization(old.quantization)} -> {format_quantization(new.quantization)}"
    elif old.shape == new.shape:
        yield f"{name}: {_element(old)} -> {_element(new)}"
    else:
        yield f"{name}: {format_type(old)} -> {format_type(new)}"


def _element(type: TensorType) -> str:
    return type.element + (f" with {format_quantization(type.quantization)}" if type.quantization else "")


def same_elements(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two arrays of the same type and shape are bitwise equal; NaN equals itself."""
    return first.__array_interface__ == second.__array_interface__ or first.tobytes() == second.tobytes()
