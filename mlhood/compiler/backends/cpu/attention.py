"""Attention on the CPU: one operator with a kernel, made of products and a Softmax, as exporters write it.

1. MatMul(Softmax(s q k^T + mask), v)      ->  Attention(q, k, v, mask)   s: factors of q, of k^T or of their product
2. Attention(q, k, v, a causal constant)   ->  Attention(q, k, v), causal
3. Attention(q, repeated k, repeated v)    ->  Attention(q, k, v)         with an axis of the queries that share keys

Rule 1 requires a mask that leaves each query a key, or a Where that replaces NaN by 0: Softmax gives NaN for a query
that sees nothing, and Attention gives 0.
"""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Dim, Shape
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Equal, Mul, Where
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.dynamic import Dynamic
from mlhood.compiler.operators.matrix import MatMul
from mlhood.compiler.operators.movement import Expand, Transpose
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.shape import Reshape, Unsqueeze
from mlhood.compiler.passes.patterns import orders, replace_pattern, scalar
from mlhood.compiler.passes.removal import remove_dead_code
from mlhood.compiler.passes.rewriting import defining_node, sweep, try_infer


def lower_attention(graph: Graph) -> None:
    """Find attention, and bring it into the form of its kernels.

    Args:
        graph: The graph, modified in place.
    """
    sweep(graph, _fuse, MatMul)
    sweep(graph, _recognise_causal, Attention)
    sweep(graph, _share, Attention)
    remove_dead_code(graph)  # what transposed or repeated the keys


def _has_kernel(inputs: tuple[Value | None, ...]) -> bool:
    q, k, v, mask = (*inputs, None)[:4]
    if q is None or k is None or v is None or q.type.element != "float32":
        return False
    lengths = k.type.shape[-1], v.type.shape[-1]
    return (
        all(isinstance(length, int) and length > 0 for length in lengths)
        and shared_heads(q.type.shape, k.type.shape, v.type.shape) is not None
        and (mask is None or mask_axes(mask.type.shape, q.type.shape, k.type.shape[-2]) is not None)
    )


def shared_heads(q: Shape, k: Shape, v: Shape) -> Dim | None:
    """Return how many heads of the queries share one of keys and values; None if the kernel cannot read them.

    Args:
        q, k, v: The shapes, [..., L, D], [..., S, D], [..., S, E].
    """
    if k[:-2] != v[:-2] or len(k) != len(q):
        return None
    if q[:-2] == k[:-2]:
        return 1
    return q[-3] if (*q[:-3], 1) == k[:-2] else None


def mask_axes(mask: Shape, queries: Shape, keys: Dim) -> tuple[int, bool, bool, bool] | None:
    """Return how a mask differs; None if the kernel cannot read it.

    Args:
        mask: Its shape, which is broadcast to [..., L, S].
        queries: Their shape, [..., L, D].
        keys: Their number, S.

    Returns:
        The number of leading axes that are batch axes, and whether the mask differs along these, along the other
        leading axes, and by query.
    """
    full, leading = (*(1,) * (len(queries) - len(mask)), *mask), queries[:-2]
    if len(full) > len(queries) or full[-1] != keys or full[-2] not in (1, queries[-2]):
        return None
    for batch in range(len(leading) + 1):
        parts = [(full[:-2][part], leading[part]) for part in (slice(batch), slice(batch, None))]
        differs = [any(axis != 1 for axis in mine) for mine, _ in parts]
        if all(mine == theirs or not differ for (mine, theirs), differ in zip(parts, differs, strict=True)):
            return batch, differs[0], differs[1], full[-2] != 1
    return None


def _fuse(graph: Graph, node: Node) -> bool:
    weights, guard = _unguarded(node.inputs[0])
    softmax, v = defining_node(weights, Softmax), node.inputs[1]
    scores = softmax.inputs[0] if softmax else None
    if softmax is None or scores is None or v is None:
        return False
    if softmax.operator.attributes["axes"] not in ((-1,), (scores.type.rank - 1,)):
        return False
    for masked, mask in ((scores, None), *_terms(scores)):
        factor, product, nodes = _scaled(masked)
        product_node = defining_node(product, MatMul)
        if product_node is None or (mask is not None and not guard and not _shows_all(mask)):
            continue
        left, q, left_nodes = _scaled(product_node.inputs[0])
        right, transposed, right_nodes = _scaled(product_node.inputs[1])
        k = None if q is None else _untransposed(graph, transposed, q)
        if k is None or not _has_kernel((q, k, v, mask)):
            continue
        interior = [*guard, softmax, *nodes, product_node, *left_nodes, *right_nodes]
        interior += [scores.producer] if mask is not None and scores.producer else []
        inputs = (q, k, v) if mask is None else (q, k, v, mask)
        return replace_pattern(graph, node, interior, Attention(factor * left * right), *inputs)
    return False


def _unguarded(weights: Value | None) -> tuple[Value | None, list[Node]]:
    """Return x and the nodes of Where(Not(x == x), 0, x), as torch's exporter writes it; or the weights and none."""
    where = defining_node(weights, Where)
    is_nan = where.inputs[0].producer if where and where.inputs[0] else None
    equal = defining_node(is_nan.inputs[0], Equal) if is_nan and is_nan.operator.name == "Not" else None
    x = where.inputs[2] if where else None
    if where and is_nan and equal and list(equal.inputs) == [x, x] and scalar(where.inputs[1]) == 0:
        return x, [where, is_nan, equal]
    return weights, []


def _shows_all(mask: Value) -> bool:
    """Return whether a mask is known to leave each query a key."""
    where = defining_node(mask, Where)
    if where is not None:
        numbers = [scalar(value) for value in where.inputs[1:]]
        return all(number is not None and np.isfinite(number) for number in numbers)
    return isinstance(mask, Constant) and bool(np.isfinite(mask.data.max(axis=-1, initial=-np.inf)).all())


def _terms(scores: Value) -> list[tuple[Value, Value]]:
    addition = defining_node(scores, Add)
    return list(orders(addition)) if addition else []


def _scaled(value: Value | None) -> tuple[float, Value | None, list[Node]]:
    """Return the number that a value is a multiple by, what it is a multiple of, and the nodes in between."""
    node = defining_node(value, Mul, Div)
    if node is None:
        return 1.0, value, []
    for x, other in orders(node) if isinstance(node.operator, Mul) else [(node.inputs[0], node.inputs[1])]:
        number = scalar(other)
        if number and x is not None and x.type == node.outputs[0].type:
            factor, inner, nodes = _scaled(x)
            return factor * (number if isinstance(node.operator, Mul) else 1 / number), inner, [node, *nodes]
    return 1.0, value, []


def _operator(node: Node | None) -> Operator | None:
    """Return what a node computes, whether or not its attributes depend on dynamic lengths."""
    operator = node.operator if node else None
    return operator.operator if isinstance(operator, Dynamic) else operator


def _untransposed(graph: Graph, value: Value | None, q: Value) -> Value | None:
    """Return the keys whose last two axes are exchanged in a value, in the queries' heads; None if there are none.

    torch's exporter reshapes the keys to three axes before that, and back after it.
    """
    if value is None or value.type.rank != q.type.rank:
        return None
    outer = value.producer if isinstance(_operator(value.producer), Reshape) else None
    transpose = defining_node(outer.inputs[0] if outer else value, Transpose)
    x = transpose.inputs[0] if transpose else None
    if transpose is None or x is None:
        return None
    permutation = transpose.operator.attributes["permutation"]
    if outer is None and permutation[-1] != x.type.rank - 2:  # merged with the one that divides the keys into heads
        return graph.add(Transpose((*permutation[:-2], permutation[-1], permutation[-2])), x).outputs[0]
    last, exchanged = x.type.rank - 1, (*value.type.shape[:-2], value.type.shape[-1], value.type.shape[-2])
    order = (*range(last - 1), last, last - 1)
    if permutation != order or x.type.shape[-2:] != exchanged[-2:]:
        return None
    inner = x.producer
    if inner and isinstance(_operator(inner), Reshape) and inner.inputs[0] and x.type.shape != exchanged:
        x = inner.inputs[0]
    if x.type.shape == exchanged:
        return x
    heads = Reshape((0, *exchanged[1:-2], -1, exchanged[-1]))
    if x.type.shape[-2:] != exchanged[-2:] or try_infer(heads, x.type) != x.type.with_shape(exchanged):
        return None
    return graph.add(heads, x).outputs[0]


def _recognise_causal(graph: Graph, node: Node) -> bool:
    """Apply rule 2."""
    q, k, v, mask = (*node.inputs, None)[:4]
    operator = node.operator
    if not isinstance(operator, Attention) or not isinstance(mask, Constant) or q is None or k is None or v is None:
        return False
    data, lengths = mask.data, mask.data.shape[-2:]
    if lengths != (q.type.shape[-2], k.type.shape[-2]) or data.size != lengths[0] * lengths[1]:
        return False
    if not np.array_equal(data.reshape(lengths), np.triu(np.full(lengths, -np.inf), 1)):
        return False
    graph.replace(node, Attention(operator.scale, True), q, k, v)
    return True


def _share(graph: Graph, node: Node) -> bool:
    """Apply rule 3: read keys and values once for all heads that share them, instead of repeating them."""
    q, k, v, mask = (*node.inputs, None)[:4]
    if q is None or q.type.rank != 4 or not isinstance(node.operator, Attention):
        return False
    key, value = _before_repetition(k), _before_repetition(v)
    if key is None or value is None or key.type.shape[:3] != value.type.shape[:3]:
        return False
    batch, heads, queries, depth = q.type.shape
    groups, width = key.type.shape[1], value.type.shape[-1]
    if not isinstance(heads, int) or not isinstance(groups, int) or not isinstance(depth, int):
        return False
    grouped = Reshape((0, groups, heads // groups, -1, depth))
    if try_infer(grouped, q.type) != q.type.with_shape((batch, groups, heads // groups, queries, depth)):
        return False
    if mask is not None and mask.type.rank == 4:
        if mask.type.shape[1] != 1:
            return False
        mask = graph.add(Unsqueeze((1,)), mask).outputs[0]
    inputs = [graph.add(grouped, q).outputs[0], key, value, *([] if mask is None else [mask])]
    y = graph.add(node.operator, *inputs, name=graph.unique_name(f"{node.name}.shared")).outputs[0]
    graph.replace(node, Reshape((0, heads, -1, int(width))), y)
    return True


def _before_repetition(value: Value | None) -> Value | None:
    """Return x [N, G, 1, S, D] if a value [N, H, S, D] repeats each of its G heads, by an Expand; None otherwise."""
    reshape = value.producer if value else None
    expand = reshape.inputs[0].producer if reshape and reshape.inputs[0] else None
    x = expand.inputs[0] if expand else None
    if value is None or expand is None or x is None or x.type.rank != 5 or value.type.rank != 4:
        return None
    if not isinstance(_operator(reshape), Reshape) or not isinstance(_operator(expand), Expand):
        return None
    batch, groups, one, keys, depth = x.type.shape
    heads = value.type.shape[1]
    if one != 1 or not isinstance(heads, int) or not isinstance(groups, int) or not groups or heads % groups:
        return None
    repeated = expand.outputs[0].type.shape == (batch, groups, heads // groups, keys, depth)
    return x if repeated and value.type.shape == (batch, heads, keys, depth) else None
