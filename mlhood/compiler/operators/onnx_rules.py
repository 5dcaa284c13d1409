"""Import rules of operators that ONNX's reference implements in some of their forms only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlhood.compiler.hir.lengths import add_dims, divide_dim
from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Mul, Sub
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.creation import Shape
from mlhood.compiler.operators.movement import Gather
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_operator import add_onnx_operator
from mlhood.compiler.operators.progression import Range
from mlhood.compiler.operators.shape import Reshape, Unsqueeze


def import_det(source: OnnxNode) -> Value:
    """Det; of float16 in float32."""
    x = source.input(0)
    narrow = x.type.element == "float16"
    (y,) = add_onnx_operator(source, [source.add(Cast("float32"), x) if narrow else x], {})
    return source.add(Cast("float16"), y) if narrow else y


def import_unique(source: OnnxNode) -> Sequence[Value]:
    """Unique; ONNX's reference is right for a list, for sorted elements, and with all outputs."""
    x, options = source.input(0), dict(source.attributes)
    if "axis" not in options:
        x, options["axis"] = source.add(Reshape((-1,)), x), 0
    if x.type.rank != 1 and not options.get("sorted", 1):
        raise source.unsupported("the slices of a tensor are not supported in order of appearance", "sort them")
    return add_onnx_operator(source, [x], options, 4)


def import_dft(source: OnnxNode) -> Sequence[Value]:
    """DFT, as in opset 20: the axis is an input."""
    options = dict(source.attributes)
    axis = source.optional(2) or source.constant(np.array(options.pop("axis", 1 if source.opset < 20 else -2)))
    return add_onnx_operator(source, [source.input(0), source.optional(1), axis], options, opset=20)


def import_stft(source: OnnxNode) -> Value:
    """STFT: the DFT of each frame, which may be multiplied by a window."""
    x, window, onesided = source.input(0), source.optional(2), source.attribute("onesided", 1)
    require(x.type.rank == 3, "the signal must have three axes", got=list(x.type.shape))
    require(source.has(3) or window is not None, "the node needs a window or the length of a frame")
    step = source.integers(1)[0]
    length = source.integers(3)[0] if source.has(3) else source.input(2).type.shape[0]
    if isinstance(length, str):
        raise source.unsupported("the length of a frame is not known", "give the length of the window")
    require(step >= 1 and length >= 1, "step and length must be positive", got=[step, length])
    zero, one, last, stride = (source.constant(np.array(number)) for number in (0, 1, length - 1, step))
    end = source.add(Sub(), source.add(Gather(0), source.add(Shape(), x), one), last)
    count = add_dims(divide_dim(add_dims(x.type.shape[1], -length), step), 1)
    starts = source.add(Unsqueeze((1,)), source.add(Range(count), zero, end, stride))
    frames = source.add(Gather(1), x, source.add(Add(), starts, source.constant(np.arange(length))))
    if window is not None:
        frames = source.add(Mul(), frames, source.add(Reshape((-1, 1)), window))
    return source.call("DFT", frames, None, source.constant(np.array(2)), onesided=onesided)


RULES = {"DFT": import_dft, "Det": import_det, "STFT": import_stft, "Unique": import_unique}
