"""Activation fusion: the preceding layer or addition applies the activation.

With f one of Relu, Clip, LeakyRelu, HardSwish, Sigmoid, Tanh:

1. f(Conv(x, ...))            ->  Conv(x, ...) with the activation f
2. f(FullyConnected(x, ...))  ->  FullyConnected(x, ...) with the activation f
3. f(Add(a, b))               ->  AddActivation(a, b) with the activation f

Not applied if f's input has another use, or if its operator already has an activation.
"""

from __future__ import annotations

from dataclasses import replace

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.activation import ACTIVATIONS, Activation, AddActivation, activation_of
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.passes.rewriting import defining_node, fuse, has_one_use, sweep


def fuse_activation(graph: Graph) -> bool:
    """Fuse activations into the preceding layers and additions; return whether anything changed."""
    return sweep(graph, _fuse, *ACTIVATIONS.values())


def _fuse(graph: Graph, node: Node) -> bool:
    layer = defining_node(node.inputs[0], Conv, FullyConnected, Add)
    activation = activation_of(node.operator)
    if layer is None or not activation or not has_one_use(graph, layer.outputs[0]):
        return False
    operator = _with_activation(layer.operator, activation)
    if operator is None:
        return False
    fuse(graph, layer, node, operator, *layer.inputs)
    return True


def _with_activation(operator: Operator, activation: Activation) -> Operator | None:
    if isinstance(operator, Add):  # rule 3
        return AddActivation(activation)
    if isinstance(operator, (Conv, FullyConnected)) and not operator.activation:  # rules 1 and 2
        return replace(operator, activation=activation)
    return None
