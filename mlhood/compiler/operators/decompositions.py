"""ONNX operators without a counterpart in the HIR: their import rules express them with other operators."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from mlhood.compiler.hir.lengths import (
    Dim,
    add_dims,
    divide_dim,
    maximum,
    may_be_equal,
    minimum,
    product,
    subtract_dims,
)
from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Sub
from mlhood.compiler.operators.cast import Cast, Identity, array_of
from mlhood.compiler.operators.creation import Splat
from mlhood.compiler.operators.dynamic import is_dynamic
from mlhood.compiler.operators.movement import Expand, Slice
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.reduction import ReduceMean


def import_constant(source: OnnxNode) -> Value:
    """Constant: a tensor or numbers in an attribute of the node."""
    attribute = source.attribute
    tensor = attribute("value", None)
    if tensor is not None:
        return source.constant(array_of(tensor))
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        for key in (name, f"{name}s"):
            if attribute(key, None) is not None:
                return source.constant(np.array(attribute(key, None), dtype))
    raise source.unsupported("only dense numeric tensors are supported as constants")


def import_constant_of_shape(source: OnnxNode) -> Value:
    """ConstantOfShape: a constant, or equal elements in a shape with dynamic axes."""
    tensor = source.attribute("value", None)
    fill = np.zeros(1, np.float32) if tensor is None else array_of(tensor)
    require(fill.size == 1, "the attribute `value` must be one number", got=list(fill.shape))
    shape = source.dims(0)
    if not is_dynamic(shape):
        return source.constant(source.filled(source.integers(0), fill.reshape(())))
    return source.add(Expand(shape), source.constant(fill.reshape(())))


def import_dropout(source: OnnxNode) -> tuple[Value, ...]:
    """Dropout: the identity outside of training; its mask, if the model uses it, is all true."""
    if source.has(2) and not (source.is_constant(2) and not source.static(2).any()):
        raise source.unsupported("dropping elements at random is training", "export in evaluation mode")
    x = source.input(0)
    y = source.add(Identity(), x)
    if not source.uses_output(1):
        return (y,)
    mask = Splat(True, "bool") if source.opset >= 10 else Splat(1, x.type.element)
    return y, source.add(mask, x)


def import_split(source: OnnxNode) -> list[Value]:
    """Split: one Slice for each part."""
    x = source.input(0)
    axis = normalize_axis(source.attribute("axis", 0), x.type.rank)
    sizes = source.dims(1) if source.has(1) else source.attribute("split", ()) or _even_parts(source, x, axis)
    parts, length = len(source.outputs), x.type.shape[axis]
    valid = len(sizes) == parts and all(isinstance(size, str) or size >= 0 for size in sizes)
    require(valid, "split must have a size for each output", expected=parts, got=list(sizes[:20]))
    ends = list(accumulate(sizes, add_dims))
    complete = may_be_equal(length, ends[-1])
    require(complete, "the sizes do not add up to the length of the axis", expected=length, got=list(sizes[:20]))
    pairs = pairwise((0, *ends))
    return [source.add(Slice((start,), (end,), (axis,), (1,)), x) for start, end in pairs]


def _even_parts(source: OnnxNode, x: Value, axis: int) -> list[Dim]:
    length, parts = x.type.shape[axis], source.attribute("num_outputs", len(source.outputs))
    outputs = len(source.outputs)
    require(parts == outputs, "num_outputs differs from the number of outputs", expected=outputs, got=parts)
    size = divide_dim(length, parts, up=True)
    return [minimum(size, maximum(subtract_dims(length, product((i, size))), 0)) for i in range(parts)]


def import_mean(source: OnnxNode) -> Value:
    """Mean: the sum of all inputs divided by their number."""
    total = Add.from_onnx(source)
    count = source.constant(np.array(len(source.inputs), total.type.dtype))
    return source.add(Div(), total, count)


def import_mean_variance_normalization(source: OnnxNode) -> Value:
    """MeanVarianceNormalization: (x - mean) / (sqrt(variance) + 1e-9), of float16 in float32, which has 1e-9."""
    x = source.input(0)
    wide = source.add(Cast("float32"), x) if x.type.element == "float16" else x
    axes = source.attribute("axes", (0, 2, 3))
    centered = source.add(Sub(), wide, source.add(ReduceMean(axes), wide))
    variance = source.add(ReduceMean(axes), source.add(Mul(), centered, centered))
    epsilon = source.constant(np.array(1e-9, wide.type.dtype))
    y = source.add(Div(), centered, source.add(Add(), source.call("Sqrt", variance), epsilon))
    return source.add(Cast(x.type.element), y) if wide is not x else y


RULES = {
    "Constant": import_constant,
    "ConstantOfShape": import_constant_of_shape,
    "Dropout": import_dropout,
    "Mean": import_mean,
    "MeanVarianceNormalization": import_mean_variance_normalization,
    "Split": import_split,
}
