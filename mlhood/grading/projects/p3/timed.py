"""The claims of P3.5's and P3.6's tables as calls that can be timed from outside: loops against im2col and BLAS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timed_images import Placed, course_on_images, timed_on_images
from mlhood.grading.checks.timing_verdict import CourseVersion, TimedCall, TimingClaim
from mlhood.grading.projects.p3.probes import bound, compiled_model
from mlhood.grading.rpc.codec import Remote
from mlhood.grading.rpc.server import write_fresh
from mlhood.jaxlab.operators import no_jax
from mlhood.kernels.layers import Layer
from mlhood.kernels.tables import RESNET18
from mlhood.measure.ratio import Ratio

CALLS = 4  # of a convolution: by BLAS they take several times as long as the round trip
MOST = 8.0
"""How many times as long `conv_direct` may take as the course's compiled loops. Measured: compiled loops in the worst
order with tests for the padding inside take 1.5 times as long, `einsum` on all windows 1.2, a product per pixel 2.7."""
PROBES = "mlhood.grading.projects.p3.probes:"
PIXELS = 112 / 56  # of the model's image, for one of C1's
CLASSES = 10
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
Functions = dict[str, Remote]  # the notebook's convolutions by loops, and by im2col and BLAS


def convolutions(functions: Functions, claimed: dict[str, Ratio]) -> list[TimingClaim]:
    """Return one timed comparison for each of these rows.

    Args:
        functions: The convolutions by name, the slower one first.
        claimed: Ratio no-BLAS / BLAS in the table, by row.
    """
    claims = []
    for row, ratio in claimed.items():
        slow, fast = (timed_convolution(name, function, RESNET18[row]) for name, function in functions.items())
        claims.append(TimingClaim(f"{row}, no-BLAS over BLAS", slow, fast, ratio, definition(RESNET18[row])))
    return claims


def timed_convolution(name: str, function: Remote, layer: Layer) -> TimedCall:
    """Return a timed call of a convolution of a layer's sizes."""
    steps = [layer.stride, layer.padding]

    def place(submission: Submission) -> Placed:
        x, w, bias = draw(layer, submission.rng)
        convolution = submission.call(PROBES + "bound", function, w, bias, *steps)
        right = lambda image, channels: no_jax.conv2d(image, w[channels], bias[channels], *steps)  # noqa: E731
        return Placed(convolution, x, len(w), right)

    return timed_on_images(place, f"what `{name}` returns while it is timed", calls=CALLS)


def definition(layer: Layer) -> CourseVersion:
    """Return the course's convolution by compiled loops, which is what P3.2 asks for."""

    def make() -> tuple[Callable[..., Any], np.ndarray]:
        x, w, bias = draw(layer, np.random.default_rng(0))
        return bound(by_definition, w, bias, layer.stride, layer.padding), x

    return course_on_images("no-BLAS convolution", make, MOST)


def by_definition(*arguments: Any) -> np.ndarray:
    """Convolve by compiled loops, on one thread."""
    from mlhood.kernels.conv import naive

    return naive(*arguments, threads=1)


def draw(layer: Layer, rng: np.random.Generator) -> Arrays:
    """Draw an image, weights and biases for a layer."""
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    w = 0.05 * rng.standard_normal((layer.filters, layer.channels, layer.kernel, layer.kernel), np.float32)
    return x, w, rng.standard_normal(layer.filters, np.float32)


def models(submission: Submission, functions: Functions, claimed: dict[str, Ratio]) -> list[TimingClaim]:
    """Return one timed comparison of a model for each of these rows: a ResNet-18 with random weights."""
    layers = list(RESNET18.values())
    size = round(PIXELS * layers[0].size)
    data = resnet18(submission.rng, [layer.filters for layer in layers], size)
    path, image = write_fresh(submission.scratch / "resnet18.onnx", data), submission.normal(1, 3, size, size)
    right, claims = compiled_model(str(path), [], by_definition), []
    for row, ratio in claimed.items():
        chosen = layers if row == "all" else [RESNET18[row]]
        shapes = [[layer.filters, layer.filters, layer.kernel, layer.kernel] for layer in chosen]
        slow, fast = (timed_model(right, path, image, shapes, function) for function in functions.values())
        course = model_by_definition(path, image, shapes)
        claims.append(TimingClaim(f"the model, {row}, no-BLAS over BLAS", slow, fast, ratio, course))
    return claims


def timed_model(
    right: Callable[[np.ndarray], np.ndarray], path: Path, image: np.ndarray, shapes: list[list[int]], function: Remote
) -> TimedCall:
    """Return a timed call of the model, whose convolutions with weights of these shapes the function computes."""

    def place(submission: Submission) -> Placed:
        model = submission.call(PROBES + "compiled_model", str(path), shapes, function)
        return Placed(model, image, CLASSES, lambda image, channels: right(image)[:, channels])

    # twenty layers of float32
    return timed_on_images(place, "what the model returns while it is timed", atol=1e-2)


def model_by_definition(path: Path, image: np.ndarray, shapes: list[list[int]]) -> CourseVersion:
    """Return the model with the course's compiled loops, which are what P3.2 asks for."""
    return course_on_images("no-BLAS model", lambda: (compiled_model(str(path), shapes, by_definition), image), MOST)


def resnet18(rng: np.random.Generator, stages: list[int], size: int) -> bytes:
    """Return ResNet-18 with random weights as ONNX, from `image` [1, 3, size, size] to `logits` [1, 10].

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
