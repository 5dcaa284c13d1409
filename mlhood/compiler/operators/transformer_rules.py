"""ONNX operators of transformers without a counterpart in the HIR: their import rules express them with others."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Sub
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.compiler.operators.movement import Concat, Gather, Slice
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.reduction import ReduceMean
from mlhood.compiler.operators.shape import Reshape, Unsqueeze

_FUNCTIONS = {function.__name__: function for function in FUNCTIONS}


def _swish(source: OnnxNode, x: Value) -> Value:
    alpha, scaled = source.attribute("alpha", 1.0), x
    if alpha != 1:
        scaled = source.add(Mul(), x, source.constant(np.array(alpha, x.type.dtype)))
    return source.add(Mul(), x, source.add(_FUNCTIONS["Sigmoid"](), scaled))


def import_swish(source: OnnxNode) -> Value:
    """Swish: x sigmoid(alpha x)."""
    return _swish(source, source.input(0))


def import_swiglu(source: OnnxNode) -> Value:
    """SwiGLU: the Swish of the first input times the second."""
    return source.add(Mul(), _swish(source, source.input(0)), source.input(1))


def import_mish(source: OnnxNode) -> Value:
    """Mish: x tanh(softplus(x))."""
    x = source.input(0)
    return source.add(Mul(), x, source.add(_FUNCTIONS["Tanh"](), source.add(_FUNCTIONS["Softplus"](), x)))


def import_rms_normalization(source: OnnxNode) -> Value:
    """RMSNormalization: x / sqrt(mean(x^2) + epsilon) scale, the mean over `axis` and all after it, in float32."""
    x, scale = source.input(0), source.input(1)
    rank, axis = x.type.rank, normalize_axis(source.attribute("axis", -1), x.type.rank)
    narrow = x.type.element == "float16" and source.attribute("stash_type", 1) == 1
    wide = source.add(Cast("float32"), x) if narrow else x
    squares = source.add(ReduceMean(tuple(range(axis, rank))), source.add(Mul(), wide, wide))
    epsilon = source.constant(np.array(source.attribute("epsilon", 1e-5), wide.type.dtype))
    root = source.add(_FUNCTIONS["Sqrt"](), source.add(Add(), squares, epsilon))
    normal = source.add(Div(), wide, root)
    normal = source.add(Cast(scale.type.element), normal) if normal.type.element != scale.type.element else normal
    return source.add(Mul(), normal, scale)


def import_rotary_embedding(source: OnnxNode) -> Value:
    """RotaryEmbedding (arXiv 2104.09864): pairs of features are rotated by an angle that grows with the position.

    Inputs: x [B, heads, S, D] or [B, S, heads D], the angles' cosines and sines [B, S, R/2], or [positions, R/2] with
    positions [B, S]. Only the first R features of each head are rotated.
    """
    x = source.input(0)
    is_packed = x.type.rank == 3
    heads = source.attribute("num_heads", 0)
    require(x.type.rank in (3, 4), "the input must have 3 or 4 axes", got=list(x.type.shape))
    require(not is_packed or heads > 0, "num_heads is required for an input of 3 axes", got=heads)
    split = source.add(Reshape((0, 0, heads, -1)), x) if is_packed else x
    size = split.type.shape[3]
    rotated = source.attribute("rotary_embedding_dim", 0) or size
    if isinstance(rotated, str) or isinstance(size, str):
        raise source.unsupported(
            f"the rotation requires the size {size!r} of the heads", "import_model(..., dims={...})"
        )
    valid = 0 < rotated <= size and rotated % 2 == 0
    require(valid, "the number of rotated features must be even", expected=f"at most {size}", got=rotated)
    caches = [source.input(1), source.input(2)]
    if source.has(3):
        caches = [source.add(Gather(0), cache, source.input(3)) for cache in caches]
    cos, sin = (source.add(Unsqueeze((2 if is_packed else 1,)), cache) for cache in caches)
    if source.attribute("interleaved", 0):
        first, second = (_features(source, split, start, rotated, 2) for start in (0, 1))
    else:
        first, second = (_features(source, split, start, start + rotated // 2) for start in (0, rotated // 2))
    real = source.add(Sub(), source.add(Mul(), cos, first), source.add(Mul(), sin, second))
    imaginary = source.add(Add(), source.add(Mul(), sin, first), source.add(Mul(), cos, second))
    if source.attribute("interleaved", 0):
        pairs = source.add(Concat(4), *(source.add(Unsqueeze((4,)), part) for part in (real, imaginary)))
        y = source.add(Reshape((0, 0, 0, -1)), pairs)
    else:
        y = source.add(Concat(3), real, imaginary)
    if rotated < size:
        y = source.add(Concat(3), y, _features(source, split, rotated, size))
    return source.add(Reshape((0, 0, -1)), y) if is_packed else y


def _features(source: OnnxNode, x: Value, start: int, stop: int, step: int = 1) -> Value:
    if (start, stop, step) == (0, x.type.shape[3], 1):
        return x
    return source.add(Slice((start,), (stop,), (3,), (step,)), x)


RULES = {
    "Mish": import_mish,
    "RMSNormalization": import_rms_normalization,
    "RotaryEmbedding": import_rotary_embedding,
    "SimplifiedLayerNormalization": import_rms_normalization,  # ONNX Runtime writes it, without a domain
    "SwiGLU": import_swiglu,
    "Swish": import_swish,
}
