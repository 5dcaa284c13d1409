"""Quantisation clean-up: no way to reals and back where integers would do, and no rescaling that another does as well.

1. Quantize(Dequantize(x)) with the parameters of x  ->  x   of 8 and 16 bits, which float32 holds exactly
2. Quantize(Dequantize(x)) with others  ->  Rescale(x)       where all integers that x can be give the same
3. Rescale(x) with the parameters of x  ->  x
4. f(Rescale(x))  ->  Rescale(f(x))                          f: MaxPool, and what only moves elements
5. Rescale(Quantize(x)), Rescale(Rescale(x))  ->  one of them, with the later parameters
6. Rescale(layer(x))  ->  layer(x) with the later parameters
7. layer(Rescale(x))  ->  layer(x)                           layer: an integer operator that takes any parameters
8. Dequantize(Rescale(x))  ->  Dequantize(x)

Rules 1 to 4 keep every integer; 4 leaves less to rescale. 5 to 8 take out a rounding in between, so that the result is
nearer to the reals; only quantising makes a Rescale, so no imported model is changed by them. A Rescale with an
activation goes into a layer without one (rule 6), and otherwise stays.

Dequantize(Quantize(x)) is not made x, as Glow does: in a model that somebody else has quantised, these pairs say where.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.activation import Activation
from mlhood.compiler.operators.integer import QuantizedConv, QuantizedFullyConnected
from mlhood.compiler.operators.integer_arithmetic import QuantizedAdd, QuantizedMul
from mlhood.compiler.operators.integer_pooling import QuantizedAveragePool, QuantizedGlobalAveragePool
from mlhood.compiler.operators.lookup import Lookup
from mlhood.compiler.operators.movement import Slice, Transpose
from mlhood.compiler.operators.pooling import GlobalMaxPool, MaxPool
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.rescale import Rescale
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.compiler.passes.rewriting import bypass, is_read_once, is_unread, made_by, sweep

_EXACT = ("int8", "uint8", "int16", "uint16")
_MOVING = (MaxPool, GlobalMaxPool, Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Slice)
_ANY_PARAMETERS = (QuantizedAdd, QuantizedMul, QuantizedAveragePool, QuantizedGlobalAveragePool)
_LAYERS = (*_ANY_PARAMETERS, QuantizedConv, QuantizedFullyConnected, Lookup)


def clean_quantization(graph: Graph) -> bool:
    """Remove conversions and rescalings that can be spared; tell whether there were any."""
    rules = (
        (_pair, (Quantize,)),
        (_idle, (Rescale,)),
        (_sink, _MOVING),
        (_merge, (Rescale,)),
        (_read_through, (*_ANY_PARAMETERS, Dequantize, QuantizedConv)),
    )
    changed = [sweep(graph, rule, *operators) for rule, operators in rules]
    return any(changed)


def _pair(graph: Graph, node: Node) -> bool:
    before = made_by(node.inputs[0], Dequantize)
    x, y = before.inputs[0] if before else None, node.outputs[0]
    if before is None or x is None or x.type.element not in _EXACT:
        return False
    if x.type == y.type:
        bypass(graph, node, x)  # rule 1
    elif x.type.element == y.type.element and _rescales_alike(x.type, y.type):
        graph.replace(node, _rescale(y), x)  # rule 2
    else:
        return False
    if is_unread(graph, before.outputs[0]):
        graph.remove(before)
    return True


def _rescales_alike(x: TensorType, y: TensorType) -> bool:
    """Try all integers that x can be: rescaling with integers and with reals may differ where a tie is rounded."""
    of_x, of_y = x.quantization, y.quantization
    if of_x is None or of_y is None or of_x.axis is not None or of_y.axis is not None:
        return False
    limits = np.iinfo(x.dtype)
    stored, type = np.arange(limits.min, limits.max + 1).astype(x.dtype), TensorType(x.element, (), of_x)
    reals = Dequantize().evaluate_typed((type,), stored)
    return np.array_equal(Quantize(y.element, of_y).evaluate(reals), Rescale(of_y).evaluate_typed((type,), stored))


def _idle(graph: Graph, node: Node) -> bool:
    x = node.inputs[0]
    if x is None or x.type != node.outputs[0].type or _attribute(node, "activation"):
        return False
    bypass(graph, node, x)  # rule 3
    return True


def _sink(graph: Graph, node: Node) -> bool:
    before = made_by(node.inputs[0], Rescale)
    if before is None or len(node.outputs) != 1 or not is_read_once(graph, before.outputs[0]):
        return False
    if not _keeps_order(_attribute(before, "activation")):
        return False
    y, name = node.outputs[0], node.name
    moved = graph.add(node.operator, *before.inputs, name=node.name, outputs=[f"{y.name}.before"])
    rescale = graph.replace(node, before.operator, *moved.outputs)  # rule 4
    graph.remove(before)
    graph.rename_node(rescale, before.name)
    graph.rename_node(moved, name)
    return True


def _keeps_order(activation: Activation) -> bool:
    """Tell whether the larger of two numbers stays the larger, which LeakyRelu can break."""
    return not activation or activation[0] != "LeakyRelu" or float(activation[1] or 0) >= 0


def _merge(graph: Graph, node: Node) -> bool:
    before = made_by(node.inputs[0], Quantize, Rescale, *_LAYERS)
    if before is None or not is_read_once(graph, before.outputs[0]) or not _takes(before.operator, node.operator):
        return False
    activation = _attribute(node, "activation")
    changes: dict[str, Any] = {"quantization": node.outputs[0].type.quantization}
    if activation:
        changes["activation"] = activation
    # without an activation both values stand for the same reals: the first name is that of the layer's result
    name = (node if activation else before).outputs[0].name
    made = graph.add(replace(before.operator, **changes), *before.inputs).outputs[0]  # rules 5 and 6
    graph.replace_all_uses(node.outputs[0], made)
    graph.remove(node)
    graph.remove(before)
    graph.rename(made, name)
    graph.rename_node(made.producer or node, before.name)
    return True


def _takes(layer: Operator, rescale: Operator) -> bool:
    """Tell whether a layer can do what a rescaling behind it does."""
    if isinstance(layer, QuantizedConv) and layer.rescale != "shift":
        return False
    if not getattr(rescale, "activation", ()):
        return True
    return getattr(layer, "activation", None) == ()


def _read_through(graph: Graph, node: Node) -> bool:
    changed = False
    for position, value in enumerate(node.inputs):
        before = made_by(value, Rescale)
        branch = not isinstance(node.operator, QuantizedConv) or position == 3  # its input's scale is in the bias
        if before is None or _attribute(before, "activation") or not branch:
            continue
        graph.replace_input(node, position, before.inputs[0])  # rules 7 and 8
        if is_unread(graph, before.outputs[0]):
            graph.remove(before)
        changed = True
    return changed


def _rescale(value: Value) -> Rescale:
    if value.type.quantization is None:
        raise TypeError(f"{value.name!r} is not quantised")
    return Rescale(value.type.quantization)


def _attribute(node: Node, name: str) -> Any:
    return getattr(node.operator, name, ())
