"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mlhood.compiler.hir.operator import Operator, common_element, namespace, require, require_unquantized
from mlhood.compiler.hir.types import TensorType, broadcast
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Where
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.matrix import matmul_shape
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


@dataclass(frozen=True)
class Attention(Operator):
    """y = softmax(scale q k^T + mask) v (arXiv 1706.03762, equation 1).

    Inputs: q [..., L, D], k [..., S, D], v [..., S, E], whose leading axes are broadcast, and mask, which is added and
    is broadcast to [..., L, S], or none. Output: y [..., L, E]; as in ONNX, a row is 0 where all of the mask's is -inf.

    Attributes:
        scale: Factor of the products of queries and keys.
        causal: Whether query i attends to keys 0 to i only.
    """

    scale: float
    causal: bool = False

    family = "product"

    def infer(self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None) -> TensorType:
        require_unquantized(q, k, v, mask)
        element = common_element(q, k, v, mask)
        require(q.is_float, "attention requires floating-point elements", got=element)
        ranks = [x.rank for x in (q, k, v)]
        require(min(ranks) >= 2, "queries, keys and values are matrices, or batches of them", got=f"ranks {ranks}")
        scores = matmul_shape(q.shape, (*k.shape[:-2], k.shape[-1], k.shape[-2]))
        if mask is not None:
            broadcasted, what = broadcast(scores, mask.shape), "the mask cannot be broadcast to queries by keys"
            axes = list(zip(scores[-2:], broadcasted[-2:], strict=True))
            fits = all(isinstance(axis, str) or axis == wide for axis, wide in axes)
            require(fits, what, expected=list(scores[-2:]), got=list(mask.shape))
            scores = broadcasted
        return TensorType(element, matmul_shape(scores, v.shape))

    def evaluate(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        xp = namespace(q)
        scores = (q * q.dtype.type(self.scale)) @ k.swapaxes(-1, -2)
        if self.causal:
            future = xp.triu(xp.full(scores.shape[-2:], -np.inf, q.dtype), 1)
            mask = future if mask is None else mask + future
        scores = scores if mask is None else scores + mask
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        powers = xp.exp(scores - xp.where(top == -np.inf, 0, top).astype(q.dtype))
        total = powers.sum(axis=-1, keepdims=True)
        weights = powers / xp.where(total == 0, 1, total)
        if mask is not None:
            weights = xp.where(_masked_rows(mask), q.dtype.type(0), weights)
        return weights @ v

    def workspace(self, *types: TensorType | None) -> int:
        q, k = types[:2]
        if q is None or k is None:
            return 0
        return math.prod(map(int, matmul_shape(q.shape, (*k.shape[:-2], k.shape[-1], k.shape[-2]))))

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        depth, keys = inputs[0][-1], inputs[1][-2]
        return math.prod(output[:-1]) * keys * (depth + output[-1])


def _masked_rows(mask: np.ndarray) -> np.ndarray:
    return namespace(mask).isneginf(mask.max(axis=-1, keepdims=True, initial=-np.inf))


OPERATORS = (Attention,)
