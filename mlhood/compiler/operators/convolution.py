"""Convolution by im2col: the windows as a matrix, and one matrix product per group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import Operator, Range, common_element, require, require_unquantized
from mlhood.compiler.hir.types import Shape, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.activation import (
    Activation,
    activated_range,
    activation_to_onnx,
    apply_activation,
    check_activation,
)
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.windows import Window, read_window


@dataclass(frozen=True)
class Convolution(Operator):
    """Base of convolutions of reals and of integers: their windows and shapes.

    Inputs: x [N, C, spatial...], w [F, C / group, kernel...], bias [F] or none. Output: y [N, F, windows...].
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1

    family = "product"

    def window(self, weight: Shape) -> Window:
        """Return the sliding window for a weight of this shape."""
        kernel = tuple(int(size) for size in weight[2:])
        return Window(kernel, self.strides, self.pads, self.dilations)

    def shape(self, x: TensorType, w: TensorType, bias: TensorType | None = None) -> Shape:
        """Return the output's shape.

        Raises:
            CompilerError: The inputs' shapes do not match each other or the attributes.
        """
        shapes = f"{list(x.shape)} and {list(w.shape)}"
        require(x.rank == w.rank >= 3, "input and weight must have the same rank, at least 3", got=shapes)
        require(all(isinstance(size, int) for size in w.shape), "the weight's shape must be static", got=list(w.shape))
        features, depth = int(w.shape[0]), int(w.shape[1])
        window = self.window(w.shape)
        window.check(x)
        groups = f"{self.group} groups, {features} channels"
        divides = self.group >= 1 and features % self.group == 0
        require(divides, "the groups must divide the output channels", got=groups)
        matches = isinstance(x.shape[1], str) or x.shape[1] == depth * self.group
        what = "the input's channels do not match the weight"
        require(matches, what, expected=depth * self.group, got=x.shape[1])
        if bias is not None:
            what = "the bias must have one element for each output channel"
            require(bias.shape == (features,), what, expected=[features], got=list(bias.shape))
        return (x.shape[0], features, *window.output(x.shape[2:]))

    def workspace(self, *types: TensorType | None) -> int:
        x, w = types[0], types[1]
        return self.window(w.shape).workspace(x.shape) if x is not None and w is not None else 0

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(output) * math.prod(inputs[1][1:])

    def write_conv(self, writer: OnnxWriter, inputs: list[str], activation: Activation, name: str) -> str:
        """Export x, w, bias or none, z or none: as Conv, then Add and the activation where there are any."""
        x, w, bias, z = (*inputs, "", "")[:4]
        bare = {"strides": self.strides, "pads": self.pads, "dilations": self.dilations, "group": self.group}
        y = writer.emit("Conv", x, w, *filter(None, [bias]), name=None if z or activation else name, **bare)
        if z:
            y = writer.emit("Add", y, z, name=None if activation else name)
        return activation_to_onnx(activation, writer, y, name)

    @classmethod
    def read_attributes(cls, source: OnnxNode, x: TensorType, w: TensorType) -> dict[str, Any]:
        """Return a convolution's attributes from an ONNX node.

        Raises:
            CompilerError: The weight's shape is dynamic, or contradicts the attribute `kernel_shape`.
        """
        require(all(isinstance(size, int) for size in w.shape), "the weight's shape must be static", got=list(w.shape))
        kernel = tuple(int(size) for size in w.shape[2:])
        declared = source.attribute("kernel_shape", kernel)
        require(declared == kernel, "kernel_shape differs from the weight's shape", expected=kernel, got=declared)
        window, group = read_window(source, x, kernel), source.attribute("group", 1)
        return {"strides": window.strides, "pads": window.pads, "dilations": window.dilations, "group": group}


@dataclass(frozen=True)
class Conv(Convolution):
    """y[n, f, o...] = activation(sum over c, k... of x[n, c, o stride + k dilation - pad] w[f, c, k...] + bias + z).

    Inputs: x [N, C, spatial...], w [F, C / group, kernel...], bias [F] or none, z of the output's shape or none: the
    other branch of a residual block. Output: y [N, F, windows...].

    Attributes:
        activation: The activation of the output. ONNX's Conv has none; fusion adds it, and z.
    """

    activation: Activation = ()

    onnx = ("Conv",)
    quantization_rule = "convolution"

    def infer(
        self, x: TensorType, w: TensorType, bias: TensorType | None = None, z: TensorType | None = None
    ) -> TensorType:
        require_unquantized(x, w, bias, z)
        check_activation(self.activation)
        y = TensorType(common_element(x, w, bias, z), self.shape(x, w, bias))
        require(z in (None, y), "the residual branch has another type", expected=list(y.shape), got=z and list(z.shape))
        return y

    def evaluate(
        self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, z: np.ndarray | None = None
    ) -> np.ndarray:
        y = convolve(x, w, self.window(w.shape), self.group)
        y = y if bias is None else y + bias.reshape(-1, *(1,) * (y.ndim - 2))
        return apply_activation(y if z is None else y + z, self.activation)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return self.write_conv(writer, inputs, self.activation, name)

    def value_range(self, y: TensorType, *inputs: Range) -> Range | None:
        return activated_range(self.activation, y)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x, w = source.input(0), source.input(1)
        return source.add(cls(**cls.read_attributes(source, x.type, w.type)), x, w, source.optional(2))


def convolve(x: np.ndarray, w: np.ndarray, window: Window, group: int) -> np.ndarray:
    """Return the convolution without bias.

    Args:
        x: [N, C, spatial...].
        w: [F, C / group, kernel...].
        window: Strides, pads and dilations.
        group: Number of independent convolutions of equal parts of the channels.

    Returns:
        [N, F, windows...] with the element type of x.
    """
    view = window.view(x, 0)
    batch, counts = view.shape[0], view.shape[2 : x.ndim]
    depth, features = w.shape[1], w.shape[0] // group
    parts = []
    for i in range(group):
        part = np.moveaxis(view[:, i * depth : (i + 1) * depth], 1, x.ndim - 1)  # [N, windows..., C, kernel...]
        rows = part.reshape(batch * math.prod(counts), math.prod(w.shape[1:]))
        weight = w[i * features : (i + 1) * features].reshape(features, rows.shape[1])
        parts.append((rows @ weight.T).reshape(batch, *counts, features))
    return np.ascontiguousarray(np.moveaxis(np.concatenate(parts, axis=-1), -1, 1))


OPERATORS = (Conv,)
