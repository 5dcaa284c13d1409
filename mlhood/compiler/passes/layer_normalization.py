"""Fusion of layer normalisation from the nodes that exporters write for it, as torch does before opset 17."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.compiler.operators.normalization import LayerNormalization
from mlhood.compiler.operators.reduction import ReduceMean
from mlhood.compiler.passes.patterns import is_close, monomial, only_user, orders, replace_pattern, scalar
from mlhood.compiler.passes.rewriting import constant_array, defining_node, sweep

_RECIPROCAL, _SQRT = (
    next(function for function in FUNCTIONS if function.__name__ == name) for name in ("Reciprocal", "Sqrt")
)


@dataclass(frozen=True)
class _Match:
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
    return sweep(graph, _fuse, Div, Mul)


def _fuse(graph: Graph, node: Node) -> bool:
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


def _match_centred(quotient: tuple[Value | None, Value | None, tuple[Node, ...]]) -> _Match | None:
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
            return _Match(x, axis, number, (*nodes, addition, difference, mean, spread, *square.nodes))
    return None


def _first_axis(mean: Node) -> int | None:
    """Return the first of the last axes that a mean is taken over, if it keeps them and their lengths are known."""
    (x, *_), operator = mean.inputs, mean.operator.attributes
    if x is None or not operator["keep"]:
        return None
    axes = sorted(normalize_axis(axis, x.type.rank) for axis in operator["axes"])
    static = all(isinstance(x.type.shape[axis], int) and x.type.shape[axis] for axis in axes)
    return axes[0] if static and axes and axes == list(range(axes[0], x.type.rank)) else None


def _lengths(match: _Match) -> tuple[int, ...]:
    return tuple(int(length) for length in match.x.type.shape[match.axis :])


def _parameter(graph: Graph, node: Node, match: _Match, kind: type) -> tuple[np.ndarray | None, Node | None]:
    """Return the constant that a node's result is multiplied by or added to, and the node that does it."""
    user = only_user(graph, node.outputs[0])
    if user is None or not isinstance(user.operator, kind) or user.outputs[0].type != match.x.type:
        return None, None
    array = constant_array(user.inputs[1 if user.inputs[0] is node.outputs[0] else 0])
    lengths = _lengths(match)
    if array is None or array.shape[: max(array.ndim - len(lengths), 0)] != (1,) * (array.ndim - len(lengths)):
        return None, None
    return np.ascontiguousarray(np.broadcast_to(array.reshape(array.shape[-len(lengths) :]), lengths)), user
