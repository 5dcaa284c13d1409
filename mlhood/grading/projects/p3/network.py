"""A ResNet-18 of the grader's own, with random weights: the model that the claims of P3.6 are measured again with."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CLASSES = 10


def resnet18(rng: np.random.Generator, stages: list[int], size: int) -> bytes:
    """Return ResNet-18 as ONNX, from `image` [1, 3, size, size] to `logits` [1, 10].

    Args:
        rng: Draws the weights, which keep the magnitude of what they are multiplied with.
        stages: Channels of the four stages.
        size: Of the image.
    """
    nodes, weights = [], []

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        result = f"y{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [result], name=f"{kind}{len(nodes)}", **attributes))
        return result

    def weight(*shape: int) -> str:
        values = rng.standard_normal(shape, np.float32) * np.float32((2 / np.prod(shape[1:])) ** 0.5)
        weights.append(numpy_helper.from_array(values, f"w{len(weights)}"))
        return weights[-1].name

    def conv(x: str, channels: int, filters: int, kernel: int, stride: int) -> str:
        w = weight(filters, channels, kernel, kernel)
        return node("Conv", x, w, strides=[stride] * 2, pads=[kernel // 2] * 4, kernel_shape=[kernel] * 2)

    channels = stages[0]
    y = node("Relu", conv("image", 3, channels, 7, 2))
    y = node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, filters in enumerate(stages):
        for stride in (2 if stage else 1, 1):
            inner = node("Relu", conv(y, channels, filters, 3, stride))
            inner = conv(inner, filters, filters, 3, 1)
            shortcut = y if stride == 1 else conv(y, channels, filters, 1, stride)
            y, channels = node("Relu", node("Add", inner, shortcut)), filters
    y = node("Flatten", node("GlobalAveragePool", y))
    nodes.append(helper.make_node("Gemm", [y, weight(CLASSES, channels)], ["logits"], name="classifier", transB=1))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])
    result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])
    graph = helper.make_graph(nodes, "resnet18", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
