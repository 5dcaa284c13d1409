"""The convolutions of a graph: their shapes, and what they read when the graph runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.convolution import Conv
from mlhood.errors import CompilerError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """A convolution of a graph, by its shapes.

    Args:
        name: The node's.
        x: Shape [N, C, H, W] of what goes in.
        w: Shape [F, C / groups, KH, KW] of the weights.
        y: Shape [N, F, OH, OW] of what comes out.
        stride: Down and right.
        padding: Top, left, bottom, right.
        groups: Parts that channels and filters fall into.
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
class Layer:
    """A convolution of a graph with its numbers, as the course's kernels take them.

    Args:
        name: The node's.
        x: float32 [N, C, H, W]: what it reads when the graph runs.
        w: float32 [F, C, KH, KW].
        bias: float32 [F], zeros if the graph has none.
        stride: In both directions.
        padding: Zeros on each side.
        macs: Multiply-accumulates of the whole layer, padding counted like everything else.
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
        """What a kernel is called with: x, w, bias, stride, padding."""
        return self.x, self.w, self.bias, self.stride, self.padding


def convolutions(graph: Graph) -> list[Found]:
    """Return all convolutions of images in the order in which they run.

    Raises:
        CompilerError: A shape is open, for example that of the batch.
    """
    return [_found(node) for node in graph.topological() if _is_convolution(node)]


def capture(graph: Graph, names: Iterable[str], inputs: Mapping[str, Any]) -> dict[str, Layer]:
    """Run a graph, and return some of its convolutions by name, with what they read.

    Args:
        graph: The graph.
        names: Of convolutions that have one stride, the same padding on all sides, no dilation and one group.
        inputs: An array for each input of the graph, by name.

    Raises:
        CompilerError: There is no such convolution, it is of another kind, or the inputs do not fit.
    """
    nodes = {node.name: node for node in graph.topological() if _is_convolution(node)}
    names = list(names)
    for name in names:
        if name not in nodes:
            raise CompilerError("there is no such convolution", expected=", ".join(nodes), got=repr(name))
    arrays: dict[Value | None, np.ndarray] = {graph.placeholders[name]: inputs[name] for name in graph.placeholders
                                              if name in inputs}  # fmt: skip
    wanted = {nodes[name].inputs[0] for name in names}

    def keep(value: Value, array: np.ndarray) -> None:
        if value in wanted:
            arrays[value] = array

    Interpreter(graph).run(inputs, keep)
    return {name: _layer(nodes[name], arrays) for name in names}


def _is_convolution(node: Node) -> bool:
    return isinstance(node.operator, Conv) and node.outputs[0].type.rank == 4


def _found(node: Node) -> Found:
    operator = node.operator
    shapes = [value.type.shape for value in (*node.inputs[:2], node.outputs[0]) if value is not None]
    if not isinstance(operator, Conv) or any(isinstance(size, str) for shape in shapes for size in shape):
        raise CompilerError("the convolution's shapes are open", where=node.where, expected="numbers", got=shapes,
                            todo="export with dynamic_batch=False")  # fmt: skip
    x, w, y = (tuple(int(size) for size in shape) for shape in shapes)
    return Found(node.name, x, w, y, operator.strides, operator.pads, operator.group)


def _layer(node: Node, arrays: Mapping[Value | None, np.ndarray]) -> Layer:
    operator, (x, w) = node.operator, node.inputs[:2]
    if not isinstance(operator, Conv) or not isinstance(w, Constant):
        raise CompilerError("the convolution's weights are no constant", where=node.where)
    unusual = len({*operator.strides}) > 1 or len({*operator.pads}) > 1 or {*operator.dilations} != {1}
    if unusual or operator.group > 1:
        raise CompilerError(
            "this convolution is of another kind",
            where=node.where,
            expected="one stride, one padding, no dilation, one group",
            got=operator,
        )
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    made = bias.data if isinstance(bias, Constant) else np.zeros(len(w.data), np.float32)
    array = np.ascontiguousarray(arrays[x])
    high, wide = node.outputs[0].type.shape[2:]
    macs = len(array) * int(high) * int(wide) * w.data.size
    return Layer(node.name, array, w.data, made, operator.strides[0], operator.pads[0], macs)
