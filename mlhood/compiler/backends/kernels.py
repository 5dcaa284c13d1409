"""Runs a graph with a kernel of choice for its convolutions, and all else as the interpreter does.

So a whole network tells what a faster convolution is worth to it (Amdahl, Validity of the single processor approach to
achieving large scale computing capabilities, AFIPS 1967).
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import numpy as np

from mlhood.compiler.backends.interpreter import LARGEST_ARRAY, Implementation, Interpreter, located_at
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import Shape
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import Activation, activate
from mlhood.compiler.operators.convolution import Conv
from mlhood.errors import CompilerError
from mlhood.kernels.conv import CONV2D, RELU, Clip, Conv2d
from mlhood.kernels.direct import Direct
from mlhood.kernels.geometry import geometry

Array = np.ndarray

# For how many shapes of its input a convolution stays ready; each holds the weights in an order of its own.
_SHAPES = 4


class Kernels(Interpreter):
    """A graph, made ready to run with a kernel for each convolution of float32 [N, C, H, W].

    Args:
        graph: A graph; it is verified first, and must not be changed afterwards.
        conv2d: A rung of `mlhood.kernels.CONV2D`, or one's own function (x, w, bias, stride, padding) -> y: x float32
            [N, C, H, W] without gaps, w float32 [F, C, KH, KW], bias float32 [F] (zeros where the graph has none), none
            of them to be written to, stride and padding plain ints that hold for all directions; y float32
            [N, F, OH, OW]. What it raises comes through as it is. The residual branch and the activation follow it.
        limit: Bytes that one array may take; see `Interpreter`.

    Raises:
        CompilerError: The graph breaks a rule; there is no such rung; or one's own function is to do a convolution
            that it has no arguments for: with dilation, groups, or numbers that differ by direction.
    """

    def __init__(self, graph: Graph, conv2d: str | Conv2d = "direct", limit: int = LARGEST_ARRAY) -> None:
        if not callable(conv2d) and conv2d not in CONV2D:
            expected = f"{', '.join(CONV2D)}, or a function"
            raise CompilerError("there is no such convolution", expected=expected, got=repr(conv2d))
        self.conv2d = conv2d
        super().__init__(graph, limit)

    def implementation(self, node: Node) -> Implementation:
        """Return the kernel for a convolution that kernels can do, the operator's own semantics for all else."""
        operator, y = node.operator, node.outputs[0].type
        if not isinstance(operator, Conv) or y.element != "float32" or y.rank != 4:
            return super().implementation(node)
        if callable(self.conv2d):
            return _Own(node, operator, self.conv2d)
        known = all(one is None or isinstance(one, Constant) for one in node.inputs[1:3])
        if self.conv2d == "direct" and known:
            return located_at(node, _Packed(node, operator))
        return located_at(node, _Rung(operator, CONV2D[self.conv2d]))


class _Rung:
    """A rung of the ladder with an operator's attributes; the activation follows where no kernel takes it in."""

    def __init__(self, operator: Conv, conv2d: Conv2d) -> None:
        self.conv2d = conv2d
        self.arguments = _arguments(operator)
        self.clip, self.rest = _split(operator.activation)

    def __call__(self, x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> tuple[Array, ...]:
        y = self.conv2d(x, w, bias, **self.arguments, residual=z, clip=self.clip)
        return (activate(y, self.rest),)


class _Packed:
    """The direct convolution with constant weights, packed once for each shape of the input."""

    def __init__(self, node: Node, operator: Conv) -> None:
        self.rung = _Rung(operator, CONV2D["direct"])
        x, w, bias = cast("tuple[Value, Constant, Constant | None]", (*node.inputs[:3], None)[:3])
        self.w = np.ascontiguousarray(w.data)
        self.bias = None if bias is None else np.ascontiguousarray(bias.data)
        self.plan = functools.lru_cache(maxsize=_SHAPES)(self._plan)
        likely = _likely(x.type.shape)
        if likely and self.w.size:
            self.plan(likely)

    def __call__(self, x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> tuple[Array, ...]:
        if not x.size or not w.size:
            return self.rung(x, w, bias, z)
        y = self.plan(x.shape)(np.ascontiguousarray(x), None if z is None else np.ascontiguousarray(z))
        return (activate(y, self.rung.rest),)

    def _plan(self, shape: tuple[int, ...]) -> Direct:
        g = geometry(shape, self.w.shape, **self.rung.arguments)
        return Direct(g, self.w, self.bias, self.rung.clip)


class _Own:
    """Somebody's function for convolutions that need nothing but a stride and a padding."""

    def __init__(self, node: Node, operator: Conv, conv2d: Conv2d) -> None:
        self.node, self.operator, self.conv2d = node, operator, conv2d
        self.stride, self.padding = _plain_numbers(node, operator)

    def __call__(self, x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> tuple[Array, ...]:
        bias = np.zeros(len(w), np.float32) if bias is None else bias
        y = self.conv2d(np.ascontiguousarray(x), w, bias, self.stride, self.padding)
        self._check(y, geometry(x.shape, w.shape, self.stride, self.padding).out_shape)
        return (activate(y if z is None else y + z, self.operator.activation),)

    def _check(self, y: object, shape: tuple[int, ...]) -> None:
        if isinstance(y, np.ndarray) and y.dtype == np.float32 and y.shape == shape:
            return
        got = f"{y.dtype.name}{list(y.shape)}" if isinstance(y, np.ndarray) else type(y).__name__
        raise CompilerError(
            "the function returned something other than the convolution's result",
            where=self.node.where,
            expected=f"a NumPy array, float32{list(shape)}, with stride {self.stride} and padding {self.padding}",
            got=got,
        )


def _arguments(operator: Conv) -> dict[str, Any]:
    """Return the attributes as kernels name them; pads are top, left, bottom, right for both."""
    return {
        "stride": operator.strides,
        "padding": operator.pads,
        "dilation": operator.dilations,
        "groups": operator.group,
    }


def _split(activation: Activation) -> tuple[Clip | None, Activation]:
    """Return an activation as limits that kernels keep to, and as what has to follow them."""
    match activation:
        case ("Relu",):
            return RELU, ()
        case ("Clip", low, high):
            return (-math.inf if low is None else float(low), math.inf if high is None else float(high)), ()
    return None, activation


def _likely(shape: Shape) -> tuple[int, ...] | None:
    """Return the shape that an input most likely has: an open batch is one image; None if another axis is open."""
    batch, *image = shape
    sizes = [size for size in (1 if isinstance(batch, str) else batch, *image) if isinstance(size, int) and size]
    return tuple(sizes) if len(sizes) == len(shape) else None


def _plain_numbers(node: Node, operator: Conv) -> tuple[int, int]:
    """Return stride and padding as one number each."""
    numbers = {"strides": set(operator.strides), "pads": set(operator.pads), "dilations": set(operator.dilations)}
    if all(len(found) == 1 for found in numbers.values()) and numbers["dilations"] == {1} and operator.group == 1:
        return operator.strides[0], operator.pads[0]
    raise CompilerError(
        "a function (x, w, bias, stride, padding) cannot do this convolution",
        where=node.where,
        expected="one stride and one padding for all directions, dilation 1, one group",
        got=f"strides {operator.strides}, pads {operator.pads}, dilations {operator.dilations}, group {operator.group}",
        todo=f"take a kernel that does it: {', '.join(CONV2D)}",
    )
