"""Fusion of operators from the nodes that exporters write for them: GELU, gates such as SiLU, layer normalisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.elementwise import FUNCTIONS, Clip, Gelu, HardSigmoid, Silu
from mlhood.compiler.operators.normalization import LayerNormalization
from mlhood.compiler.operators.reduction import ReduceMean
from mlhood.compiler.passes.patterns import (
    Monomial,
    is_close,
    monomial,
    only_user,
    orders,
    plus,
    replace_pattern,
    scalar,
)
from mlhood.compiler.passes.rewriting import constant_array, defining_node, sweep

_ERF, _HARD_SWISH, _RECIPROCAL, _SIGMOID, _SQRT, _TANH = (
    next(function for function in FUNCTIONS if function.__name__ == name)
    for name in ("Erf", "HardSwish", "Reciprocal", "Sigmoid", "Sqrt", "Tanh")
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
    candidates = _erf_arguments(node) if isinstance(node.operator, _ERF) else _tanh_arguments(node)
    operator = Gelu() if isinstance(node.operator, _ERF) else Gelu("tanh")
    return any(_finish_gelu(graph, node, operator, x, inner) for x, inner in candidates)


def _erf_arguments(node: Node) -> list[tuple[Value, tuple[Node, ...]]]:
    """Return x, and the nodes of its product, if the node's input is x / sqrt(2)."""
    product = defining_node(node.inputs[0], Mul, Div)
    if product is None:
        return []
    found = []
    for x in product.inputs:
        part = None if x is None or scalar(x) is not None else monomial(node.inputs[0], x)
        if x is not None and part is not None and part.degree == 1 and is_close(part.factor, math.sqrt(0.5)):
            found.append((x, part.nodes))
    return found


def _tanh_arguments(node: Node) -> list[tuple[Value, tuple[Node, ...]]]:
    """Return x, and the nodes in between, if the node's input is sqrt(2 / pi) (x + 0.044715 x^3)."""
    found = []
    for sum_node, outer in _scaled_sums(node.inputs[0]):
        for left, right in orders(sum_node):
            if scalar(left) is None:  # rule 2
                cube = monomial(right, left)
                if cube and outer.degree == 0 and cube.degree == 3 and _is_inner(outer.factor, cube.factor):
                    found.append((left, (*outer.nodes, sum_node, *cube.nodes)))
            elif is_close(scalar(left), 1.0):  # rule 3
                found += _factored(node.inputs[0], sum_node, right)
    return found


def _is_inner(outer: float, cubic: float) -> bool:
    return is_close(outer, math.sqrt(2 / math.pi)) and is_close(cubic, _CUBIC)


def _scaled_sums(value: Value | None, depth: int = 4) -> list[tuple[Node, Monomial]]:
    """Return the additions that a value is the product of, with the number that each is multiplied by."""
    if (addition := defining_node(value, Add)) is not None:
        return [(addition, Monomial(1.0, 0))]
    node = defining_node(value, Mul, Div)
    if node is None or not depth:
        return []
    found = []
    for x, _ in [*orders(node)][: 1 if isinstance(node.operator, Div) else 2]:
        for addition, _ in _scaled_sums(x, depth - 1):
            outer = monomial(value, addition.outputs[0])
            found.append((addition, Monomial(outer.factor, 0, outer.nodes) if outer else Monomial(math.nan, 0)))
    return found


def _factored(value: Value | None, sum_node: Node, square: Value) -> list[tuple[Value, tuple[Node, ...]]]:
    """Return x if a value is sqrt(2 / pi) x (1 + 0.044715 x^2), where the sum and its second term are given."""
    found = []
    for x in _factors(square):
        inner = monomial(square, x)
        outer = _monomial_beside(value, sum_node.outputs[0], x)
        if inner and outer and (inner.degree, outer.degree) == (2, 1) and _is_inner(outer.factor, inner.factor):
            found.append((x, (*outer.nodes, sum_node, *inner.nodes)))
    return found


def _factors(value: Value | None, depth: int = 4) -> list[Value]:
    """Return the values that products and powers read to compute a value, numbers excepted."""
    node = value.producer if value is not None and depth else None
    if node is None or scalar(value) is not None:
        return []
    values = [x for x in node.inputs if x is not None and scalar(x) is None]
    return list(dict.fromkeys([*values, *(y for x in values for y in _factors(x, depth - 1))]))


def _monomial_beside(value: Value | None, factor: Value, x: Value) -> Monomial | None:
    """Return the monomial of x that a value is, beside another factor."""
    if value is factor:
        return Monomial(1.0, 0)
    node = defining_node(value, Mul, Div)
    if node is None:
        return None
    for a, b in [*orders(node)][: 1 if isinstance(node.operator, Div) else 2]:
        left, right = _monomial_beside(a, factor, x), monomial(b, x)
        if left is None or right is None:
            continue
        if isinstance(node.operator, Div):
            return left.times(Monomial(1 / right.factor, 0), node) if right.factor and not right.degree else None
        return left.times(right, node)
    return None


def _finish_gelu(graph: Graph, node: Node, operator: Gelu, x: Value, inner: tuple[Node, ...]) -> bool:
    """Fuse all, if what reads the function of x is (1 + function) 0.5 x."""
    addition = only_user(graph, node.outputs[0])
    if addition is None or plus(addition.outputs[0], 1.0) is None:
        return False
    nodes, total, last = [*inner, node, addition], Monomial(1.0, 0), addition
    while (total.degree, is_close(total.factor, 0.5)) != (1, True):
        user = only_user(graph, last.outputs[0])
        if user is None or not isinstance(user.operator, Mul | Div) or total.degree > 1:
            return False
        other = user.inputs[1 if user.inputs[0] is last.outputs[0] else 0]
        factor = monomial(other, x)
        if isinstance(user.operator, Div):
            is_divided = factor is not None and factor.factor and not factor.degree and other is user.inputs[1]
            factor = Monomial(1 / factor.factor, 0) if factor and is_divided else None
        if factor is None:
            return False
        total, last = total.times(factor, user), user
        nodes += [*factor.nodes, user]
    if last.outputs[0].type != x.type:
        return False
    return replace_pattern(graph, last, [each for each in nodes if each is not last], operator, x)


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
    x, addition = shifted
    if x.type != node.outputs[0].type:
        return False
    interior, last, has_x, factor = [addition, node], node, False, 1.0
    while (user := only_user(graph, last.outputs[0])) is not None and isinstance(user.operator, Mul | Div):
        other = user.inputs[1 if user.inputs[0] is last.outputs[0] else 0]
        part = None if other is None else monomial(other, x)
        if part is None or part.nodes or part.degree + has_x > 1 or not part.factor:
            break
        if isinstance(user.operator, Div) and (part.degree or other is not user.inputs[1]):
            break
        factor *= 1 / part.factor if isinstance(user.operator, Div) else part.factor
        has_x, last = has_x or part.degree == 1, user
        interior.append(user)
        if is_close(factor, 1 / 6):
            break
    if not is_close(factor, 1 / 6) or last.outputs[0].type != x.type:
        return False
    operator = _HARD_SWISH() if has_x else HardSigmoid(1 / 6, 0.5)  # rules 3 and 1
    return replace_pattern(graph, last, [each for each in interior if each is not last], operator, x)


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


@dataclass(frozen=True)
class _Normalization:
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
    match = next((found for found in map(_match_centred, _quotients(node)) if found), None)
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


def _quotients(node: Node) -> list[tuple[Value | None, Value | None, tuple[Node, ...]]]:
    """Return d, mean(d^2) + epsilon and the nodes in between, if a node may be d / sqrt(mean(d^2) + epsilon)."""
    if isinstance(node.operator, Div):
        return [(node.inputs[0], *_under_root(node.inputs[1], 0.5))]
    return [(d, *_under_root(inverse, -0.5)) for d, inverse in orders(node)]


def _under_root(value: Value | None, exponent: float) -> tuple[Value | None, tuple[Node, ...]]:
    """Return what a value is a power of, 1/2 or -1/2, and the nodes that compute it; None if it is none."""
    power = defining_node(value, Pow)
    if power is not None:
        return (power.inputs[0] if is_close(scalar(power.inputs[1]), exponent) else None), (power,)
    if exponent < 0:
        inverse = defining_node(value, _RECIPROCAL, Div)
        if inverse is None or (isinstance(inverse.operator, Div) and scalar(inverse.inputs[0]) != 1):
            return None, ()
        root, nodes = _under_root(inverse.inputs[-1], 0.5)
        return root, (*nodes, inverse)
    root = defining_node(value, _SQRT)
    return (None, ()) if root is None else (root.inputs[0], (root,))


def _match_centred(quotient: tuple[Value | None, Value | None, tuple[Node, ...]]) -> _Normalization | None:
    centred, variance, nodes = quotient
    addition, difference = defining_node(variance, Add), defining_node(centred, Sub)
    if addition is None or difference is None or centred is None:
        return None
    x, mean = difference.inputs[0], defining_node(difference.inputs[1], ReduceMean)
    if x is None or mean is None or mean.inputs[0] is not x or x.type.element != "float32":
        return None
    axis = _first_axis(mean)
    for square_mean, epsilon in orders(addition):
        spread, number = defining_node(square_mean, ReduceMean), scalar(epsilon)
        if spread is None or number is None or axis is None or _first_axis(spread) != axis:
            continue
        square = monomial(spread.inputs[0], centred)
        if square is not None and square.degree == 2 and square.factor == 1:
            return _Normalization(x, axis, number, (*nodes, addition, difference, mean, spread, *square.nodes))
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
