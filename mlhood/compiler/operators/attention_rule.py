"""The import rule of ONNX's Attention: heads are split and repeated, keys and values appended to those of the past."""

from __future__ import annotations

import numpy as np
import onnx

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Where
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.movement import Concat, Expand, Transpose
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.shape import Reshape, Unsqueeze


def covers(node: onnx.NodeProto) -> bool:
    """Return whether the rule covers a node; others are imported by ONNX's definition of the operator.

    Not covered are lengths of keys that are not padding, local windows, softcap, and the products as an output.
    """
    numbers = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    windows = max(numbers.get(f"{side}_window_size", -1) for side in ("left", "right"))
    padded, products = any(node.input[6:]), any(node.output[3:])
    return not (padded or products or windows >= 0 or numbers.get("softcap", 0) != 0)


def import_attention(source: OnnxNode) -> tuple[Value | None, ...]:
    """Attention of opset 23 and newer: q, k, v of 4 axes, or of 3 with the heads in the last one."""
    _check(source)
    packed = source.input(0).type.rank == 3
    counts = source.attribute("q_num_heads", 0), source.attribute("kv_num_heads", 0)
    require(not packed or min(counts) > 0, "inputs of 3 axes require the numbers of heads", got=counts)
    heads = (counts[0], counts[1], counts[1])
    q, k, v = (_split(source, source.input(i), n) if packed else source.input(i) for i, n in enumerate(heads))
    if source.has(4):
        k = source.add(Concat(2), source.input(4), k)
        v = source.add(Concat(2), source.input(5), v)
    size = q.type.shape[3]
    scale = source.attribute("scale", 0.0)
    if not scale and isinstance(size, str):
        raise source.unsupported(f"the scale requires the size {size!r} of the heads", "import_model(..., dims={...})")
    causal, mask = bool(source.attribute("is_causal", 0)), _mask(source, q, k)
    if causal and source.has(4):
        mask, causal = _causal(source, q, k, mask), False
    keys, values = (_repeated(source, x, q) for x in (k, v))
    y = source.add(Attention(scale or 1 / float(size) ** 0.5, causal), q, keys, values, mask)
    if packed:
        y = source.add(Reshape((0, 0, -1)), source.add(Transpose((0, 2, 1, 3)), y))
    return y, k, v


def _check(source: OnnxNode) -> None:
    windows = max(source.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    if source.has(6) or source.uses_output(3) or windows >= 0 or source.attribute("softcap", 0.0) != 0:
        what = "lengths of keys, local windows, softcap and the products as an output are not supported in this use"
        raise source.unsupported(what, "export the attention as matrix products and a Softmax")
    ranks = [source.input(i).type.rank for i in range(3)]
    require(ranks in ([3] * 3, [4] * 3), "queries, keys and values must have 3 or 4 axes each", got=ranks)
    require(source.has(4) == source.has(5), "past keys and values must be given together")


def _split(source: OnnxNode, x: Value, heads: int) -> Value:
    return source.add(Transpose((0, 2, 1, 3)), source.add(Reshape((0, 0, heads, -1)), x))


def _repeated(source: OnnxNode, x: Value, q: Value) -> Value:
    """Return keys or values with each head repeated for the group of the queries' heads that share it."""
    heads, wanted = x.type.shape[1], q.type.shape[1]
    if heads == wanted or isinstance(heads, str) or isinstance(wanted, str):
        return x
    require(heads > 0 and wanted % heads == 0, "the heads cannot be shared evenly", expected=wanted, got=heads)
    groups = source.add(Expand((1, 1, wanted // heads, 1, 1)), source.add(Unsqueeze((2,)), x))
    return source.add(Reshape((0, wanted, -1, int(x.type.shape[3]))), groups)


def _mask(source: OnnxNode, q: Value, k: Value) -> Value | None:
    if not source.has(3):
        return None
    mask, number = source.input(3), q.type.dtype.type
    if mask.type.element == "bool":
        mask = source.add(
            Where(), mask, source.constant(np.array(number(0))), source.constant(np.array(-number(np.inf)))
        )
    elif mask.type.element != q.type.element:
        mask = source.add(Cast(q.type.element), mask)
    given, wanted = mask.type.shape[-1], k.type.shape[2]
    if isinstance(given, int) and isinstance(wanted, int) and 1 < given < wanted:
        pads = (*(0,) * (2 * mask.type.rank - 1), wanted - given)
        mask = source.add(Pad(pads, "constant", float("-inf")), mask)
    return mask


def _causal(source: OnnxNode, q: Value, k: Value, mask: Value | None) -> Value:
    """Return the mask with -inf where a key is later than a query, which follows the keys of the past."""
    lengths = q.type.shape[2], k.type.shape[2], source.input(4).type.shape[2]
    if any(isinstance(length, str) for length in lengths):
        raise source.unsupported("a causal mask with a past requires fixed lengths", "import_model(..., dims={...})")
    rows, columns, past = map(int, lengths)
    source.spend(rows * columns)
    future = source.constant(np.triu(np.full((rows, columns), -np.inf, q.type.dtype), past + 1))
    return future if mask is None else source.add(Add(), mask, future)


RULES = {"Attention": import_attention}
