"""How nodes are computed with integers; each operator names its rule. What has none, or is declined, stays float."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import Activation, AddActivation, activation_of, operator_of
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Unary
from mlhood.compiler.operators.integer import QuantizedConv, QuantizedFullyConnected
from mlhood.compiler.operators.integer_arithmetic import QuantizedAdd, QuantizedMul
from mlhood.compiler.operators.integer_pooling import QuantizedAveragePool, QuantizedGlobalAveragePool
from mlhood.compiler.operators.lookup import Lookup, as_function
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool
from mlhood.compiler.operators.quantized import Dequantize
from mlhood.compiler.operators.rescale import INTEGER_ACTIVATIONS, Rescale, parameters_of
from mlhood.compiler.quantize.builder import Builder
from mlhood.compiler.quantize.schema import quantize_array
from mlhood.compiler.quantize.weights import bias_parameters, quantize_bias, weight_parameters

# A rule adds the node's integer form and says whether it did; where it declines, it has added nothing.
Rule = Callable[[Builder, Node], bool]
# Makes an operator from its result's parameters and the activation fused into it.
Layer = Callable[[Quantization, Activation], Operator]


def _read(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]


def _known(b: Builder, node: Node) -> bool:
    """Tell whether all that a node reads and makes can be quantised."""
    return all(map(b.knows, (*_read(node), *node.outputs)))


def _fused(b: Builder, node: Node, activation: Activation, layer: Layer, *inputs: Value | None) -> bool:
    """Add a layer and the activation that was fused into it: as limits, as a table behind it, or in float."""
    y = node.outputs[0]
    if not activation or activation[0] in INTEGER_ACTIVATIONS:
        b.put(y, layer(b.parameters(y), activation), *inputs, node=node.name)
        return True
    before = b.insert(layer(_range_before(b, y, activation), ()), *inputs, name=f"{y.name}.before", node=node.name)
    name = f"{node.name}.activation"
    if before.type.dtype.itemsize == 1:
        b.put(y, Lookup(activation, b.parameters(y)), before, node=name)
    else:
        b.put(y, operator_of(activation), b.insert(Dequantize(), before, name=f"{before.name}.dequantized"), node=name)
    return True


def _range_before(b: Builder, y: Value, activation: Activation) -> Quantization:
    """Return the parameters of what goes into a fused activation, which the profile does not hold."""
    operator = cast(Unary, operator_of(activation))
    low, high = operator.saturates_at[np.dtype(b.recipe.element).itemsize]
    return b.of_range(low, max(-low, b.profile[y.name].high) if high is None else high)


def _weights(b: Builder, x: Value, w: Constant, bias: Constant | None) -> tuple[Value, Value | None]:
    """Return weight and bias as integers, in units that fit the input x of the quantised graph."""
    x_scale = parameters_of(x.type).scale[0]
    of_w = weight_parameters(w.data, None if bias is None else bias.data, x_scale, b.recipe)
    weight = b.constant(w, quantize_array(w.data, of_w, b.recipe.weight_element), of_w)
    if bias is None:
        return weight, None
    of_bias = bias_parameters(of_w, x_scale)
    return weight, b.constant(bias, quantize_bias(bias.data, of_bias), of_bias)


def _has_weights(node: Node) -> bool:
    _, w, bias, *_ = (*node.inputs, None)
    return isinstance(w, Constant) and (bias is None or isinstance(bias, Constant))


def _conv(b: Builder, node: Node) -> bool:
    if not (_has_weights(node) and _known(b, node)):
        return False
    conv = cast(Conv, node.operator)
    x, w, bias, z = (*node.inputs, None, None)[:4]
    stored = b.stored(cast(Value, x))
    weight, offset = _weights(b, stored, cast(Constant, w), cast("Constant | None", bias))
    window = (conv.strides, conv.pads, conv.dilations, conv.group)
    branch = None if z is None else b.stored(z)

    def layer(quantization: Quantization, activation: Activation) -> Operator:
        return QuantizedConv(*window, quantization, activation, rescale="shift")

    return _fused(b, node, conv.activation, layer, stored, weight, offset, branch)


def _fully_connected(b: Builder, node: Node) -> bool:
    if not (_has_weights(node) and _known(b, node)):
        return False
    x, w, bias = (*node.inputs, None)[:3]
    stored = b.stored(cast(Value, x))
    weights = _weights(b, stored, cast(Constant, w), cast("Constant | None", bias))
    return _fused(b, node, cast(FullyConnected, node.operator).activation, QuantizedFullyConnected, stored, *weights)


def _pair(layer: Layer) -> Rule:
    def rule(b: Builder, node: Node) -> bool:
        if not _known(b, node):
            return False
        activation = node.operator.activation if isinstance(node.operator, AddActivation) else ()
        return _fused(b, node, activation, layer, *map(b.stored, _read(node)))

    return rule


def _activation(b: Builder, node: Node) -> bool:
    x, y = _read(node)[0], node.outputs[0]
    if not _known(b, node):
        return False
    b.put(y, Rescale(b.parameters(y), activation_of(node.operator) or ()), b.stored(x), node=node.name)
    return True


def _table(b: Builder, node: Node) -> bool:
    x, y, function = _read(node)[0], node.outputs[0], as_function(node.operator)
    if function is None or not _known(b, node) or np.dtype(b.recipe.element).itemsize != 1:
        return False
    b.put(y, Lookup(function, b.parameters(y)), b.stored(x), node=node.name)
    return True


def _average_pool(b: Builder, node: Node) -> bool:
    if not _known(b, node):
        return False
    pool, parameters = cast(AveragePool, node.operator), b.parameters(node.outputs[0])
    window = (pool.kernel, pool.strides, pool.pads, pool.dilations, pool.ceil, pool.count_pads)
    b.put(
        node.outputs[0],
        QuantizedAveragePool(*window, parameters),
        b.stored(_read(node)[0]),
        node=node.name,
    )
    return True


def _global_average_pool(b: Builder, node: Node) -> bool:
    if not _known(b, node):
        return False
    operator = QuantizedGlobalAveragePool(b.parameters(node.outputs[0]))
    b.put(node.outputs[0], operator, b.stored(_read(node)[0]), node=node.name)
    return True


def _has_more_outputs(node: Node) -> bool:
    return len(node.outputs) > 1


def _same_parameters(b: Builder, node: Node) -> bool:
    """Do the same on the integers: the result keeps its input's parameters."""
    x, *others = _read(node)
    if not b.knows(x) or not b.is_stored(x) or _has_more_outputs(node):
        return False
    b.put(node.outputs[0], node.operator, b.stored(x), *map(b.real, others), node=node.name)
    return True


def _largest(b: Builder, node: Node) -> bool:
    if not _known(b, node) or _has_more_outputs(node):
        return False
    b.put(node.outputs[0], node.operator, b.stored(_read(node)[0]), node=node.name)
    return True


def _pad(b: Builder, node: Node) -> bool:
    """Fill with the integer that stands for the number; one that the input's range lacks asks for the result's."""
    pad, x, y = cast(Pad, node.operator), _read(node)[0], node.outputs[0]
    if not b.is_stored(x) or not _known(b, node):
        return False
    stored = b.stored(x) if pad.value == 0 or pad.mode != "constant" else b.rescaled(x, b.parameters(y))
    fill = quantize_array(np.array(float(pad.value)), parameters_of(stored.type), stored.type.element)
    b.put(y, replace(pad, value=int(fill)), stored, node=node.name)
    return True


def _concat(b: Builder, node: Node) -> bool:
    if not _known(b, node):
        return False
    parts = _read(node)
    common = {parameters_of(b.stored(part).type) for part in parts}
    parameters = common.pop() if len(common) == 1 else b.parameters(node.outputs[0])
    b.put(node.outputs[0], node.operator, *(b.rescaled(part, parameters) for part in parts), node=node.name)
    return True


# By the name that operators give as their `quantization_rule`.
RULES: dict[str, Rule] = {
    "concatenation": _concat,
    "convolution": _conv,
    "dense": _fully_connected,
    "global_mean": _global_average_pool,
    "maximum": _largest,
    "mean_pool": _average_pool,
    "padding": _pad,
    "product": _pair(QuantizedMul),
    "rescale": _activation,
    "same_parameters": _same_parameters,
    "sum": _pair(QuantizedAdd),
    "table": _table,
}
