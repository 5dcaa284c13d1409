"""What a fused activation reads: a value that the optimised graph does not have, but whose range quantisation needs.

A layer whose activation is a lookup table writes integers between the layer and the table. Profiling therefore takes
such activations out of their layers; so that the value between a layer and its activation has a name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.activation import AddActivation, operator_of
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.rescale import INTEGER_ACTIVATIONS


def pre_activation_name(name: str) -> str:
    """Return the name of the input of the fused activation whose result has this name."""
    return f"{name}.before"


def split_activations(graph: Graph) -> Graph:
    """Return a copy of a graph in which activations that integer layers cannot apply are separate nodes.

    All values keep their names; the value between a layer and its activation is named by `pre_activation_name`, unless
    the graph has another value of that name.
    """
    other = graph.copy()
    for node in other.topological():
        activation = getattr(node.operator, "activation", ())
        if activation and activation[0] not in INTEGER_ACTIVATIONS:
            _split(other, node, operator_of(activation))
    return other


def _split(graph: Graph, node: Node, activation: Operator) -> None:
    operator: Any = node.operator
    plain = Add() if isinstance(operator, AddActivation) else replace(operator, activation=())
    name = pre_activation_name(node.outputs[0].name)
    before = graph.add(plain, *node.inputs, outputs=[name]).outputs[0]
    graph.replace(node, activation, before)
