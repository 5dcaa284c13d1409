"""Quantisation clean-up: remove redundant conversions to float and back, and redundant rescalings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.activation import Activation
from mlhood.compiler.operators.integer import QuantizedConv, QuantizedFullyConnected
from mlhood.compiler.operators.integer_elementwise import (
    Lookup,
    QuantizedAdd,
    QuantizedAveragePool,
    QuantizedGlobalAveragePool,
    QuantizedMul,
)
from mlhood.compiler.operators.movement import Slice, Transpose
from mlhood.compiler.operators.pooling import GlobalMaxPool, MaxPool
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.rescale import Rescale, parameters_of
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.compiler.passes.rewriting import defining_node, erase_if_unused, has_one_use, replace_and_erase, sweep

_EXACT_IN_FLOAT32 = ("int8", "uint8", "int16", "uint16")
_ORDER_PRESERVING = (MaxPool, GlobalMaxPool, Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Slice)
_ANY_PARAMETERS = (QuantizedAdd, QuantizedMul, QuantizedAveragePool, QuantizedGlobalAveragePool)
_LAYERS = (*_ANY_PARAMETERS, QuantizedConv, QuantizedFullyConnected, Lookup)


def clean_quantization(graph: Graph) -> bool:
    """Remove redundant conversions and rescalings; return whether anything changed.

    1. Quantize(Dequantize(x)) with the parameters of x  ->  x   for 8 and 16 bits, which float32 represents exactly
    2. Quantize(Dequantize(x)) with others  ->  Rescale(x)       if the result is the same for all integers of x's type
    3. Rescale(x) with the parameters of x  ->  x
    4. f(Rescale(x))  ->  Rescale(f(x))                          f: MaxPool, and operators that only move elements
    5. Rescale(Quantize(x)), Rescale(Rescale(x))  ->  one of them, with the later parameters
    6. Rescale(layer(x))  ->  layer(x) with the later parameters
    7. layer(Rescale(x))  ->  layer(x)                           layer: an integer operator that accepts any parameters
    8. Dequantize(Rescale(x))  ->  Dequantize(x)

    Rules 1 to 4 preserve every integer; rule 4 reduces the number of elements to rescale. Rules 5 to 8 remove an
    intermediate rounding and so reduce the error; a Rescale is only created by quantising, so they do not affect
    imported models. A Rescale with an activation is merged into a layer without one (rule 6), and otherwise stays.

    Unlike in Glow, Dequantize(Quantize(x)) is not replaced by x: in an imported quantised model, these pairs specify
    what is computed with integers.
    """
    changed = [
        sweep(graph, _remove_round_trip, Quantize),
        sweep(graph, _remove_identity, Rescale),
        sweep(graph, _sink, *_ORDER_PRESERVING),
        sweep(graph, _merge, Rescale),
        sweep(graph, _fold_into_user, *_ANY_PARAMETERS, Dequantize, QuantizedConv),
    ]
    return any(changed)


def _remove_round_trip(graph: Graph, node: Node) -> bool:
    dequantize = defining_node(node.inputs[0], Dequantize)
    x, y = dequantize.inputs[0] if dequantize else None, node.outputs[0]
    if dequantize is None or x is None or x.type.element not in _EXACT_IN_FLOAT32:
        return False
    if x.type == y.type:
        replace_and_erase(graph, node, x)  # rule 1
    elif x.type.element == y.type.element and _rescales_exactly(x.type, y.type):
        graph.replace(node, Rescale(parameters_of(y.type)), x)  # rule 2
    else:
        return False
    erase_if_unused(graph, dequantize)
    return True


def _rescales_exactly(x: TensorType, y: TensorType) -> bool:
    """Test all integers of x's type: rescaling in integers and in float may differ in the rounding of ties."""
    from_, to = x.quantization, y.quantization
    if from_ is None or to is None or from_.axis is not None or to.axis is not None:
        return False
    limits = np.iinfo(x.dtype)
    integers, type = np.arange(limits.min, limits.max + 1).astype(x.dtype), TensorType(x.element, (), from_)
    floats = Dequantize().evaluate_typed((type,), integers)
    return np.array_equal(Quantize(y.element, to).evaluate(floats), Rescale(to).evaluate_typed((type,), integers))


def _remove_identity(graph: Graph, node: Node) -> bool:
    x = node.inputs[0]
    if x is None or x.type != node.outputs[0].type or _activation(node.operator):
        return False
    replace_and_erase(graph, node, x)  # rule 3
    return True


def _sink(graph: Graph, node: Node) -> bool:
    rescale = defining_node(node.inputs[0], Rescale)
    if rescale is None or len(node.outputs) != 1 or not has_one_use(graph, rescale.outputs[0]):
        return False
    activation = _activation(rescale.operator)
    if activation and activation[0] == "LeakyRelu" and float(activation[1] or 0) < 0:
        return False  # the only activation that may be decreasing
    y, name = node.outputs[0], node.name
    moved = graph.add(node.operator, *rescale.inputs, name=node.name, outputs=[f"{y.name}.before"])
    new_rescale = graph.replace(node, rescale.operator, *moved.outputs)  # rule 4
    graph.remove(rescale)
    graph.rename_node(new_rescale, rescale.name)
    graph.rename_node(moved, name)
    return True


def _merge(graph: Graph, node: Node) -> bool:
    layer = defining_node(node.inputs[0], Quantize, Rescale, *_LAYERS)
    if layer is None or not has_one_use(graph, layer.outputs[0]) or not _can_absorb(layer.operator, node.operator):
        return False
    activation = _activation(node.operator)
    changes: dict[str, Any] = {"quantization": node.outputs[0].type.quantization}
    if activation:
        changes["activation"] = activation
    # without an activation both values represent the same reals: keep the name of the layer's result
    name = (node if activation else layer).outputs[0].name
    merged = graph.add(replace(layer.operator, **changes), *layer.inputs).outputs[0]  # rules 5 and 6
    graph.replace_all_uses(node.outputs[0], merged)
    graph.remove(node)
    graph.remove(layer)
    graph.rename(merged, name)
    graph.rename_node(merged.producer or node, layer.name)
    return True


def _can_absorb(layer: Operator, rescale: Operator) -> bool:
    """Return whether a rescaling can be merged into the layer before it."""
    if isinstance(layer, QuantizedConv) and layer.rescale != "shift":
        return False
    return not _activation(rescale) or getattr(layer, "activation", None) == ()


def _fold_into_user(graph: Graph, node: Node) -> bool:
    changed = False
    for position, value in enumerate(node.inputs):
        if isinstance(node.operator, QuantizedConv) and position != 3:
            continue  # the bias depends on the scale of the input; only the residual branch may change
        rescale = defining_node(value, Rescale)
        if rescale is None or _activation(rescale.operator):
            continue
        graph.replace_input(node, position, rescale.inputs[0])  # rules 7 and 8
        erase_if_unused(graph, rescale)
        changed = True
    return changed


def _activation(operator: Operator) -> Activation:
    return getattr(operator, "activation", ())
