"""Residual fusion: a value added to the output of a convolution becomes an input of the convolution.

1. Add(Conv(x, w, bias), z), Add(z, Conv(x, w, bias))  ->  Conv(x, w, bias, z)
2. AddActivation of the same                           ->  Conv(x, w, bias, z) with the activation

z has exactly the type of the convolution's output. Not applied if the convolution's output has another use or is an
output of the graph, or if the convolution already has a residual branch or an activation. As the addition is then the
only use, z cannot depend on the convolution, and no cycle arises.
"""

from __future__ import annotations

from dataclasses import replace

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.passes.rewriting import defining_node, fuse, has_one_use, sweep


def fuse_residual(graph: Graph) -> bool:
    """Fuse residual additions into convolutions; return whether anything changed."""
    return sweep(graph, _fuse, Add, AddActivation)


def _fuse(graph: Graph, node: Node) -> bool:
    for branch, z in (node.inputs, node.inputs[::-1]):
        conv = defining_node(branch, Conv)
        if conv is None or z is None or isinstance(z, Constant) or not _can_fuse(graph, conv, z):
            continue
        operator = conv.operator
        if isinstance(node.operator, AddActivation) and isinstance(operator, Conv):
            operator = replace(operator, activation=node.operator.activation)  # rule 2
        x, w, bias = (*conv.inputs, None)[:3]
        fuse(graph, conv, node, operator, x, w, bias, z)
        return True
    return False


def _can_fuse(graph: Graph, conv: Node, z: Value) -> bool:
    output = conv.outputs[0]
    is_plain = len(conv.inputs) < 4 and not conv.operator.attributes["activation"]
    return is_plain and z is not output and z.type == output.type and has_one_use(graph, output)
