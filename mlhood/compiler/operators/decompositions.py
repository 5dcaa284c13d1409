"""ONNX operators without a counterpart in the HIR: their import rules express them with other operators."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Div
from mlhood.compiler.operators.cast import Identity, array_of
from mlhood.compiler.operators.creation import Splat
from mlhood.compiler.operators.movement import Slice
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.open_lengths import Fill, find, is_open


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
    """ConstantOfShape: a constant, or equal elements in a shape with open axes."""
    tensor = source.attribute("value", None)
    fill = np.zeros(1, np.float32) if tensor is None else array_of(tensor)
    require(fill.size == 1, "the attribute `value` must be one number", got=list(fill.shape))
    shape = source.dims(0)
    if not is_open(shape):
        return source.constant(source.filled(source.integers(0), fill.reshape(())))
    names, inputs = find(source, shape)
    return source.add(Fill(shape, names, fill.reshape(-1)[0].item(), fill.dtype.name), *inputs)


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
    sizes = source.attribute_or_input("split", 1) or _even_parts(source, x, axis)
    parts, length = len(source.outputs), x.type.shape[axis]
    valid = len(sizes) == parts and min(sizes) >= 0
    require(valid, "split must have a size for each output", expected=parts, got=list(sizes[:20]))
    complete = isinstance(length, str) or sum(sizes) == length
    require(complete, "the sizes do not add up to the length of the axis", expected=length, got=list(sizes[:20]))
    ends = np.cumsum(sizes).tolist()
    starts = [0, *ends[:-1]]
    return [source.add(Slice((start,), (end,), (axis,), (1,)), x) for start, end in zip(starts, ends, strict=True)]


def _even_parts(source: OnnxNode, x: Value, axis: int) -> list[int]:
    length, parts = x.type.shape[axis], source.attribute("num_outputs", len(source.outputs))
    outputs = len(source.outputs)
    require(parts == outputs, "num_outputs differs from the number of outputs", expected=outputs, got=parts)
    if isinstance(length, str):
        raise source.unsupported(f"split requires the length of axis {length!r}", "import_model(..., dims={...})")
    size = -(-length // parts)
    return [min(size, max(length - i * size, 0)) for i in range(parts)]


def import_mean(source: OnnxNode) -> Value:
    """Mean: the sum of all inputs divided by their number."""
    total = Add.from_onnx(source)
    count = source.constant(np.array(len(source.inputs), total.type.dtype))
    return source.add(Div(), total, count)


RULES = {
    "Constant": import_constant,
    "ConstantOfShape": import_constant_of_shape,
    "Dropout": import_dropout,
    "Mean": import_mean,
    "Split": import_split,
}
