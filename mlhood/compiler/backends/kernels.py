"""Execute a graph with a selectable kernel for its convolutions, and all other nodes like the interpreter.

This shows how much a faster convolution speeds up a whole network (Amdahl, Validity of the single processor approach to
achieving large scale computing capabilities, AFIPS 1967).
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import numpy as np

from mlhood.compiler.backends.interpreter import MAX_ARRAY_BYTES, Implementation, Interpreter, with_location
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import Shape
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import Activation, apply_activation
from mlhood.compiler.operators.convolution import Conv
from mlhood.errors import CompilerError
from mlhood.kernels.conv import CONV2D, RELU, Clip, Conv2d
from mlhood.kernels.direct import Direct
from mlhood.kernels.geometry import geometry

Array = np.ndarray

# Number of input shapes for which a convolution caches its packed weights.
_CACHED_SHAPES = 4


class Kernels(Interpreter):
    """A graph, prepared for execution with a kernel for each convolution of float32 [N, C, H, W].

    Args:
        graph: A graph; it is verified, and must not be modified afterwards.
        conv2d: A key of `mlhood.kernels.CONV2D`, or a function (x, w, bias, stride, padding) -> y: x float32
            [N, C, H, W] contiguous, w float32 [F, C, KH, KW], bias float32 [F] (zeros if the graph has none), all
            read-only, stride and padding ints that apply to all directions; y float32 [N, F, OH, OW]. Its exceptions
            are propagated. The residual addition and the activation are applied to its result.
        limit: Maximum size in bytes of an array; see `Interpreter`.

    Raises:
        CompilerError: The graph is invalid; the kernel is unknown; or the given function cannot express a convolution
            of the graph, one with dilation, groups, or different values per direction.
    """

    def __init__(self, graph: Graph, conv2d: str | Conv2d = "direct", limit: int = MAX_ARRAY_BYTES) -> None:
        if not callable(conv2d) and conv2d not in CONV2D:
            expected = f"{', '.join(CONV2D)}, or a function"
            raise CompilerError("unknown convolution kernel", expected=expected, got=repr(conv2d))
        self.conv2d = conv2d
        super().__init__(graph, limit)

    def implementation(self, node: Node) -> Implementation:
        """Return the kernel for a convolution that kernels support, the operator's semantics for all other nodes."""
        operator, y = node.operator, node.outputs[0].type
        if not isinstance(operator, Conv) or y.element != "float32" or y.rank != 4:
            return super().implementation(node)
        if callable(self.conv2d):
            return _CustomConv(node, operator, self.conv2d)
        has_constant_weights = all(value is None or isinstance(value, Constant) for value in node.inputs[1:3])
        if self.conv2d == "direct" and has_constant_weights:
            return with_location(node, _PackedConv(node, operator))
        return with_location(node, _KernelConv(operator, CONV2D[self.conv2d]))


class _KernelConv:
    """A kernel with an operator's attributes; an activation that kernels cannot fuse is applied afterwards."""

    def __init__(self, operator: Conv, conv2d: Conv2d) -> None:
        self.conv2d = conv2d
        window = {"stride": operator.strides, "padding": operator.pads, "dilation": operator.dilations}
        self.arguments: dict[str, Any] = {**window, "groups": operator.group}  # pads: top, left, bottom, right in both
        self.clip, self.remaining = _split(operator.activation)

    def __call__(self, x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> tuple[Array, ...]:
        y = self.conv2d(x, w, bias, **self.arguments, residual=z, clip=self.clip)
        return (apply_activation(y, self.remaining),)


class _PackedConv:
    """The direct convolution with constant weights, packed once per shape of the input."""

    def __init__(self, node: Node, operator: Conv) -> None:
        self.fallback = _KernelConv(operator, CONV2D["direct"])
        x, w, bias = cast("tuple[Value, Constant, Constant | None]", (*node.inputs[:3], None)[:3])
        self.w = np.ascontiguousarray(w.data)
        self.bias = None if bias is None else np.ascontiguousarray(bias.data)
        self.plan = functools.lru_cache(maxsize=_CACHED_SHAPES)(self._plan)
        shape = _likely_shape(x.type.shape)
        if shape and self.w.size:
            self.plan(shape)

    def __call__(self, x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> tuple[Array, ...]:
        if not x.size or not w.size:
            return self.fallback(x, w, bias, z)
        y = self.plan(x.shape)(np.ascontiguousarray(x), None if z is None else np.ascontiguousarray(z))
        return (apply_activation(y, self.fallback.remaining),)

    def _plan(self, shape: tuple[int, ...]) -> Direct:
        g = geometry(shape, self.w.shape, **self.fallback.arguments)
        steps = () if self.fallback.clip is None else (("Clip", self.fallback.clip, (0,)),)
        return Direct(g, self.w, self.bias, epilogue=steps)


class _CustomConv:
    """A user-defined function, for convolutions with a uniform stride and padding."""

    def __init__(self, node: Node, operator: Conv, conv2d: Conv2d) -> None:
        self.node, self.operator, self.conv2d = node, operator, conv2d
        self.stride, self.padding = _uniform_window(node, operator)

    def __call__(self, x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> tuple[Array, ...]:
        bias = np.zeros(len(w), np.float32) if bias is None else bias
        y = self.conv2d(np.ascontiguousarray(x), w, bias, self.stride, self.padding)
        self._check(y, geometry(x.shape, w.shape, self.stride, self.padding).out_shape)
        return (apply_activation(y if z is None else y + z, self.operator.activation),)

    def _check(self, y: object, shape: tuple[int, ...]) -> None:
        if isinstance(y, np.ndarray) and y.dtype == np.float32 and y.shape == shape:
            return
        got = f"{y.dtype.name}{list(y.shape)}" if isinstance(y, np.ndarray) else type(y).__name__
        raise CompilerError(
            "the function's result does not have the type of the convolution's output",
            where=self.node.where,
            expected=f"a NumPy array, float32{list(shape)}, with stride {self.stride} and padding {self.padding}",
            got=got,
        )


def _split(activation: Activation) -> tuple[Clip | None, Activation]:
    """Split an activation into the limits that kernels clip to and the activation to apply afterwards."""
    match activation:
        case ("Relu",):
            return RELU, ()
        case ("Clip", low, high):
            return (-math.inf if low is None else float(low), math.inf if high is None else float(high)), ()
    return None, activation


def _likely_shape(shape: Shape) -> tuple[int, ...] | None:
    """Return the most likely shape: a dynamic batch is taken as 1; None if another axis is dynamic."""
    batch, *image = shape
    sizes = [size for size in (1 if isinstance(batch, str) else batch, *image) if isinstance(size, int) and size]
    return tuple(sizes) if len(sizes) == len(shape) else None


def _uniform_window(node: Node, operator: Conv) -> tuple[int, int]:
    """Return stride and padding as one int each."""
    is_uniform = len(set(operator.strides)) == len(set(operator.pads)) == 1
    if is_uniform and set(operator.dilations) == {1} and operator.group == 1:
        return operator.strides[0], operator.pads[0]
    raise CompilerError(
        "a function (x, w, bias, stride, padding) cannot express this convolution",
        where=node.where,
        expected="one stride and one padding for all directions, dilation 1, one group",
        got=f"strides {operator.strides}, pads {operator.pads}, dilations {operator.dilations}, group {operator.group}",
        todo=f"use a kernel that supports it: {', '.join(CONV2D)}",
    )
