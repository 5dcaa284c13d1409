"""Attention: one fused kernel for few queries, two products and a Softmax for many.

Where there are few queries, as in each step of a decoder, and no mask or one that hides nothing whole:

1. MatMul(Softmax(s q k^T + mask), v)      ->  Attention(q, k, v, mask)   s: factors of q, of k^T or of their product
2. Attention(q, repeated k, repeated v)    ->  Attention(q, k, v)         heads that share keys are queries of one head

All other attention in float32 is expanded:

3. Attention(q, k, v)                      ->  MatMul(Softmax((s q) k^T), v)
4. Attention(q, k, v, mask), causal or not ->  the same with the mask added, and -inf for the keys behind each query
5. Attention(q, k, v, mask)                ->  the same times 0 for queries that see nothing, if there may be such
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Dim, Shape
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Greater, Max, Mul
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.dynamic import Dynamic
from mlhood.compiler.operators.matrix import MatMul
from mlhood.compiler.operators.movement import Expand, Transpose
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.reduction import REDUCTIONS
from mlhood.compiler.operators.shape import Reshape, Unsqueeze
from mlhood.compiler.passes.dead_code import remove_dead_code
from mlhood.compiler.passes.patterns import orders, replace_pattern, scalar
from mlhood.compiler.passes.rewriting import defining_node, sweep, try_infer
from mlhood.compiler.passes.transposes import sink_transposes

_MOST_QUERIES = 8  # of more, the products are faster, which read the keys once for all of them


def lower_attention(graph: Graph, lanes: int) -> None:
    """Leave attention where it has a kernel, and express all other by products and Softmax.

    Args:
        graph: The graph, modified in place.
        lanes: float32 elements of a vector of the processor.
    """
    sweep(graph, lambda graph, node: _fuse(graph, node, lanes), MatMul)
    sweep(graph, lambda graph, node: _share(graph, node, lanes), Attention)
    remove_dead_code(graph)  # what transposed or repeated the keys
    expanded = [
        node
        for node in graph.topological()
        if isinstance(node.operator, Attention) and not _has_kernel(node.inputs, lanes) and _expand(graph, node)
    ]
    if expanded:
        while sink_transposes(graph):  # those of the keys merge with those that divide them into heads
            pass


# -- rules 1 and 2


def _has_kernel(inputs: tuple[Value | None, ...], lanes: int) -> bool:
    q, k, v, mask = (*inputs, None)[:4]
    if q is None or k is None or v is None or q.type.element != "float32" or k.type.rank < 3:
        return False
    queries, depth, width = q.type.shape[-2], k.type.shape[-1], v.type.shape[-1]
    if not all(isinstance(length, int) and length > 0 for length in (queries, depth, width)):
        return False
    same = q.type.shape[:-2] == k.type.shape[:-2] == v.type.shape[:-2]
    few = int(queries) <= _MOST_QUERIES and not int(depth) % lanes and not int(width) % lanes
    return same and few and (mask is None or mask_differs(mask.type.shape, q.type.shape, k.type.shape[-2]) is not None)


def mask_differs(mask: Shape, queries: Shape, keys: Dim) -> tuple[bool, bool] | None:
    """Return whether a mask differs by head and by query; None if the kernel cannot read it.

    Args:
        mask: Its shape, which is broadcast to [..., L, S].
        queries: Their shape, [..., L, D].
        keys: Their number, S.
    """
    full = (*(1,) * (len(queries) - len(mask)), *mask)
    if full[-1] != keys or full[-2] not in (1, queries[-2]) or len(full) > len(queries):
        return None
    by_query = full[-2] != 1
    if all(length == 1 for length in full[:-2]):
        return False, by_query
    return (True, by_query) if full[:-2] == queries[:-2] else None


def _fuse(graph: Graph, node: Node, lanes: int) -> bool:
    softmax, v = defining_node(node.inputs[0], Softmax), node.inputs[1]
    scores = softmax.inputs[0] if softmax else None
    if softmax is None or scores is None or v is None:
        return False
    if softmax.operator.attributes["axes"] not in ((-1,), (scores.type.rank - 1,)):
        return False
    for masked, mask in ((scores, None), *_terms(scores)):
        factor, product, nodes = _scaled(masked)
        product_node = defining_node(product, MatMul)
        if product_node is None or (mask is not None and not _shows_all(mask)):
            continue
        left, q, left_nodes = _scaled(product_node.inputs[0])
        right, transposed, right_nodes = _scaled(product_node.inputs[1])
        k = None if q is None else _untransposed(graph, transposed, q)
        if k is None or not _has_kernel((q, k, v, mask), lanes):
            continue
        interior = [softmax, *nodes, product_node, *left_nodes, *right_nodes]
        interior += [scores.producer] if mask is not None and scores.producer else []
        inputs = (q, k, v) if mask is None else (q, k, v, mask)
        return replace_pattern(graph, node, interior, Attention(factor * left * right), *inputs)
    return False


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
    last, exchanged = x.type.rank - 1, (*value.type.shape[:-2], value.type.shape[-1], value.type.shape[-2])
    order = (*range(last - 1), last, last - 1)
    if transpose.operator.attributes["permutation"] != order or x.type.shape[-2:] != exchanged[-2:]:
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


def _share(graph: Graph, node: Node, lanes: int) -> bool:
    """Apply rule 2: read keys and values once for all heads that share them, instead of repeating them."""
    q, k, v, mask = (*node.inputs, None)[:4]
    operator = node.operator
    if q is None or q.type.rank != 4 or not isinstance(operator, Attention) or not _has_kernel(node.inputs, lanes):
        return False
    _, heads, queries, depth = q.type.shape
    shared = [_before_repetition(value, int(heads)) for value in (k, v)] if isinstance(heads, int) else [None]
    key, value = shared if None not in shared else (None, None)
    if key is None or value is None or key.type.shape[1] != value.type.shape[1] or not isinstance(queries, int):
        return False
    groups = int(key.type.shape[1])
    rows = int(heads) // groups * queries
    alone = mask is None or (queries == 1 and all(axis == 1 for axis in mask.type.shape[:-1]))
    if rows > _MOST_QUERIES or operator.causal or not alone:
        return False
    together = graph.add(Reshape((0, groups, rows, int(depth))), q).outputs[0]
    inputs = [together, key, value, *([] if mask is None else [mask])]
    y = graph.add(Attention(operator.scale), *inputs, name=graph.unique_name(f"{node.name}.shared")).outputs[0]
    graph.replace(node, Reshape((0, int(heads), queries, int(y.type.shape[-1]))), y)
    return True


def _before_repetition(value: Value | None, heads: int) -> Value | None:
    """Return x [N, G, S, D] if a value [N, heads, S, D] repeats each of its G heads; None otherwise.

    That is written as an Expand of x [N, G, 1, S, D] to [N, G, heads / G, S, D], between two reshapes.
    """
    reshape = value.producer if value else None
    expand = reshape.inputs[0].producer if reshape and reshape.inputs[0] else None
    wide = expand.inputs[0] if expand else None
    if value is None or wide is None or wide.producer is None or wide.producer.inputs[0] is None:
        return None
    x = wide.producer.inputs[0]
    kinds = tuple(type(_operator(node)) for node in (reshape, expand))
    if kinds != (Reshape, Expand) or not isinstance(_operator(wide.producer), Reshape | Unsqueeze) or x.type.rank != 4:
        return None
    batch, groups, keys, depth = x.type.shape
    if (
        not isinstance(groups, int)
        or groups < 1
        or heads % groups
        or wide.type.shape != (batch, groups, 1, keys, depth)
    ):
        return None
    repeated = expand.outputs[0].type.shape if expand else ()
    whole = repeated == (batch, groups, heads // groups, keys, depth) and value.type.shape == (
        batch,
        heads,
        keys,
        depth,
    )
    return x if whole else None


# -- rules 3 to 5

_REDUCE_MAX = next(reduction for reduction in REDUCTIONS if reduction.__name__ == "ReduceMax")
_LOWEST = np.finfo(np.float32).min
AddNode = Callable[..., Value]


def _expand(graph: Graph, node: Node) -> bool:
    q, k, v, mask = (*node.inputs, None)[:4]
    operator = node.operator
    if q is None or k is None or v is None or not isinstance(operator, Attention) or q.type.element != "float32":
        return False
    if operator.causal:
        lengths = q.type.shape[-2], k.type.shape[-2]
        if not all(isinstance(length, int) for length in lengths):
            return False

    def add(kind: Operator, *inputs: Value) -> Value:
        return graph.add(kind, *inputs, name=f"{node.name}.{kind.name.lower()}").outputs[0]

    rank = k.type.rank
    keys = add(Transpose((*range(rank - 2), rank - 1, rank - 2)), k)
    scale = graph.constant(f"{node.name}.scale", np.array(operator.scale, np.float32))
    scores = add(MatMul(), add(Mul(), q, scale), keys)
    if operator.causal:
        mask = _causal(graph, node, mask, add)  # rule 4
    hides = mask is not None and not _shows_all(mask)
    if mask is not None:
        lowest = graph.constant(f"{node.name}.lowest", np.array(_LOWEST, np.float32)) if hides else None
        scores = add(Add(), scores, mask if lowest is None else add(Max(), mask, lowest))
    weights = add(Softmax((scores.type.rank - 1,)), scores)
    if not hides or mask is None:
        graph.replace(node, MatMul(), weights, v)  # rules 3 and 4
        return True
    infinity = graph.constant(f"{node.name}.infinity", np.array(-np.inf, np.float32))
    visible = add(Cast("float32"), add(Greater(), add(_REDUCE_MAX((-1,), True), mask), infinity))
    graph.replace(node, Mul(), add(MatMul(), weights, v), visible)  # rule 5
    return True


def _causal(graph: Graph, node: Node, mask: Value | None, add: AddNode) -> Value:
    """Return the mask with -inf for the keys behind each query."""
    q, k = node.inputs[:2]
    lengths = [int(value.type.shape[-2]) for value in (q, k) if value is not None]
    future = np.triu(np.full(lengths, -np.inf, np.float32), 1)
    if isinstance(mask, Constant):
        return graph.constant(f"{node.name}.mask", mask.data + future)
    constant = graph.constant(f"{node.name}.mask", future)
    return constant if mask is None else add(Add(), mask, constant)


def _shows_all(mask: Value) -> bool:
    """Return whether a mask is known to leave each query a key."""
    return isinstance(mask, Constant) and bool(np.isfinite(mask.data.max(axis=-1, initial=-np.inf)).all())
