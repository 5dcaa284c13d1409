"""Fusion of element-wise operators into the epilogue of the kernel that computes their input.

1. g(f(x, ...))  ->  f(x, ...) with the activation g

f is a convolution or a dense layer of float32, g an activation or a chain whose inputs are f's result, which has no
other use, and numbers. An activation that f has already comes before g. Before that, what kernels do not compute is
split off:

2. Conv with activation, FullyConnected with activation  ->  the same without it, then the activation
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from mlhood.compiler.backends.cpu.chains import MAX_STEPS, is_chainable, is_number, renumbered
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node
from mlhood.compiler.operators.activation import ACTIVATIONS, Activation, operator_of, steps_of
from mlhood.compiler.operators.chain import CONSTANT, ChainStep, ElementwiseChain
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.quantized import BlockDense
from mlhood.compiler.passes.rewriting import has_one_use
from mlhood.kernels.product import Clip

_CHAIN = ElementwiseChain.__name__
_LAYERS = (Conv, FullyConnected, BlockDense)


def split_activations(graph: Graph, operations: Collection[str]) -> None:
    """Split off the activations that kernels cannot compute (rule 2).

    Args:
        graph: The graph, modified in place.
        operations: Names of the steps that the back end can compute.
    """
    for node in graph.topological():
        operator = node.operator
        if not isinstance(operator, _LAYERS) or not operator.activation:
            continue
        names = {name for name, _, _ in _steps(operator.activation)}
        if node.outputs[0].type.element == "float32" and names <= {*operations, CONSTANT}:
            continue
        bare = graph.add(replace(operator, activation=()), *node.inputs, name=f"{node.name}.sum")
        graph.replace(node, operator_of(operator.activation), bare.outputs[0])


def fuse_epilogues(graph: Graph, operations: Collection[str]) -> None:
    """Fuse chains into the kernels before them (rule 1).

    Args:
        graph: The graph, modified in place.
        operations: Names of the steps that the back end can compute.
    """
    for node in graph.topological():
        layer = _layer_of(graph, node) if is_chainable(node, operations) else None
        if layer is None:
            continue
        activation = _fused(layer.operator.attributes["activation"], node)
        if len(_steps(activation)) <= MAX_STEPS:
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
    early, operands = list(_steps(first)), []
    result = len(early)
    for value in second.inputs:
        if isinstance(value, Constant):
            early.append((CONSTANT, (float(value.data.item()),), ()))
        operands.append(len(early) if isinstance(value, Constant) else result)
    steps = (*early, *renumbered(steps_of(second.operator), operands, len(early) + 1))
    name, attributes, operands = steps[0]
    return (name, *attributes) if len(steps) == len(operands) == 1 and name in ACTIVATIONS else (_CHAIN, steps)


def _steps(activation: Activation) -> tuple[ChainStep, ...]:
    """Return an activation as steps on one input."""
    if not activation:
        return ()
    name, *attributes = activation
    return attributes[0] if name == _CHAIN else ((name, tuple(attributes), (0,)),)


def epilogue_of(activation: Activation) -> tuple[Clip | None, tuple[ChainStep, ...]]:
    """Return the bounds that a kernel clamps its result to, and the steps that it applies instead.

    Bounds are arguments of a kernel, steps are part of its code: the same code serves no activation, Relu and Clip.
    """
    match activation:
        case ("Relu",):
            return (0.0, math.inf), ()
        case ("Clip", low, high):
            return (-math.inf if low is None else float(low), math.inf if high is None else float(high)), ()
    return None, _steps(activation)
