"""ONNX operators without a counterpart in the HIR: their import rules express them with other operators."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate, pairwise

import numpy as np

from mlhood.compiler.hir.lengths import (
    Dim,
    Length,
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
from mlhood.compiler.operators.arithmetic import Add, Div, Equal, Less, Mul, Or, Sub, Where
from mlhood.compiler.operators.cast import Cast, Identity, array_of
from mlhood.compiler.operators.creation import Range, Shape
from mlhood.compiler.operators.dynamic import is_dynamic
from mlhood.compiler.operators.indexing import ScatterElements
from mlhood.compiler.operators.movement import Expand, Gather, Slice, Transpose
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.reduction import ReduceMean
from mlhood.compiler.operators.shape import Reshape, Unsqueeze
from mlhood.compiler.operators.windows import Window


def import_depth_to_space(source: OnnxNode) -> Value:
    """DepthToSpace: channels as blocks of pixels; ordered by pixel, then channel (DCR), or by channel first (CRD)."""
    x, block, by_pixel = _blocks(source)
    n, channels, height, width = map(Length.of, x.type.shape)
    depth = _divided(channels, block**2, "number of channels")
    axes = (block, block, depth) if by_pixel else (depth, block, block)
    split = source.add(Reshape((n, *axes, height, width)), x)
    moved = source.add(Transpose((0, 3, 4, 1, 5, 2) if by_pixel else (0, 1, 4, 2, 5, 3)), split)
    return source.add(Reshape((n, depth, product((height, block)), product((width, block)))), moved)


def import_space_to_depth(source: OnnxNode) -> Value:
    """SpaceToDepth: blocks of pixels as channels, in the orders of DepthToSpace."""
    x, block, by_pixel = _blocks(source)
    n, channels, height, width = map(Length.of, x.type.shape)
    rows, columns = _divided(height, block, "height"), _divided(width, block, "width")
    split = source.add(Reshape((n, channels, rows, block, columns, block)), x)
    moved = source.add(Transpose((0, 3, 5, 1, 2, 4) if by_pixel else (0, 1, 3, 5, 2, 4)), split)
    return source.add(Reshape((n, product((channels, block**2)), rows, columns)), moved)


def _blocks(source: OnnxNode) -> tuple[Value, int, bool]:
    """Return the image, the side of a block, and whether channels are ordered by pixel first."""
    x, block, mode = source.input(0), source.attribute("blocksize", 0), source.attribute("mode", "DCR")
    require(x.type.rank == 4, "the input must have four axes", expected="[n, c, h, w]", got=list(x.type.shape))
    require(mode in ("DCR", "CRD"), "unknown mode", expected="DCR or CRD", got=mode)
    require(block > 0, "the size of a block must be positive", got=block)
    return x, block, mode == "DCR"


def _divided(size: Dim, divisor: int, what: str) -> Dim:
    fits = isinstance(size, str) or size % divisor == 0
    require(fits, f"the {what} is no multiple of the block's", expected=f"a multiple of {divisor}", got=size)
    return divide_dim(size, divisor)


def import_size(source: OnnxNode) -> Value:
    """Size: the product of the lengths of the axes."""
    shape = source.add(Shape(), source.input(0))
    return source.call("ReduceProd", shape, source.constant(np.array([0])), keepdims=0)


def import_max_unpool(source: OnnxNode) -> Value:
    """MaxUnpool: the elements of x at their flat indices in zeros of the pooled tensor's shape, padded to another."""
    x, kernel = source.input(0), source.attribute("kernel_shape", ())
    strides, pads = source.attribute("strides", (1,) * len(kernel)), source.attribute("pads", (0, 0) * len(kernel))
    window = Window(kernel, strides, pads, (1,) * len(kernel))
    window.check(x.type)
    axes = zip(x.type.shape[2:], kernel, strides, window.ends, strict=True)
    spatial = [add_dims(product((size, stride)), k - stride - sum(ends)) for size, k, stride, ends in axes]
    shape = tuple(map(Length.of, (*x.type.shape[:2], *spatial)))
    zeros = source.add(Expand((product(shape),)), source.constant(np.zeros((), x.type.dtype)))
    flat = (source.add(Reshape((-1,)), value) for value in (source.input(1), x))
    y = source.add(Reshape(shape), source.add(ScatterElements(), zeros, *flat))
    if not source.has(2):
        return y
    wanted = source.integers(2)
    require(len(wanted) == len(shape), "the shape needs a length for each axis", got=wanted)
    return source.add(Pad((*(0,) * len(shape), *map(subtract_dims, wanted, shape))), y)


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
    one = np.array(1, bool if source.opset >= 10 else x.type.dtype)
    return y, source.add(Expand(tuple(map(Length.of, x.type.shape))), source.constant(one))


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


def import_is_nan(source: OnnxNode) -> Value:
    """IsNaN: whether x differs from itself."""
    x = source.input(0)
    require(x.type.is_float, "the operator requires floating-point elements", got=x.type.element)
    return source.call("Not", source.add(Equal(), x, x))


def import_is_inf(source: OnnxNode) -> Value:
    """IsInf: whether x is one of the infinities that count, of which there may be none."""
    x = source.input(0)
    require(x.type.is_float, "the operator requires floating-point elements", got=x.type.element)
    signs = (sign for name, sign in (("negative", -1), ("positive", 1)) if source.attribute(f"detect_{name}", 1))
    ends = [source.constant(np.array(sign * np.inf, x.type.dtype)) for sign in signs]
    results = [source.add(Equal(), x, end) for end in ends] or [source.add(Less(), x, x)]
    return reduce(lambda a, b: source.add(Or(), a, b), results)


def import_lp_normalization(source: OnnxNode) -> Value:
    """LpNormalization: x divided by its norm along an axis; 0 where the norm is 0."""
    x, p = source.input(0), source.attribute("p", 2)
    require(p in (1, 2), "the norm is not supported", expected="1 or 2", got=p)
    norm = source.call(f"ReduceL{p}", x, source.constant(np.array([source.attribute("axis", -1)])))
    zero = source.constant(np.zeros((), x.type.dtype))
    return source.add(Where(), source.add(Equal(), norm, zero), zero, source.add(Div(), x, norm))


def import_rms_normalization(source: OnnxNode) -> Value:
    """RMSNormalization: x / sqrt(mean(x^2) + epsilon) scale, the mean over `axis` and all after it, in float32."""
    x, scale = source.input(0), source.input(1)
    rank, axis = x.type.rank, normalize_axis(source.attribute("axis", -1), x.type.rank)
    narrow = x.type.element == "float16" and source.attribute("stash_type", 1) == 1
    wide = source.add(Cast("float32"), x) if narrow else x
    squares = source.add(ReduceMean(tuple(range(axis, rank))), source.add(Mul(), wide, wide))
    epsilon = source.constant(np.array(source.attribute("epsilon", 1e-5), wide.type.dtype))
    root = source.call("Sqrt", source.add(Add(), squares, epsilon))
    normal = source.add(Div(), wide, root)
    normal = source.add(Cast(scale.type.element), normal) if normal.type.element != scale.type.element else normal
    return source.add(Mul(), normal, scale)


def import_one_hot(source: OnnxNode) -> Value:
    """OneHot: values[1] at the index along a new axis, values[0] elsewhere; negative indices count from the end."""
    indices = source.add(Cast("int64"), source.input(0))
    axis = normalize_axis(source.attribute("axis", -1), indices.type.rank + 1)
    depth = source.add(Reshape(()), source.add(Cast("int64"), source.input(1)))
    zero, one = (source.constant(np.array(number)) for number in (0, 1))
    (length,) = (int(source.static(1).item()),) if source.is_constant(1) else source.dims(1)
    require(isinstance(length, str) or length >= 0, "the depth cannot be negative", got=length)
    places = source.add(Range(length), zero, depth, one)
    places = source.add(Reshape((-1, *(1,) * (indices.type.rank - axis))), places)
    from_front = source.add(Where(), source.add(Less(), indices, zero), source.add(Add(), indices, depth), indices)
    hit = source.add(Equal(), source.add(Unsqueeze((axis,)), from_front), places)
    off, on = (source.add(Gather(0), source.input(2), number) for number in (zero, one))
    return source.add(Where(), hit, on, off)


RULES = {
    "Constant": import_constant,
    "ConstantOfShape": import_constant_of_shape,
    "DepthToSpace": import_depth_to_space,
    "Dropout": import_dropout,
    "IsInf": import_is_inf,
    "IsNaN": import_is_nan,
    "LpNormalization": import_lp_normalization,
    "MaxUnpool": import_max_unpool,
    "Mean": import_mean,
    "MeanVarianceNormalization": import_mean_variance_normalization,
    "OneHot": import_one_hot,
    "RMSNormalization": import_rms_normalization,
    "Size": import_size,
    "SpaceToDepth": import_space_to_depth,
    "Split": import_split,
}
