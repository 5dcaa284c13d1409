"""A ResNet-18 of the grader's own, with random weights: the model that the claims of P3.6 are measured again with."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CLASSES = 10


class _Builder:
    """Collects the nodes and weights of a network of convolutions."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list = []
        self.weights: list = []

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its result."""
        result = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [result], name=f"{kind}{len(self.nodes)}", **attributes))
        return result

    def weight(self, *shape: int) -> str:
        """Add a random weight that keeps the magnitude of what it is multiplied with, and return its name."""
        values = self.rng.standard_normal(shape, np.float32) * np.float32((2 / np.prod(shape[1:])) ** 0.5)
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(self, x: str, channels: int, filters: int, kernel: int, stride: int) -> str:
        """Add a convolution with padding that keeps the size, up to the stride."""
        w = self.weight(filters, channels, kernel, kernel)
        return self.node("Conv", x, w, strides=[stride] * 2, pads=[kernel // 2] * 4, kernel_shape=[kernel] * 2)

    def block(self, x: str, channels: int, filters: int, stride: int) -> str:
        """Add a residual block: two convolutions, and a third beside them where the size changes."""
        y = self.node("Relu", self.conv(x, channels, filters, 3, stride))
        y = self.conv(y, filters, filters, 3, 1)
        shortcut = x if stride == 1 else self.conv(x, channels, filters, 1, stride)
        return self.node("Relu", self.node("Add", y, shortcut))


def resnet18(rng: np.random.Generator, stages: list[int], size: int) -> bytes:
    """Return ResNet-18 as ONNX, from `image` [1, 3, size, size] to `logits` [1, 10].

    Args:
        rng: Draws the weights.
        stages: Channels of the four stages.
        size: Of the image.
    """
    builder = _Builder(rng)
    y = builder.node("Relu", builder.conv("image", 3, stages[0], 7, 2))
    y = builder.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = stages[0]
    for stage, filters in enumerate(stages):
        for block in range(2):
            y = builder.block(y, channels, filters, 2 if stage and not block else 1)
            channels = filters
    y = builder.node("Flatten", builder.node("GlobalAveragePool", y))
    w = builder.weight(CLASSES, channels)
    builder.nodes.append(helper.make_node("Gemm", [y, w], ["logits"], name="classifier", transB=1))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])
    result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])
    graph = helper.make_graph(builder.nodes, "resnet18", [image], [result], builder.weights)
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
