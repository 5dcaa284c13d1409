"""The choice of layouts: which activations are blocked, for the whole graph at the least cost.

Convolution and pooling compute blocked; whatever only moves or combines elements can do both. Where a value is
produced in one layout and read in the other, it is converted, which costs as much as it has bytes. The cheapest
assignment is a minimum cut between the nodes that must be blocked and those that must be plain (Boykov, Veksler and
Zabih, Fast Approximate Energy Minimization via Graph Cuts, 2001): with two layouts it is exact.

1. Conv(x, w, ...)              ->  BlockedConv(ToBlocked(x), w, ...), and ToPlain of it where it is read plain
2. MaxPool(x), AveragePool(x)   ->  the same, blocked
3. elementwise(a, b), Concat    ->  the same on blocked inputs, where that needs fewer conversions
4. ToBlocked(constant)          ->  a constant

Convolutions along one axis become those of images of one row before that:

5. Conv(x [N, C, L], w)         ->  Squeeze(Conv(Unsqueeze(x) [N, C, 1, L], w [F, C, 1, K]))
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from mlhood.compiler.backends.minimum_cut import source_side
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.blocked import (
    BlockedAveragePool,
    BlockedConv,
    BlockedGlobalAveragePool,
    BlockedMaxPool,
    BlockedQuantizedAveragePool,
    BlockedQuantizedConv,
    BlockedQuantizedGlobalAveragePool,
    ToBlocked,
    ToPlain,
    to_blocked,
)
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.integer import QuantizedConv
from mlhood.compiler.operators.integer_elementwise import (
    Lookup,
    QuantizedAdd,
    QuantizedAveragePool,
    QuantizedGlobalAveragePool,
)
from mlhood.compiler.operators.movement import Concat, Transpose
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, MaxPool, PoolOperator
from mlhood.compiler.operators.rescale import Rescale, stored_range
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze

_UNIT = 64  # bytes: costs are counted in cache lines
_NEVER = 2**30
BYTE_LANES = 16  # channels in a block of bytes, on every processor
_POOLS = {
    MaxPool: BlockedMaxPool,
    AveragePool: BlockedAveragePool,
    QuantizedAveragePool: BlockedQuantizedAveragePool,
}
_GLOBAL_POOLS = {
    GlobalAveragePool: BlockedGlobalAveragePool,
    QuantizedGlobalAveragePool: BlockedQuantizedGlobalAveragePool,
}
_ALWAYS = (Conv, QuantizedConv, *_POOLS)  # for them there are no kernels, or much slower ones, on plain activations


def widen_convolutions(graph: Graph) -> None:
    """Apply rule 5 to the graph, which is modified in place."""
    for node in graph.topological():
        operator, weight = node.operator, node.inputs[1] if len(node.inputs) > 1 else None
        if type(operator) is not Conv or not isinstance(weight, Constant) or weight.type.rank != 3:
            continue
        wide = replace(
            operator,
            strides=(1, *operator.strides),
            pads=(0, operator.pads[0], 0, operator.pads[1]),
            dilations=(1, *operator.dilations),
        )
        w = graph.constant(f"{node.name}.weight", weight.data[:, :, None])
        x, _, bias, z = (*node.inputs, None, None)[:4]
        x, z = (graph.add(Unsqueeze((2,)), value).outputs[0] if value else None for value in (x, z))
        y = graph.add(wide, x, w, bias, z, name=f"{node.name}.wide").outputs[0]
        graph.replace(node, Squeeze((2,)), y)


def block_activations(graph: Graph, lanes: int) -> Graph:
    """Return the graph with the cheapest layouts.

    Args:
        graph: A verified graph; not modified.
        lanes: Channels in a block.
    """
    blocked = _choose(graph, lanes)
    return _Rewriter(graph, lanes, blocked).run() if blocked else graph


# -- what can be blocked


def can_be_blocked(node: Node, lanes: int) -> bool:
    """Return whether a node can compute its result in the blocked layout."""
    operator, y = node.operator, node.outputs[0].type
    if y.rank != 4 or len(node.outputs) > 1 or isinstance(y.shape[1], str) or not _has_kernels(y):
        return False
    lanes = lanes_of(y, lanes)
    if isinstance(operator, Conv | QuantizedConv):
        return _can_block_convolution(node, operator, lanes)
    if isinstance(operator, (*_POOLS, *_GLOBAL_POOLS)):
        return True
    if isinstance(operator, Concat):
        channels = [value.type.shape[1] for value in node.inputs if value is not None]
        return operator.axis in (1, -3) and all(isinstance(c, int) and c % lanes == 0 for c in channels)
    if isinstance(operator, QuantizedAdd | Rescale | Lookup):
        return all(value is not None and value.type.shape == y.shape for value in node.inputs)
    return isinstance(operator, Elementwise) and all(_fits(value, y) for value in node.inputs)


def lanes_of(type: TensorType, lanes: int) -> int:
    """Return the channels in a block of a type's activations; `lanes` are those of float32."""
    return lanes if type.is_float else BYTE_LANES


def _has_kernels(y: TensorType) -> bool:
    """Return whether activations of a type can be blocked: float32, and bytes that are quantised per tensor."""
    if y.element == "float32":
        return True
    return y.dtype.itemsize == 1 and y.quantization is not None and y.quantization.axis is None


def _can_block_convolution(node: Node, operator: Conv | QuantizedConv, lanes: int) -> bool:
    weight = node.inputs[1]
    if isinstance(operator, BlockedConv | BlockedQuantizedConv) or not isinstance(weight, Constant):
        return False
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and not isinstance(bias, Constant):
        return False
    filters, depth = weight.data.shape[:2]
    is_depthwise = depth == 1 and filters == operator.group
    return operator.group == 1 or is_depthwise or (depth % lanes == 0 and filters // operator.group % lanes == 0)


def _fits(value: Value | None, y: TensorType) -> bool:
    """Return whether an input of an element-wise node has a blocked form that is broadcast like the plain one."""
    if value is None or value.type.element not in ("float32", "bool"):
        return False
    if value.type.rank == 4:
        return value.type.shape[1] == y.shape[1] or (isinstance(value, Constant) and value.type.shape[1] == 1)
    return isinstance(value, Constant) and value.type.rank < 4


def reads_either(node: Node, lanes: int) -> bool:
    """Return whether a convolution reads its input in either layout: it has too few channels to fill the lanes."""
    if not isinstance(node.operator, Conv | QuantizedConv) or node.inputs[1] is None:
        return False
    return node.operator.group == 1 and int(node.inputs[1].type.shape[1]) < lanes_of(node.outputs[0].type, lanes)


# -- the cheapest assignment


def _choose(graph: Graph, lanes: int) -> set[Node]:
    """Return the nodes that compute blocked: the side of the source of a minimum cut."""
    nodes = graph.topological()
    candidates = [node for node in nodes if can_be_blocked(node, lanes)]
    if not any(isinstance(node.operator, _ALWAYS) for node in candidates):
        return set()
    cut = _Cut()
    for node in candidates:
        cut.add(node, always=isinstance(node.operator, _ALWAYS))
    members = set(candidates)
    for value in graph.values():
        if not isinstance(value, Constant):
            _add_conversions(cut, graph, value, members, lanes)
    return cut.source_side() & members


def _add_conversions(cut: _Cut, graph: Graph, value: Value, members: set[Node], lanes: int) -> None:
    """Add what a conversion of a value costs: once, however many nodes read it in the other layout."""
    users = [node for node in value.users if not (node in members and reads_either(node, lanes))]
    is_read_plain = graph.is_output(value) or any(node not in members for node in users)
    cost = _cost(value.type)
    producer = value.producer if value.producer in members else None
    cut.convert(producer, [node for node in users if node in members], is_read_plain, cost)


def _cost(type: TensorType) -> int:
    axes = [axis if isinstance(axis, int) else 1 for axis in type.shape]
    return min(_NEVER - 1, max(1, type.dtype.itemsize * math.prod(axes) // _UNIT))


class _Cut:
    """A flow network: nodes on the source's side are blocked, those on the sink's side plain."""

    def __init__(self) -> None:
        self.indices: dict[Node, int] = {}
        self.size = 2  # the source is 0, the sink 1
        self.edges: dict[tuple[int, int], int] = {}

    def add(self, node: Node, *, always: bool) -> None:
        """Add a node, which is always blocked or may be either."""
        self.indices[node] = self._vertex()
        if always:
            self._edge(0, self.indices[node], _NEVER)

    def convert(self, producer: Node | None, users: list[Node], is_read_plain: bool, cost: int) -> None:
        """Add the conversions of a value.

        Args:
            producer: The node that may produce it blocked; None if it is plain.
            users: The nodes that may read it blocked.
            is_read_plain: Whether something reads it plain in any case.
            cost: Of one conversion.
        """
        source = 1 if producer is None else self.indices[producer]
        if users:  # blocked users of a plain value
            copy = self._vertex()
            self._edge(copy, source, cost)
            for user in users:
                self._edge(self.indices[user], copy, _NEVER)
        if producer is None:
            return
        if is_read_plain:
            self._edge(source, 1, cost)
        elif users:  # plain users of a blocked value
            copy = self._vertex()
            self._edge(source, copy, cost)
            for user in users:
                self._edge(copy, self.indices[user], _NEVER)

    def source_side(self) -> set[Node]:
        """Return the nodes on the source's side of a minimum cut."""
        reached = source_side(self.edges, 0, 1)
        return {node for node, index in self.indices.items() if index in reached}

    def _vertex(self) -> int:
        self.size += 1
        return self.size - 1

    def _edge(self, start: int, end: int, capacity: int) -> None:
        if start != end:
            self.edges[start, end] = min(_NEVER, self.edges.get((start, end), 0) + capacity)


# -- the new graph


def stored_limits(value: Value) -> tuple[int, ...]:
    """Return the smallest and the largest integer that a quantised value can hold, where its type can hold others.

    They follow from the activation of what produces it, through operators that only move elements.
    """
    node = value.producer
    while node is not None and isinstance(node.operator, MaxPool | Reshape | Transpose | Flatten):
        value = node.inputs[0] or value
        node = value.producer
    activation = () if node is None else node.operator.attributes.get("activation", ())
    if not activation or value.type.quantization is None or isinstance(node.operator if node else None, Conv):
        return ()
    return stored_range(value.type, activation)


class _Rewriter:
    """Builds the new graph, and converts values where they are read in the other layout."""

    def __init__(self, graph: Graph, lanes: int, blocked: set[Node]) -> None:
        self.graph, self.lanes, self.blocked = graph, lanes, blocked
        self.new = Graph(graph.name)
        self.plain: dict[Value, Value] = {}
        self.in_blocks: dict[Value, Value] = {}

    def run(self) -> Graph:
        for placeholder in self.graph.placeholders.values():
            self.plain[placeholder] = self.new.placeholder(placeholder.name, placeholder.type)
        for constant in self.graph.constants.values():
            self.plain[constant] = self.new.constant(constant.name, constant.data, constant.type.quantization)
        for node in self.graph.topological():
            self._add(node)
        for name, value in self.graph.outputs.items():
            self.new.output(self._plain(value), name)
        for constant in list(self.new.constants.values()):
            if not constant.users and not self.new.is_output(constant):
                self.new.remove_constant(constant)
        return self.new

    def _add(self, node: Node) -> None:
        names = [value.name for value in node.outputs]
        if node not in self.blocked:
            inputs = [None if value is None else self._plain(value) for value in node.inputs]
            added = self.new.add(node.operator, *inputs, name=node.name, outputs=names)
            self.plain.update(zip(node.outputs, added.outputs, strict=True))
            return
        operator, inputs = self._blocked_operation(node)
        added = self.new.add(operator, *inputs, name=node.name, outputs=names)
        self.in_blocks[node.outputs[0]] = added.outputs[0]

    def _blocked_operation(self, node: Node) -> tuple[Operator, list[Value | None]]:
        """Return the operator of a blocked node, and its inputs."""
        operator = node.operator
        given = [value for value in node.inputs if value is not None]
        lanes = lanes_of(node.outputs[0].type, self.lanes)
        if isinstance(operator, Conv | QuantizedConv):
            x, rest = given[0], node.inputs[1:]
            is_plain = reads_either(node, self.lanes) and x not in self.in_blocks
            weights = [None if value is None else self._plain(value) for value in rest[:2]]
            residual = [self._in_blocks(value) for value in rest[2:] if value is not None]
            window = {field.name: getattr(operator, field.name) for field in fields(operator)}
            layouts: dict[str, Any] = {"lanes": lanes, "plain_input": is_plain}
            if isinstance(operator, QuantizedConv):
                new = BlockedQuantizedConv(**window, **layouts, input_limits=stored_limits(x))
            else:
                new = BlockedConv(**window, **layouts)
            weights += [None] * (len(residual) and 2 - len(weights))
            return new, [self._plain(x) if is_plain else self._in_blocks(x), *weights, *residual]
        inputs: list[Value | None] = [self._in_blocks(value) for value in given]
        if isinstance(operator, PoolOperator):
            attributes = {field.name: getattr(operator, field.name) for field in fields(operator)}
            return _POOLS[type(operator)](**attributes), inputs
        if isinstance(operator, tuple(_GLOBAL_POOLS)):
            return _GLOBAL_POOLS[type(operator)](**operator.attributes), inputs
        return replace(operator, axis=1) if isinstance(operator, Concat) else operator, inputs

    def _plain(self, value: Value) -> Value:
        if value not in self.plain:
            channels, lanes = int(value.type.shape[1]), lanes_of(value.type, self.lanes)
            is_same = value.type.shape[2:] == (1, 1) and channels % lanes == 0  # in memory, element by element
            operator = Reshape((-1, channels, 1, 1)) if is_same else ToPlain(channels)
            node = self.new.add(operator, self.in_blocks[value], name=f"{value.name}.plain")
            self.plain[value] = node.outputs[0]
        return self.plain[value]

    def _in_blocks(self, value: Value) -> Value:
        if value not in self.in_blocks:
            self.in_blocks[value] = self._convert(value)
        return self.in_blocks[value]

    def _convert(self, value: Value) -> Value:
        plain = self._plain(value)
        if not isinstance(plain, Constant):
            return self.new.add(
                ToBlocked(lanes_of(value.type, self.lanes)), plain, name=f"{value.name}.blocked"
            ).outputs[0]
        if plain.data.size == 1:
            return self.new.constant(f"{value.name}.scalar", plain.data.reshape(()))
        data = plain.data.reshape((1,) * (4 - plain.data.ndim) + plain.data.shape)
        if data.shape[1] == 1:  # the same for all channels
            return self.new.constant(f"{value.name}.blocked", data[..., None])
        return self.new.constant(f"{value.name}.blocked", to_blocked(data, self.lanes))
