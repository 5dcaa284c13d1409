"""Fusion of element-wise operators into chains, each of which is a single loop.

1. g(f(a, ...), b, ...)  ->  ElementwiseChain(a, ..., b, ...) with the steps f, g

f and g compute float32 element by element, f's result has the shape of g's and no other use. Before that,
normalisations that no pass could fold become arithmetic:

2. BatchNormalization(x, constants)    ->  (x - mean) factor + bias, factor = scale / sqrt(var + eps)
3. Pow(x, 2), Pow(x, 0.5), Pow(x, -1)  ->  x x, sqrt(x), 1 / x
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import is_step, steps_of
from mlhood.compiler.operators.arithmetic import Add, Greater, Max, Mul, Pow, Sub
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.chain import ChainStep, ElementwiseChain, operator_of
from mlhood.compiler.operators.matrix import MatMul
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.normalization import BatchNormalization, Softmax
from mlhood.compiler.operators.reduction import REDUCTIONS
from mlhood.compiler.passes.rewriting import has_one_use
from mlhood.compiler.passes.transposes import sink_transposes

MAX_STEPS = 24
_MAX_INPUTS = 8


def expand_normalizations(graph: Graph) -> None:
    """Express normalisations by constants as arithmetic on each channel (rule 2)."""
    for node in graph.topological():
        if not isinstance(node.operator, BatchNormalization):
            continue
        x, *parameters = node.inputs
        constants = [value for value in parameters if isinstance(value, Constant)]
        if x is None or len(constants) < len(parameters) or any(c.type.element != x.type.element for c in constants):
            continue
        scale, bias, mean, variance = (c.data.reshape(-1, *(1,) * (x.type.rank - 2)) for c in constants)
        factor = scale / np.sqrt(variance + variance.dtype.type(node.operator.epsilon))
        value = x
        for operator, name, numbers in ((Sub(), "mean", mean), (Mul(), "factor", factor)):
            constant = graph.constant(f"{node.name}.{name}", numbers)
            value = graph.add(operator, value, constant, name=f"{node.name}.{operator.name.lower()}").outputs[0]
        graph.replace(node, Add(), value, graph.constant(f"{node.name}.bias", bias))


def expand_powers(graph: Graph) -> None:
    """Express powers with common exponents as arithmetic (rule 3)."""
    for node in graph.topological():
        exponent = node.inputs[1] if isinstance(node.operator, Pow) else None
        base, y = node.inputs[0] if node.inputs else None, node.outputs[0].type
        if base is None or not isinstance(exponent, Constant) or exponent.data.size != 1 or base.type != y:
            continue
        match float(exponent.data.item()):
            case 2.0:
                graph.replace(node, Mul(), base, base)
            case 0.5:
                graph.replace(node, operator_of(("Sqrt", (), (0,))), base)
            case -1.0:
                graph.replace(node, operator_of(("Reciprocal", (), (0,))), base)


def fuse_chains(graph: Graph, operations: Collection[str], most_inputs: int = _MAX_INPUTS) -> None:
    """Fuse element-wise operators into chains.

    Args:
        graph: The graph, modified in place.
        operations: Names of the steps that the back end can compute.
        most_inputs: How many inputs a chain may have, beside numbers.
    """
    for node in graph.topological():
        if node.name in graph.nodes and is_chainable(node, operations):
            while _absorb(graph, node, operations, most_inputs):
                node = graph.nodes[node.name]


def is_chainable(node: Node, operations: Collection[str]) -> bool:
    """Return whether a node computes float32 by these steps."""
    if not is_step(node.operator) or any(value is None for value in node.inputs):
        return False
    types = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
    are_floats = all(type.element == "float32" and type.quantization is None for type in types)
    return are_floats and all(step[0] in operations for step in steps_of(node.operator))


def is_number(value: Value) -> bool:
    """Return whether a value is a constant of one element."""
    return isinstance(value, Constant) and value.data.size == 1


def _absorb(graph: Graph, node: Node, operations: Collection[str], most_inputs: int) -> bool:
    """Absorb one producer into a node; return whether there was one."""
    for value in node.inputs:
        producer = None if value is None else value.producer
        if value is None or producer is None or not is_chainable(producer, operations) or not has_one_use(graph, value):
            continue
        if value.type.shape != node.outputs[0].type.shape:
            continue
        inputs, steps = _merged(producer, node, value)
        arrays = sum(not is_number(each) for each in inputs)
        if len(steps) <= MAX_STEPS and len(inputs) <= _MAX_INPUTS and arrays <= most_inputs:
            graph.replace(node, ElementwiseChain(steps), *inputs)
            graph.remove(producer)
            return True
    return False


def _merged(first: Node, second: Node, value: Value) -> tuple[list[Value], tuple[ChainStep, ...]]:
    """Return the inputs and the steps of a node and of the one that reads its value."""
    inputs = list(dict.fromkeys(v for v in (*first.inputs, *(w for w in second.inputs if w is not value)) if v))
    count = len(inputs)
    early = steps_of(first.operator)
    steps = renumbered(early, [inputs.index(v) for v in first.inputs if v], count)
    result = count + len(early) - 1
    operands = [result if v is value else inputs.index(v) for v in second.inputs if v]
    return inputs, (*steps, *renumbered(steps_of(second.operator), operands, count + len(early)))


def renumbered(steps: tuple[ChainStep, ...], operands: list[int], first: int) -> tuple[ChainStep, ...]:
    """Return steps that read these operands instead of their inputs, and whose first result has the number `first`."""
    count = len(operands)

    def number(operand: int) -> int:
        return operands[operand] if operand < count else first + operand - count

    return tuple((name, attributes, tuple(map(number, read))) for name, attributes, read in steps)


_REDUCE_MAX = next(reduction for reduction in REDUCTIONS if reduction.__name__ == "ReduceMax")
_LOWEST = np.finfo(np.float32).min
AddNode = Callable[..., Value]


def expand_attention(graph: Graph) -> None:
    """Express attention in float32 by products and Softmax.

    Args:
        graph: The graph, modified in place.
    """
    expanded = [node for node in graph.topological() if isinstance(node.operator, Attention) and _expand(graph, node)]
    if expanded:
        while sink_transposes(graph):  # those of the keys merge with those that divide them into heads
            pass


def _expand(graph: Graph, node: Node) -> bool:
    q, k, v, mask = (*node.inputs, None)[:4]
    operator = node.operator
    if q is None or k is None or v is None or not isinstance(operator, Attention) or q.type.element != "float32":
        return False
    if operator.causal:
        lengths = q.type.shape[-2], k.type.shape[-2]
        if not all(isinstance(length, int) for length in lengths):
            return False

    def add(kind: Operator, *inputs: Value) -> Value:
        return graph.add(kind, *inputs, name=f"{node.name}.{kind.name.lower()}").outputs[0]

    rank = k.type.rank
    keys = add(Transpose((*range(rank - 2), rank - 1, rank - 2)), k)
    scale = graph.constant(f"{node.name}.scale", np.array(operator.scale, np.float32))
    scores = add(MatMul(), add(Mul(), q, scale), keys)
    if operator.causal:
        mask = _causal(graph, node, mask, add)  # rule 3
    hides = mask is not None and not _shows_all(mask)
    if mask is not None:
        lowest = graph.constant(f"{node.name}.lowest", np.array(_LOWEST, np.float32)) if hides else None
        scores = add(Add(), scores, mask if lowest is None else add(Max(), mask, lowest))
    weights = add(Softmax((scores.type.rank - 1,)), scores)
    if not hides or mask is None:
        graph.replace(node, MatMul(), weights, v)  # rules 1 and 2
        return True
    infinity = graph.constant(f"{node.name}.infinity", np.array(-np.inf, np.float32))
    visible = add(Cast("float32"), add(Greater(), add(_REDUCE_MAX((-1,), True), mask), infinity))
    graph.replace(node, Mul(), add(MatMul(), weights, v), visible)  # rule 4
    return True


def _causal(graph: Graph, node: Node, mask: Value | None, add: AddNode) -> Value:
    """Return the mask with -inf for the keys behind each query."""
    q, k = node.inputs[:2]
    lengths = [int(value.type.shape[-2]) for value in (q, k) if value is not None]
    future = np.triu(np.full(lengths, -np.inf, np.float32), 1)
    if isinstance(mask, Constant):
        return graph.constant(f"{node.name}.mask", mask.data + future)
    constant = graph.constant(f"{node.name}.mask", future)
    return constant if mask is None else add(Add(), mask, constant)


def _shows_all(mask: Value) -> bool:
    """Return whether a mask is known to leave each query a key."""
    return isinstance(mask, Constant) and bool(np.isfinite(mask.data.max(axis=-1, initial=-np.inf)).all())
