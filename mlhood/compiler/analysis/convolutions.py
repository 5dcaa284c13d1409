"""The convolutions of a graph: their shapes, and their inputs when the graph runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.convolution import Conv
from mlhood.errors import CompilerError, nearest

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ConvolutionShape:
    """The shapes and attributes of a convolution.

    Args:
        name: The node's name.
        x: Shape [N, C, H, W] of the input.
        w: Shape [F, C / groups, KH, KW] of the weights.
        y: Shape [N, F, OH, OW] of the output.
        stride: Vertical and horizontal.
        padding: Top, left, bottom, right.
        groups: Number of groups of channels and filters.
    """

    name: str
    x: Shape
    w: Shape
    y: Shape
    stride: Shape
    padding: Shape
    groups: int

    def __str__(self) -> str:
        kernel, stride = "x".join(map(str, self.w[2:])), f"/{self.stride[0]}" if self.stride[0] > 1 else ""
        return f"{self.x[1]}→{self.w[0]} {kernel}{stride} @{self.x[2]}"


@dataclass(frozen=True, eq=False)
class CapturedLayer:
    """A convolution of a graph with its data, as arguments of the course's kernels.

    Args:
        name: The node's name.
        x: float32 [N, C, H, W]: its input when the graph runs.
        w: float32 [F, C, KH, KW].
        bias: float32 [F], zeros if the graph has none.
        stride: In both directions.
        padding: On all sides.
        macs: Multiply-accumulates, padding included.
    """

    name: str
    x: np.ndarray
    w: np.ndarray
    bias: np.ndarray
    stride: int
    padding: int
    macs: int

    @property
    def arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
        """The arguments of a kernel: x, w, bias, stride, padding."""
        return self.x, self.w, self.bias, self.stride, self.padding


def convolutions(graph: Graph) -> list[ConvolutionShape]:
    """Return all two-dimensional convolutions in execution order.

    Raises:
        CompilerError: A shape is dynamic, for example that of the batch.
    """
    return [_shapes(node) for node in graph.topological() if _is_convolution(node)]


def capture(graph: Graph, names: Iterable[str], inputs: Mapping[str, Any]) -> dict[str, CapturedLayer]:
    """Run a graph, and return some of its convolutions by name, with their inputs.

    Args:
        graph: The graph.
        names: Names of convolutions with one stride, the same padding on all sides, no dilation and one group.
        inputs: An array for each input of the graph, by name.

    Raises:
        CompilerError: A name is unknown, its convolution is unsupported, or the inputs are invalid.
    """
    nodes = {node.name: node for node in graph.topological() if _is_convolution(node)}
    names = list(names)
    for name in names:
        if name not in nodes:
            raise CompilerError(
                "unknown convolution", expected=", ".join(nodes), got=repr(name), todo=nearest(name, nodes)
            )
    arrays: dict[Value | None, np.ndarray] = {
        value: inputs[name] for name, value in graph.placeholders.items() if name in inputs
    }
    observed = {nodes[name].inputs[0] for name in names}

    def observe(value: Value, array: np.ndarray) -> None:
        if value in observed:
            arrays[value] = array

    Interpreter(graph).run(inputs, observe)
    return {name: _layer(nodes[name], arrays) for name in names}


def _is_convolution(node: Node) -> bool:
    return isinstance(node.operator, Conv) and node.outputs[0].type.rank == 4


def _shapes(node: Node) -> ConvolutionShape:
    operator = node.operator
    shapes = [value.type.shape for value in (*node.inputs[:2], node.outputs[0]) if value is not None]
    if not isinstance(operator, Conv) or any(isinstance(size, str) for shape in shapes for size in shape):
        raise CompilerError(
            "the convolution's shapes are dynamic",
            where=node.where,
            expected="static shapes",
            got=shapes,
            todo="export with dynamic_batch=False",
        )
    x, w, y = (tuple(int(size) for size in shape) for shape in shapes)
    return ConvolutionShape(node.name, x, w, y, operator.strides, operator.pads, operator.group)


def _layer(node: Node, arrays: Mapping[Value | None, np.ndarray]) -> CapturedLayer:
    operator, (x, w) = node.operator, node.inputs[:2]
    if not isinstance(operator, Conv) or not isinstance(w, Constant):
        raise CompilerError("the convolution's weights are not constant", where=node.where)
    is_uniform = len({*operator.strides}) == len({*operator.pads}) == 1
    if not is_uniform or {*operator.dilations} != {1} or operator.group > 1:
        raise CompilerError(
            "the kernels do not support this convolution",
            where=node.where,
            expected="one stride, one padding, no dilation, one group",
            got=operator,
        )
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    bias_array = bias.data if isinstance(bias, Constant) else np.zeros(len(w.data), np.float32)
    array = np.ascontiguousarray(arrays[x])
    height, width = node.outputs[0].type.shape[2:]
    macs = len(array) * int(height) * int(width) * w.data.size
    return CapturedLayer(node.name, array, w.data, bias_array, operator.strides[0], operator.pads[0], macs)
