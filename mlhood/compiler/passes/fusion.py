"""Fusion into layers: a convolution, a product or a pooling also does what an operator next to it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator, Range
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import ACTIVATIONS, Activation, AddActivation, activation_of
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Sub
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, MaxPool
from mlhood.compiler.operators.transposed_convolution import ConvTranspose
from mlhood.compiler.passes.ranges import compute_ranges, range_of
from mlhood.compiler.passes.rewriting import (
    constant_array,
    defining_node,
    erase_if_unused,
    fuse,
    has_one_use,
    sweep,
    transfer_name,
    try_infer,
)

# factor and shift, float64 [F]; None for a factor of 1 or a shift of 0
Affine = tuple[np.ndarray | None, np.ndarray | None]


def fold_affine(graph: Graph) -> bool:
    """Fold normalizations and arithmetic with constants into the preceding layers; return whether anything changed.

    With layer one of Conv, FullyConnected, ConvTranspose, c a scalar or one number per output channel, and
    a = scale / sqrt(variance + epsilon):

    1. BatchNormalization(layer(x, w, bias))  ->  layer(x, a w, a (bias - mean) + bias of the normalization)
    2. layer(x, w, bias) + c                  ->  layer(x, w, bias + c)
    3. layer(x, w, bias) - c                  ->  layer(x, w, bias - c)
    4. c - layer(x, w, bias)                  ->  layer(x, -w, c - bias)
    5. layer(x, w, bias) * c                  ->  layer(x, c w, c bias)
    6. layer(x, w, bias) / c                  ->  layer(x, w / c, bias / c)

    Not applied if the layer's output has another use or is an output of the graph, if the layer has an activation, if a
    residual branch would have to be scaled too, if the weights or statistics are not constants, if a result would not
    be finite, or if the channels of the normalization are not the outputs of a FullyConnected.

    Source: B. Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
    inference", CVPR 2018, equation 14.
    """
    return sweep(graph, fold_into_layer, BatchNormalization, Add, Sub, Mul, Div)


def fold_into_layer(graph: Graph, node: Node) -> bool:
    """Fold a node that scales and shifts each channel of a layer into the layer's weight and bias.

        w'[f] = factor[f] w[f]        bias'[f] = factor[f] bias[f] + shift[f]

    Return whether it is folded.
    """
    for position in range(min(len(node.inputs), 2)):
        layer = defining_node(node.inputs[position], Conv, ConvTranspose, FullyConnected)
        if layer is None or not has_one_use(graph, layer.outputs[0]) or layer.operator.attributes.get("activation"):
            continue
        affine = _affine(node, position, layer)
        if affine is not None and _fold_affine(graph, layer, node, *affine):
            return True
    return False


def _affine(node: Node, position: int, layer: Node) -> Affine | None:
    """Return how a node scales and shifts its input at a position, the layer; None if it is not affine."""
    if layer.outputs[0].type != node.outputs[0].type or not layer.outputs[0].type.is_float:
        return None
    if isinstance(node.operator, BatchNormalization):
        return _normalization(node) if position == 0 and _channel_axis(layer) == 1 else None
    rule = _ARITHMETIC.get((type(node.operator), position))
    operand = _per_channel(node.inputs[1 - position], layer) if rule else None
    with np.errstate(all="ignore"):
        return None if rule is None or operand is None else rule(operand)


_ARITHMETIC: dict[tuple[type, int], Callable[[np.ndarray], Affine]] = {
    (Add, 0): lambda c: (None, c),
    (Add, 1): lambda c: (None, c),
    (Sub, 0): lambda c: (None, -c),
    (Sub, 1): lambda c: (-np.ones_like(c), c),
    (Mul, 0): lambda c: (c, None),
    (Mul, 1): lambda c: (c, None),
    (Div, 0): lambda c: (1 / c, None),
}


def _normalization(node: Node) -> Affine | None:
    arrays = [constant_array(value) for value in node.inputs[1:]]
    scale, bias, mean, variance = (None if array is None else array.astype(np.float64) for array in arrays)
    if scale is None or bias is None or mean is None or variance is None:
        return None
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + node.operator.attributes["epsilon"])
        return factor, bias - mean * factor


def _channel_axis(layer: Node) -> int:
    return layer.outputs[0].type.rank - 1 if isinstance(layer.operator, FullyConnected) else 1


def _per_channel(value: Value | None, layer: Node) -> np.ndarray | None:
    """Return a constant that varies by output channel only, broadcast to [F]; None for any other value."""
    array, output = constant_array(value), layer.outputs[0].type
    if array is None or array.ndim > output.rank:
        return None
    axis, features = _channel_axis(layer), output.shape[_channel_axis(layer)]
    shape = (1,) * (output.rank - array.ndim) + array.shape
    if any(size != 1 for i, size in enumerate(shape) if i != axis) or shape[axis] not in (1, features):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (int(features),))


def _fold_affine(graph: Graph, layer: Node, node: Node, factor: np.ndarray | None, shift: np.ndarray | None) -> bool:
    x, w, bias, z = (*layer.inputs, None, None)[:4]
    weight_array, bias_array = constant_array(w), constant_array(bias)
    if (bias is not None and bias_array is None) or (factor is not None and (weight_array is None or z is not None)):
        return False
    new_weight = None
    with np.errstate(all="ignore"):
        if factor is not None and weight_array is not None:
            new_weight = _scaled_weight(layer, weight_array, factor.astype(weight_array.dtype))
        new_bias = _scale_and_shift(bias_array, factor, shift, layer.outputs[0].type.dtype)
    if not all(array is None or np.isfinite(array).all() for array in (new_weight, new_bias)):
        return False
    constants = (value for value in node.inputs if constant_array(value) is not None)
    addend = next(constants, None) if isinstance(node.operator, Add) else None  # the bias of a layer without one
    old_bias = bias or addend
    new_w = w if w is None or new_weight is None else graph.constant(w.name, new_weight)
    bias_name = old_bias.name if old_bias else f"{layer.name}.bias"
    new_b = None if new_bias is None else graph.constant(bias_name, new_bias)
    fuse(graph, layer, node, layer.operator, x, new_w, new_b, z)
    transfer_name(graph, new_w, w)
    transfer_name(graph, new_b, old_bias)
    return True


def _scaled_weight(layer: Node, weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return the weight with what it adds to each output channel multiplied by a factor [F]."""
    if not isinstance(layer.operator, ConvTranspose):
        return weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    depth, features = len(weight) // layer.operator.group, weight.shape[1]  # of a group
    columns = np.repeat(factor.reshape(-1, features), depth, axis=0)
    return weight * columns.reshape(*columns.shape, *(1,) * (weight.ndim - 2))


def _scale_and_shift(
    bias: np.ndarray | None, factor: np.ndarray | None, shift: np.ndarray | None, dtype: np.dtype
) -> np.ndarray | None:
    if bias is None and shift is None:
        return None
    scaled = 0.0 if bias is None else bias.astype(np.float64) * (1 if factor is None else factor)
    return np.asarray(scaled + (0.0 if shift is None else shift)).astype(dtype)


def merge_padding(graph: Graph) -> bool:
    """Merge paddings into their users; return whether anything changed.

    For a Pad in mode "constant", of spatial axes only, without negative pads:

    1. Conv(Pad(x, 0))         ->  Conv(x) with larger pads
    2. MaxPool(Pad(x, v))      ->  MaxPool(x) with larger pads, if v is at most the minimum of x's range: -inf for any
                                   x, 0 after a Relu; without dilation, ceil and indices
    3. AveragePool(Pad(x, 0))  ->  AveragePool(x) with larger pads that count, unless it has pads that do not; without
                                   ceil
    4. Pad(Pad(x, v), v)       ->  Pad(x, v), on any axes

    A pool's pads must remain smaller than its window.
    """
    if not any(isinstance(node.operator, Pad) for node in graph.nodes.values()):
        return False
    ranges = compute_ranges(graph)
    return sweep(graph, lambda graph, node: _merge_pad(graph, node, ranges), Pad, Conv, MaxPool, AveragePool)


def _merge_pad(graph: Graph, node: Node, ranges: dict[Value, Range]) -> bool:
    pad = defining_node(node.inputs[0], Pad)
    x = pad.inputs[0] if pad else None
    if pad is None or x is None or len(node.outputs) != 1:
        return False
    lowest = float(np.finfo(x.type.dtype).min) if x.type.is_float else -np.inf  # some exporters write it for -inf
    operator = _merged_operator(graph, pad, node, max(range_of(x, ranges)[0], lowest))
    types = (None if value is None else value.type for value in node.inputs[1:])
    if operator is None or try_infer(operator, x.type, *types) != node.outputs[0].type:
        return False
    graph.replace(node, operator, x, *node.inputs[1:])
    erase_if_unused(graph, pad)
    return True


def _merged_operator(graph: Graph, pad: Node, node: Node, minimum: float) -> Operator | None:
    """Return the node's operator with the padding merged, or None if the result would differ."""
    first, operator = pad.operator, node.operator
    if not isinstance(first, Pad) or first.mode != "constant" or min(before := tuple(map(int, first.pads))) < 0:
        return None
    if isinstance(operator, Pad):
        is_same = operator.mode == "constant" and operator.value == first.value and min(map(int, operator.pads)) >= 0
        return _add_pads(operator, before) if is_same and has_one_use(graph, pad.outputs[0]) else None  # rule 4
    pads = _spatial_pads(before)
    if pads is None or not _can_pad(operator, first.value, minimum):
        return None
    padded = _add_pads(operator, pads)
    return replace(padded, count_pads=True) if isinstance(padded, AveragePool) else padded


def _can_pad(operator: Operator, value: float, minimum: float) -> bool:
    """Return whether an operator's own padding has the effect of padding with a value."""
    if isinstance(operator, Conv):  # rule 1
        return value == 0
    if isinstance(operator, MaxPool):  # rule 2
        return value <= minimum and not operator.ceil and not operator.indices and max(operator.dilations) == 1
    counts = isinstance(operator, AveragePool) and (operator.count_pads or not any(operator.pads))
    return counts and value == 0 and not operator.attributes["ceil"]  # rule 3


def _spatial_pads(pads: tuple[int, ...]) -> tuple[int, ...] | None:
    rank = len(pads) // 2
    if rank < 3 or any(pads[:2]) or any(pads[rank : rank + 2]):
        return None
    return (*pads[2:rank], *pads[rank + 2 :])


def _add_pads(operator: Conv | MaxPool | AveragePool | Pad | Operator, pads: tuple[int, ...]) -> Operator:
    total = tuple(map(sum, zip(operator.attributes["pads"], pads, strict=True)))
    return replace(operator, pads=total)  # type: ignore[call-arg]


def fuse_residual(graph: Graph) -> bool:
    """Fuse residual additions into convolutions; return whether anything changed.

    1. Add(Conv(x, w, bias), z), Add(z, Conv(x, w, bias))  ->  Conv(x, w, bias, z)
    2. AddActivation of the same                           ->  Conv(x, w, bias, z) with the activation

    z has exactly the type of the convolution's output. Not applied if the convolution's output has another use or is an
    output of the graph, or if the convolution already has a residual branch or an activation. As the addition is then
    the only use, z cannot depend on the convolution, and no cycle arises.
    """
    return sweep(graph, _fuse_residual, Add, AddActivation)


def _fuse_residual(graph: Graph, node: Node) -> bool:
    for branch, z in (node.inputs, node.inputs[::-1]):
        conv = defining_node(branch, Conv)
        if conv is None or z is None or isinstance(z, Constant) or not _takes_residual(graph, conv, z):
            continue
        operator = conv.operator
        if isinstance(node.operator, AddActivation) and isinstance(operator, Conv):
            operator = replace(operator, activation=node.operator.activation)  # rule 2
        x, w, bias = (*conv.inputs, None)[:3]
        fuse(graph, conv, node, operator, x, w, bias, z)
        return True
    return False


def _takes_residual(graph: Graph, conv: Node, z: Value) -> bool:
    output = conv.outputs[0]
    is_plain = len(conv.inputs) < 4 and not conv.operator.attributes["activation"]
    return is_plain and z is not output and z.type == output.type and has_one_use(graph, output)


def fuse_activation(graph: Graph) -> bool:
    """Fuse activations into the preceding layers and additions; return whether anything changed.

    With f one of Relu, Clip, LeakyRelu, HardSwish, Sigmoid, Tanh:

    1. f(Conv(x, ...))            ->  Conv(x, ...) with the activation f
    2. f(FullyConnected(x, ...))  ->  FullyConnected(x, ...) with the activation f
    3. f(Add(a, b))               ->  AddActivation(a, b) with the activation f

    Not applied if f's input has another use, or if its operator already has an activation.
    """
    return sweep(graph, _fuse_activation, *ACTIVATIONS.values())


def _fuse_activation(graph: Graph, node: Node) -> bool:
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
