"""The stage "lowered" for the CPU: layouts, and element-wise operators as epilogues of kernels or as loops.

A chain is a single loop. f and g compute float32 element by element, f's result has the shape of g's and no other use:

1. g(f(a, ...), b, ...)                ->  ElementwiseChain(a, ..., b, ...) with the steps f, g

Before that, normalisations that no pass could fold become arithmetic:

2. BatchNormalization(x, constants)    ->  (x - mean) factor + bias, factor = scale / sqrt(var + eps)
3. Pow(x, 2), Pow(x, 0.5), Pow(x, -1)  ->  x x, sqrt(x), 1 / x

An epilogue belongs to the kernel that computes its input:

4. g(f(x, ...))                        ->  f(x, ...) with the activation g

f is a convolution or a dense layer of float32, g an activation or a chain whose inputs are f's result, which has no
other use, and numbers. An activation that f has already comes before g. Before that, what kernels do not compute is
split off:

5. Conv with activation, FullyConnected with activation  ->  the same without it, then the activation
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlhood.compiler.backends.cpu.attention import lower_attention
from mlhood.compiler.backends.cpu.layouts import block_activations, widen_convolutions
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import ACTIVATIONS, Activation, is_step, operator_of, steps_of
from mlhood.compiler.operators.arithmetic import Add, Mul, Pow, Sub
from mlhood.compiler.operators.chain import CONSTANT, ChainStep, ElementwiseChain, operator_of_step
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.operators.quantized import BlockDense
from mlhood.compiler.passes.rewriting import has_one_use
from mlhood.kernels import elementwise
from mlhood.kernels.codegen.target import Target, host

OPERATIONS = frozenset(elementwise.OPERATIONS) - {"Constant", "Pow"}  # the names of the steps that kernels compute
MAX_STEPS = 24
_MAX_INPUTS = 8
_CHAIN = ElementwiseChain.__name__
_LAYERS = (Conv, FullyConnected, BlockDense)


def lower_for_cpu(graph: Graph, target: Target | None = None) -> Graph:
    """Return a graph with the layouts and operators that the CPU's kernels compute.

    Args:
        graph: A verified graph; not modified.
        target: The processor; the host by default.
    """
    graph, lanes = graph.copy(), (target or host()).lanes
    widen_convolutions(graph)
    split_activations(graph)
    lower_attention(graph)
    expand_normalizations(graph)
    expand_powers(graph)
    fuse_chains(graph, most_inputs=1)
    fuse_epilogues(graph)
    graph = block_activations(graph, lanes)
    fuse_chains(graph)
    return graph


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
                graph.replace(node, operator_of_step(("Sqrt", (), (0,))), base)
            case -1.0:
                graph.replace(node, operator_of_step(("Reciprocal", (), (0,))), base)


def fuse_chains(graph: Graph, most_inputs: int = _MAX_INPUTS) -> None:
    """Fuse element-wise operators into chains.

    Args:
        graph: The graph, modified in place.
        most_inputs: How many inputs a chain may have, beside numbers.
    """
    for node in graph.topological():
        if node.name in graph.nodes and is_chainable(node):
            while _absorb(graph, node, most_inputs):
                node = graph.nodes[node.name]


def is_chainable(node: Node) -> bool:
    """Return whether a node computes float32 by these steps."""
    if not is_step(node.operator) or any(value is None for value in node.inputs):
        return False
    types = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
    are_floats = all(type.element == "float32" and type.quantization is None for type in types)
    return are_floats and all(step[0] in OPERATIONS for step in steps_of(node.operator))


def is_number(value: Value) -> bool:
    """Return whether a value is a constant of one element."""
    return isinstance(value, Constant) and value.data.size == 1


def _absorb(graph: Graph, node: Node, most_inputs: int) -> bool:
    """Absorb one producer into a node; return whether there was one."""
    for value in node.inputs:
        producer = None if value is None else value.producer
        if value is None or producer is None or not is_chainable(producer) or not has_one_use(graph, value):
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


def split_activations(graph: Graph) -> None:
    """Split off the activations that kernels cannot compute (rule 5)."""
    for node in graph.topological():
        operator = node.operator
        if not isinstance(operator, _LAYERS) or not operator.activation:
            continue
        names = {name for name, _, _ in epilogue_of(operator.activation)}
        if node.outputs[0].type.element == "float32" and names <= {*OPERATIONS, CONSTANT}:
            continue
        bare = graph.add(replace(operator, activation=()), *node.inputs, name=f"{node.name}.sum")
        graph.replace(node, operator_of(operator.activation), bare.outputs[0])


def fuse_epilogues(graph: Graph) -> None:
    """Fuse chains into the kernels before them (rule 4)."""
    for node in graph.topological():
        layer = _layer_of(graph, node) if is_chainable(node) else None
        if layer is None:
            continue
        activation = _fused(layer.operator.attributes["activation"], node)
        if len(epilogue_of(activation)) <= MAX_STEPS:
            graph.replace(node, replace(layer.operator, activation=activation), *layer.inputs)
            graph.remove(layer)


def _layer_of(graph: Graph, node: Node) -> Node | None:
    """Return the layer whose result is all that a node reads, beside numbers; None if there is none."""
    arrays = {value for value in node.inputs if value is not None and not is_number(value)}
    if len(arrays) != 1:
        return None
    (value,) = arrays
    if value.type != node.outputs[0].type or not has_one_use(graph, value):
        return None
    layer = value.producer
    return layer if layer is not None and isinstance(layer.operator, _LAYERS) else None


def _fused(first: Activation, second: Node) -> Activation:
    """Return an activation, and the node that reads its result, as one activation."""
    early, operands = list(epilogue_of(first)), []
    result = len(early)
    for value in second.inputs:
        if isinstance(value, Constant):
            early.append((CONSTANT, (float(value.data.item()),), ()))
        operands.append(len(early) if isinstance(value, Constant) else result)
    steps = (*early, *renumbered(steps_of(second.operator), operands, len(early) + 1))
    name, attributes, operands = steps[0]
    return (name, *attributes) if len(steps) == len(operands) == 1 and name in ACTIVATIONS else (_CHAIN, steps)


def epilogue_of(activation: Activation) -> tuple[ChainStep, ...]:
    """Return an activation as steps on one input."""
    if not activation:
        return ()
    name, *attributes = activation
    return attributes[0] if name == _CHAIN else ((name, tuple(attributes), (0,)),)
