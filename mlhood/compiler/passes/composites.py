"""Fusion of operators from the nodes that exporters write for them: GELU, gates such as SiLU, layer normalisation."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Sub
from mlhood.compiler.operators.elementwise import FUNCTIONS, Clip, Gelu, HardSigmoid, Silu
from mlhood.compiler.operators.normalization import LayerNormalization
from mlhood.compiler.operators.reduction import ReduceMean
from mlhood.compiler.passes.patterns import (
    Product,
    is_close,
    only_user,
    orders,
    outer_products,
    plus,
    product_of,
    replace_pattern,
    scalar,
)
from mlhood.compiler.passes.rewriting import constant_array, defining_node, sweep

_ERF, _HARD_SWISH, _SIGMOID, _TANH = (
    next(function for function in FUNCTIONS if function.__name__ == name)
    for name in ("Erf", "HardSwish", "Sigmoid", "Tanh")
)
_CUBIC = 0.044715


def fuse_gelu(graph: Graph) -> bool:
    """Fuse GELU from its parts; return whether anything changed.

    1. 0.5 x (1 + erf(x / sqrt(2)))                          ->  Gelu(x)
    2. 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))     ->  Gelu(x) by tanh
    3. 0.5 x (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x^2)))   ->  Gelu(x) by tanh

    The factors may come in any order and be grouped in any way; powers may be products. Not applied if a value in
    between has another use or is an output of the graph.

    Source: D. Hendrycks and K. Gimpel, "Gaussian error linear units (GELUs)", arXiv 1606.08415.
    """
    return sweep(graph, _fuse_gelu, _ERF, _TANH)


def _fuse_gelu(graph: Graph, node: Node) -> bool:
    inner, addition = product_of(graph, node.inputs[0]), only_user(graph, node.outputs[0])
    if addition is None or plus(addition.outputs[0], 1.0) is None:
        return False
    found = _argument_of_tanh(graph, inner) if isinstance(node.operator, _TANH) else _argument_of_erf(inner)
    if found is None:
        return False
    x, nodes = found
    operator = Gelu("tanh") if isinstance(node.operator, _TANH) else Gelu()
    for last, product in outer_products(graph, addition):
        if product.equals(0.5, {x: 1, addition.outputs[0]: 1}) and last.outputs[0].type == x.type:
            interior = {*inner.nodes, *nodes, node, addition, *product.nodes} - {last}
            return replace_pattern(graph, last, interior, operator, x)
    return False


def _argument_of_erf(inner: Product) -> tuple[Value, tuple[Node, ...]] | None:
    """Return x if a product is x / sqrt(2)."""
    x = next(iter(inner.powers), None)
    return (x, ()) if x is not None and inner.equals(math.sqrt(0.5), {x: 1}) else None


def _argument_of_tanh(graph: Graph, inner: Product) -> tuple[Value, tuple[Node, ...]] | None:
    """Return x, and more nodes, if a product is sqrt(2 / pi) (x + 0.044715 x^3), or has x as a factor of the sum."""
    for total in inner.powers:
        addition = defining_node(total, Add)
        if addition is None:
            continue
        for left, right in orders(addition):
            x = left if scalar(left) is None else next((each for each in inner.powers if each is not total), left)
            degree, powers = (3, {total: 1}) if x is left else (2, {total: 1, x: 1})
            term = product_of(graph, right)
            first = x is left or is_close(scalar(left), 1.0)
            if first and inner.equals(math.sqrt(2 / math.pi), powers) and term.equals(_CUBIC, {x: degree}):
                return x, (*term.nodes, addition)
    return None


def fuse_gates(graph: Graph) -> bool:
    """Fuse HardSigmoid, HardSwish and SiLU from their parts; return whether anything changed.

    1. Clip(x + 3, 0, 6) / 6           ->  HardSigmoid(x) with the slope 1 / 6
    2. x HardSigmoid(x), slope 1 / 6   ->  HardSwish(x)
    3. x Clip(x + 3, 0, 6) / 6         ->  HardSwish(x)
    4. x Sigmoid(x)                    ->  Silu(x)

    Factors may come in any order; a division by 6 may be a product with 1 / 6. Not applied if a value in between has
    another use or is an output of the graph.

    Sources: A. Howard et al., "Searching for MobileNetV3", ICCV 2019, section 5.2; S. Elfwing et al., "Sigmoid-weighted
    linear units for neural network function approximation in reinforcement learning", Neural Networks 2018.
    """
    changed = sweep(graph, _fuse_clip, Clip)
    return sweep(graph, _fuse_product, Mul) or changed


def _fuse_clip(graph: Graph, node: Node) -> bool:
    shifted = plus(node.inputs[0], 3.0)
    if shifted is None or getattr(node.operator, "limits", None) != (0, 6):
        return False
    (x, addition), clipped = shifted, node.outputs[0]
    for last, product in outer_products(graph, node):
        for operator, powers in ((HardSigmoid(1 / 6, 0.5), {clipped: 1}), (_HARD_SWISH(), {clipped: 1, x: 1})):
            if product.equals(1 / 6, powers) and last.outputs[0].type == x.type:  # rules 1 and 3
                return replace_pattern(graph, last, {addition, node, *product.nodes} - {last}, operator, x)
    return False


def _fuse_product(graph: Graph, node: Node) -> bool:
    for x, gated in orders(node):
        gate = defining_node(gated, HardSigmoid, _SIGMOID)
        if gate is None or gate.inputs[0] is not x or x.type != node.outputs[0].type:
            continue
        if isinstance(gate.operator, _SIGMOID):
            return replace_pattern(graph, node, [gate], Silu(), x)  # rule 4
        if is_close(gate.operator.attributes["alpha"], 1 / 6) and gate.operator.attributes["beta"] == 0.5:
            return replace_pattern(graph, node, [gate], _HARD_SWISH(), x)  # rule 2
    return False


class _Normalization(NamedTuple):
    """What a normalisation reads, and the nodes that compute it."""

    x: Value
    axis: int
    epsilon: float
    nodes: tuple[Node, ...]


def fuse_layer_normalization(graph: Graph) -> bool:
    """Fuse layer normalisations from their parts; return whether anything changed.

        d = x - mean(x)        n = d / sqrt(mean(d^2) + epsilon)

    1. n scale + bias   ->  LayerNormalization(x, scale, bias)
    2. n scale          ->  LayerNormalization(x, scale)
    3. n, n + bias      ->  LayerNormalization(x, ones), LayerNormalization(x, ones, bias)

    The means keep their axes, which are the last ones, of static length; x is float32. d^2 may be a product or a power,
    the quotient a product with the reciprocal or with a power of -1/2. Scale and bias are constants for the elements of
    these axes. Not applied if a value in between has another use or is an output of the graph.

    Source: J. L. Ba et al., "Layer normalization", arXiv 1607.06450.
    """
    return sweep(graph, _fuse_layer_normalization, Div, Mul)


def _fuse_layer_normalization(graph: Graph, node: Node) -> bool:
    match = _match_normalized(graph, product_of(graph, node.outputs[0]), node)
    if match is None or match.x.type != node.outputs[0].type:
        return False
    scale, multiplication = _parameter(graph, node, match, Mul)
    bias, addition = _parameter(graph, multiplication or node, match, Add)
    steps = [each for each in (*match.nodes, node, multiplication, addition) if each is not None]
    last = steps[-1]
    if scale is None:
        scale = np.ones(_lengths(match), np.float32)
    inputs = [
        None if array is None else graph.constant(f"{last.name}.{name}", array)
        for name, array in (("scale", scale), ("bias", bias))
    ]
    operator = LayerNormalization(match.axis, match.epsilon)
    done = replace_pattern(graph, last, steps[:-1], operator, match.x, *inputs)
    for constant in inputs:
        if constant is not None and not constant.users:
            graph.remove_constant(constant)
    return done


def _match_normalized(graph: Graph, product: Product, node: Node) -> _Normalization | None:
    """Match d / sqrt(mean(d^2) + epsilon), the d being x - mean(x)."""
    centred = next((value for value, exponent in product.powers.items() if exponent == 1), None)
    variance = next((value for value, exponent in product.powers.items() if exponent == -0.5), None)
    addition, difference = defining_node(variance, Add), defining_node(centred, Sub)
    if addition is None or difference is None or len(product.powers) > 2 or product.factor != 1 or centred is None:
        return None
    x, mean = difference.inputs[0], defining_node(difference.inputs[1], ReduceMean)
    if x is None or mean is None or mean.inputs[0] is not x or x.type.element != "float32":
        return None
    axis = _first_axis(mean)
    for square_mean, epsilon in orders(addition):
        spread, number = defining_node(square_mean, ReduceMean), scalar(epsilon)
        if spread is None or number is None or axis is None or _first_axis(spread) != axis:
            continue
        square = product_of(graph, spread.inputs[0])
        if square.equals(1.0, {centred: 2}):
            nodes = dict.fromkeys((*product.nodes, addition, difference, mean, spread, *square.nodes))
            return _Normalization(x, axis, number, tuple(each for each in nodes if each is not node))
    return None


def _first_axis(mean: Node) -> int | None:
    """Return the first of the last axes that a mean is taken over, if it keeps them and their lengths are known."""
    (x, *_), operator = mean.inputs, mean.operator.attributes
    if x is None or not operator["keep"]:
        return None
    axes = sorted(normalize_axis(axis, x.type.rank) for axis in operator["axes"])
    static = all(isinstance(x.type.shape[axis], int) and x.type.shape[axis] for axis in axes)
    return axes[0] if static and axes and axes == list(range(axes[0], x.type.rank)) else None


def _lengths(match: _Normalization) -> tuple[int, ...]:
    return tuple(int(length) for length in match.x.type.shape[match.axis :])


def _parameter(graph: Graph, node: Node, match: _Normalization, kind: type) -> tuple[np.ndarray | None, Node | None]:
    """Return the constant that a node's result is multiplied by or added to, and the node that does it."""
    user = only_user(graph, node.outputs[0])
    if user is None or not isinstance(user.operator, kind) or user.outputs[0].type != match.x.type:
        return None, None
    array = constant_array(user.inputs[1 if user.inputs[0] is node.outputs[0] else 0])
    lengths = _lengths(match)
    if array is None or array.shape[: max(array.ndim - len(lengths), 0)] != (1,) * (array.ndim - len(lengths)):
        return None, None
    return np.ascontiguousarray(np.broadcast_to(array.reshape(array.shape[-len(lengths) :]), lengths)), user
