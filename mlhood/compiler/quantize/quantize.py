"""The quantisation pass: rewrite a float graph to integers, except at its inputs and outputs.

Operators select their rule by its name; nodes without a rule, or whose rule does not apply, stay float.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.names import gc_paused
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import Activation, AddActivation, activation_of, operator_of
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Unary
from mlhood.compiler.operators.integer import QuantizedConv, QuantizedFullyConnected
from mlhood.compiler.operators.integer_elementwise import (
    Lookup,
    QuantizedAdd,
    QuantizedAveragePool,
    QuantizedGlobalAveragePool,
    QuantizedMul,
    as_function,
)
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool
from mlhood.compiler.operators.quantized import Dequantize
from mlhood.compiler.operators.rescale import INTEGER_ACTIVATIONS, Rescale, parameters_of
from mlhood.compiler.quantize.builder import Builder
from mlhood.compiler.quantize.profile import Profile
from mlhood.compiler.quantize.schema import Recipe, channel_parameters, quantize_array, tensor_parameters

# A rule adds the integer form of a node, or returns False without adding anything.
Rule = Callable[[Builder, Node], bool]
Condition = Callable[[Builder, Node], bool]
# Constructs an operator from its result's parameters and its fused activation.
Layer = Callable[[Quantization, Activation], Operator]


def _inputs(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]


def _can_quantize(b: Builder, node: Node) -> bool:
    """Return whether all inputs and outputs of a node can be quantised."""
    return all(map(b.can_quantize, (*_inputs(node), *node.outputs)))


def _is_worthwhile(b: Builder, node: Node) -> bool:
    """Return whether arithmetic gains by integers: it reads some, and neither they nor its result are a mask."""
    values = (*_inputs(node), *node.outputs)
    return _can_quantize(b, node) and any(map(b.comes_as_integers, _inputs(node))) and not any(map(b.is_mask, values))


def _add_layer(b: Builder, node: Node, activation: Activation, layer: Layer, *inputs: Value | None) -> bool:
    """Add a layer with its fused activation: within the layer, as a lookup table after it, or in float."""
    y = node.outputs[0]
    if not activation or activation[0] in INTEGER_ACTIVATIONS:
        b.define(y, layer(b.parameters(y), activation), *inputs, node=node.name)
        return True
    ends = cast(Unary, operator_of(activation)).saturates_at[np.dtype(b.recipe.element).itemsize]
    parameters = b.pre_activation_parameters(y, *ends)
    before = b.insert(layer(parameters, ()), *inputs, name=f"{y.name}.before", node=node.name)
    name = f"{node.name}.activation"
    if before.type.dtype.itemsize == 1:
        b.define(y, Lookup(activation, b.parameters(y)), before, node=name)
    else:
        in_float = b.insert(Dequantize(), before, name=f"{before.name}.dequantized")
        b.define(y, operator_of(activation), in_float, node=name)
    return True


def _quantize_weights(b: Builder, x: Value, w: Constant, bias: Constant | None) -> tuple[Value, Value | None]:
    """Return weight and bias as integers; the scale of the bias depends on that of the layer's quantised input x."""
    x_scale = parameters_of(x.type).scale[0]
    parameters = weight_parameters(w.data, None if bias is None else bias.data, x_scale, b.recipe)
    weight = b.constant(w, quantize_array(w.data, parameters, b.recipe.weight_element), parameters)
    if bias is None:
        return weight, None
    parameters = bias_parameters(parameters, x_scale)
    return weight, b.constant(bias, quantize_bias(bias.data, parameters), parameters)


def _has_constant_weights(node: Node) -> bool:
    _, w, bias, *_ = (*node.inputs, None)
    return isinstance(w, Constant) and (bias is None or isinstance(bias, Constant))


def _conv(b: Builder, node: Node) -> bool:
    if not (_has_constant_weights(node) and _can_quantize(b, node)):
        return False
    conv = cast(Conv, node.operator)
    x, w, bias, z = (*node.inputs, None, None)[:4]
    q = b.as_integers(cast(Value, x))
    weights = _quantize_weights(b, q, cast(Constant, w), cast("Constant | None", bias))
    window = (conv.strides, conv.pads, conv.dilations, conv.group)
    residual = None if z is None else b.as_integers(z)

    def layer(quantization: Quantization, activation: Activation) -> Operator:
        return QuantizedConv(*window, quantization, activation, rescale="shift")

    return _add_layer(b, node, conv.activation, layer, q, *weights, residual)


def _fully_connected(b: Builder, node: Node) -> bool:
    if not (_has_constant_weights(node) and _can_quantize(b, node)):
        return False
    x, w, bias = (*node.inputs, None)[:3]
    q = b.as_integers(cast(Value, x))
    weights = _quantize_weights(b, q, cast(Constant, w), cast("Constant | None", bias))
    return _add_layer(b, node, cast(FullyConnected, node.operator).activation, QuantizedFullyConnected, q, *weights)


def _binary(layer: Layer) -> Rule:
    def rule(b: Builder, node: Node) -> bool:
        if not _is_worthwhile(b, node):
            return False
        activation = node.operator.activation if isinstance(node.operator, AddActivation) else ()
        return _add_layer(b, node, activation, layer, *map(b.as_integers, _inputs(node)))

    return rule


def _unary(convert: Callable[[Operator, Quantization], Operator], applies: Condition = _can_quantize) -> Rule:
    """Return the rule for operators of one input that `convert` turns into an integer operator."""

    def rule(b: Builder, node: Node) -> bool:
        if not applies(b, node):
            return False
        y = node.outputs[0]
        b.define(y, convert(node.operator, b.parameters(y)), b.as_integers(_inputs(node)[0]), node=node.name)
        return True

    return rule


def _average_pool(operator: Operator, parameters: Quantization) -> Operator:
    pool = cast(AveragePool, operator)
    window = (pool.kernel, pool.strides, pool.pads, pool.dilations, pool.ceil)
    return QuantizedAveragePool(*window, pool.count_pads, parameters)


def _lookup_table(b: Builder, node: Node) -> bool:
    x, y, function = _inputs(node)[0], node.outputs[0], as_function(node.operator)
    if function is None or not _is_worthwhile(b, node) or np.dtype(b.recipe.element).itemsize != 1:
        return False
    b.define(y, Lookup(function, b.parameters(y)), b.as_integers(x), node=node.name)
    return True


def _same_parameters(b: Builder, node: Node) -> bool:
    """Apply the same operator to the integers; the result has its input's parameters."""
    x, *others = _inputs(node)
    if not b.can_quantize(x) or not b.has_integers(x) or len(node.outputs) != 1:
        return False
    b.define(node.outputs[0], node.operator, b.as_integers(x), *map(b.as_float, others), node=node.name)
    return True


def _max_pool(b: Builder, node: Node) -> bool:
    if not _can_quantize(b, node) or len(node.outputs) != 1:
        return False
    b.define(node.outputs[0], node.operator, b.as_integers(_inputs(node)[0]), node=node.name)
    return True


def _pad(b: Builder, node: Node) -> bool:
    """Pad with the quantised value; a value other than 0 may be outside of the input's range: use the result's."""
    pad, x, y = cast(Pad, node.operator), _inputs(node)[0], node.outputs[0]
    if not b.has_integers(x) or not _can_quantize(b, node):
        return False
    q = b.as_integers(x) if pad.value == 0 or pad.mode != "constant" else b.with_parameters(x, b.parameters(y))
    value = quantize_array(np.array(float(pad.value)), parameters_of(q.type), q.type.element)
    b.define(y, replace(pad, value=int(value)), q, node=node.name)
    return True


def _concat(b: Builder, node: Node) -> bool:
    if not _can_quantize(b, node):
        return False
    inputs = _inputs(node)
    distinct = {parameters_of(b.as_integers(value).type) for value in inputs}
    parameters = distinct.pop() if len(distinct) == 1 else b.parameters(node.outputs[0])
    b.define(node.outputs[0], node.operator, *(b.with_parameters(x, parameters) for x in inputs), node=node.name)
    return True


# By the name that operators give as their `quantization_rule`.
RULES: dict[str, Rule] = {
    "concatenation": _concat,
    "convolution": _conv,
    "dense": _fully_connected,
    "global_mean": _unary(lambda operator, parameters: QuantizedGlobalAveragePool(parameters)),
    "maximum": _max_pool,
    "mean_pool": _unary(_average_pool),
    "padding": _pad,
    "product": _binary(QuantizedMul),
    "rescale": _unary(lambda operator, parameters: Rescale(parameters, activation_of(operator) or ()), _is_worthwhile),
    "same_parameters": _same_parameters,
    "sum": _binary(QuantizedAdd),
    "table": _lookup_table,
}


_INT32 = np.iinfo(np.int32)


def weight_parameters(weight: np.ndarray, bias: np.ndarray | None, x_scale: float, recipe: Recipe) -> Quantization:
    """Return the parameters of a weight such that the bias, int32 in units of scale_x scale_w, does not overflow.

    The scale of the weight's range is increased if the bias would leave too little room in the accumulator for the sum
    of products: the error of weights that are so much smaller than their bias is negligible.

    Args:
        weight: float32 [F, ...], output channels first.
        bias: float32 [F], or None.
        x_scale: Scale of the layer's input.
        recipe: Determines the schema, the element type, and whether each channel has its own scale.
    """
    choose = channel_parameters if recipe.per_channel else tensor_parameters
    parameters = choose(weight, recipe.weight_element, recipe.weight_schema)
    if bias is None or not bias.size:
        return parameters
    minimum = np.abs(bias.astype(np.float64)) / (x_scale * _max_bias(weight, recipe))
    minimum = minimum if recipe.per_channel else minimum.max(keepdims=True)
    too_small = np.array(parameters.scale) < minimum
    if not too_small.any():
        return parameters
    increased = np.nextafter(minimum.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    if recipe.schema == "power_of_two":
        increased = np.exp2(np.ceil(np.log2(minimum)))
    scale = np.where(too_small, increased, parameters.scale)
    return replace(parameters, scale=tuple(scale.tolist()))


def _max_bias(weight: np.ndarray, recipe: Recipe) -> float:
    """Return the largest bias with which no sum of products overflows the accumulator."""
    if recipe.element == "int16":
        return float(_INT32.max)  # the accumulator is int64, only the bias is int32
    products = weight[0].size * 255 * 255
    return float(max(_INT32.max - products, _INT32.max // 2))


def bias_parameters(weight: Quantization, x_scale: float) -> Quantization:
    """Return the parameters of a bias: the scale of the products that it is added to, per channel as the weight's."""
    return Quantization(tuple(scale * x_scale for scale in weight.scale), (0,) * len(weight.scale), weight.axis)


def quantize_bias(bias: np.ndarray, quantization: Quantization) -> np.ndarray:
    """Return the bias as int32."""
    return quantize_array(bias, quantization, "int32")


@gc_paused()
def quantize(graph: Graph, profile: Profile, recipe: Recipe | None = None) -> Graph:
    """Return a graph that computes with integers where its operators support it.

    1. Placeholders and outputs stay float and keep their names: a Quantize is inserted between a placeholder and
       integer users, a Dequantize before an output.
    2. Conv, FullyConnected, Add, Mul, average pooling, Relu, Clip and LeakyRelu become integer operators; the
       parameters of their results come from the profile. Conv and FullyConnected need constant weights, which become
       int8 or int16, and biases int32 in units of scale_x scale_w.
    3. MaxPool and operators that only move elements stay, and their results keep their input's parameters. Concat's
       inputs are rescaled to its result's, unless they have the same.
    4. Sigmoid, Tanh and other elementwise functions become lookup tables of 256 entries; with int16 they stay float.
       The range before a function that is fused into a layer comes from the profile as well.
    5. Sums, products and functions stay float where all that they read is computed in float, and where they read or
       make a mask: infinities, or a few numbers that are so large that nothing is left of the others.
    6. All other operators stay float, behind a Dequantize; `report.kept_in_float` lists them.

    Values and nodes keep their names: the value named x in the result holds the integers that represent x.

    Args:
        graph: The optimised float graph; not modified.
        profile: The distributions of its values on calibration data.
        recipe: How to quantise; asymmetric int8 by default.

    Raises:
        CompilerError: The profile belongs to another graph.
    """
    profile.check(graph)
    builder = Builder(graph, profile, recipe or Recipe())
    for node in graph.topological():
        rule = node.operator.quantization_rule
        if rule is None or not RULES[rule](builder, node):
            builder.copy(node)
    for name, value in graph.outputs.items():
        builder.graph.output(builder.as_float(value), name)
    return builder.graph
