"""References for P1's checks: LeNet in plain torch functions, and small ONNX graphs that students have not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mlhood.grading.checks.expect import CheckFailed

PARAMETER_COUNT = 61_706
SHAPES: dict[str, tuple[int, ...]] = {
    "conv1.weight": (6, 1, 5, 5),
    "conv1.bias": (6,),
    "conv2.weight": (16, 6, 5, 5),
    "conv2.bias": (16,),
    "fc1.weight": (120, 400),
    "fc1.bias": (120,),
    "fc2.weight": (84, 120),
    "fc2.bias": (84,),
    "fc3.weight": (10, 84),
    "fc3.bias": (10,),
}
Weights = dict[str, np.ndarray]


def random_weights(rng: np.random.Generator) -> Weights:
    """Draw LeNet's weights so that activations keep their magnitude through the layers and logits differ widely."""
    return {name: _draw(rng, shape, 1.5) for name, shape in SHAPES.items()}


def fresh_weights(rng: np.random.Generator) -> Weights:
    """Draw LeNet's weights as torch initialises them: uniform within 1 / sqrt(inputs) of each layer."""
    bounds = {name.partition(".")[0]: _fan_in(shape) ** -0.5 for name, shape in SHAPES.items() if len(shape) > 1}
    return {
        name: rng.uniform(-1, 1, shape).astype(np.float32) * np.float32(bounds[name.partition(".")[0]])
        for name, shape in SHAPES.items()
    }


def _fan_in(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[1:])) or 1


def _draw(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    scale = 0.3 if len(shape) == 1 else gain / np.sqrt(_fan_in(shape))
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def by_shape(parameters: dict[str, np.ndarray]) -> Weights:
    """Map a student's parameters to LeNet's names, whatever their own names and order: all ten shapes differ.

    Raises:
        CheckFailed: The shapes are not LeNet's.
    """
    values = {tuple(value.shape): value for value in parameters.values()}
    if len(parameters) != len(SHAPES) or set(values) != set(SHAPES.values()):
        raise CheckFailed("the forward pass cannot be checked: the layers are not LeNet's yet", hint="solve P1.1 first")
    return {name: np.asarray(values[shape], np.float32) for name, shape in SHAPES.items()}


@dataclass(frozen=True)
class Variant:
    """LeNet with a common mistake in it: its activations by layer, the pooling, and the function of the logits."""

    activations: tuple[str, ...] = ("relu",) * 4
    pool: str = "max_pool2d"
    output: str = "identity"


def lenet(weights: Weights, images: np.ndarray, variant: Variant = Variant()) -> np.ndarray:
    """Return LeNet's logits [N,10] for images [N,1,32,32], float32."""
    return _lenet(weights, images, variant)[0]


def features(weights: Weights, images: np.ndarray) -> np.ndarray:
    """Return the features that LeNet's last layer reads: [N,84], float32."""
    return _lenet(weights, images, Variant())[1]


def _lenet(weights: Weights, images: np.ndarray, variant: Variant) -> tuple[np.ndarray, np.ndarray]:
    import torch
    from torch.nn import functional

    w = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in weights.items()}
    act = [_activation(name) for name in variant.activations]
    pool = getattr(functional, variant.pool)
    x = torch.from_numpy(images)
    x = pool(act[0](functional.conv2d(x, w["conv1.weight"], w["conv1.bias"])), 2)
    x = pool(act[1](functional.conv2d(x, w["conv2.weight"], w["conv2.bias"])), 2).flatten(1)
    x = act[2](functional.linear(x, w["fc1.weight"], w["fc1.bias"]))
    x = act[3](functional.linear(x, w["fc2.weight"], w["fc2.bias"]))
    logits = functional.linear(x, w["fc3.weight"], w["fc3.bias"])
    return _activation(variant.output)(logits).numpy(), x.numpy()


def _activation(name: str) -> Callable[[Any], Any]:
    import torch

    functions = {
        "identity": lambda x: x,
        "softmax": lambda x: torch.softmax(x, 1),
        "log_softmax": lambda x: torch.log_softmax(x, 1),
    }
    return functions.get(name) or getattr(torch, name)


_LAYERS = ("the first convolution", "the second convolution", "the first dense layer", "the second dense layer")


def _without_relu(index: int) -> Variant:
    return Variant(tuple("identity" if i == index else "relu" for i in range(4)))


COMMON_MISTAKES: tuple[tuple[Variant, str], ...] = (
    (Variant(output="softmax"), "the model ends in a softmax: return the raw logits, since the loss applies it"),
    (Variant(output="log_softmax"), "the model ends in a log_softmax: return the raw logits"),
    (Variant(output="relu"), "the last layer is followed by a ReLU: logits may be negative"),
    (Variant(pool="avg_pool2d"), "it uses average pooling: this LeNet takes the maximum of each 2x2 window"),
    (Variant(("tanh",) * 4), "it uses tanh, as in 1998: the activation here is ReLU"),
    (Variant(("sigmoid",) * 4), "it uses the sigmoid: the activation here is ReLU"),
    (Variant(("identity",) * 4), "there is no ReLU at all"),
    *((_without_relu(i), f"the ReLU after {layer} is missing") for i, layer in enumerate(_LAYERS)),
)


def diagnose(weights: Weights, images: np.ndarray, got: np.ndarray) -> str | None:
    """Return the common mistake that produces these logits, or None."""
    matches = (
        mistake
        for variant, mistake in COMMON_MISTAKES
        if np.allclose(got, lenet(weights, images, variant), rtol=1e-4, atol=1e-5)
    )
    return next(matches, None)


def lenet_onnx(weights: Weights, *, image: str = "image", logits: str = "logits") -> bytes:
    """Build LeNet as an ONNX file with a dynamic batch by hand, independently of any exporter."""
    steps = [
        _step("Conv", "conv1", weights),
        ("Relu", [], {}),
        ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        _step("Conv", "conv2", weights),
        ("Relu", [], {}),
        ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Flatten", [], {"axis": 1}),
        _step("Gemm", "fc1", weights, transB=1),
        ("Relu", [], {}),
        _step("Gemm", "fc2", weights, transB=1),
        ("Relu", [], {}),
        _step("Gemm", "fc3", weights, transB=1),
    ]
    return chain(steps, weights, (image, ["batch", 1, 32, 32]), (logits, ["batch", 10]))


def mlp_onnx(rng: np.random.Generator, hidden: int) -> tuple[bytes, Weights]:
    """Build an MLP 784 -> hidden -> ReLU -> 10; return it with its weights."""
    shapes = {"a.weight": (hidden, 784), "a.bias": (hidden,), "b.weight": (10, hidden), "b.bias": (10,)}
    weights = {name: _draw(rng, shape, 1.0) for name, shape in shapes.items()}
    steps = [_step("Gemm", "a", weights, transB=1), ("Relu", [], {}), _step("Gemm", "b", weights, transB=1)]
    return chain(steps, weights, ("pixels", ["batch", 784]), ("scores", ["batch", 10])), weights


@dataclass(frozen=True)
class CnnFacts:
    """Facts of a graph: operators and output shapes (without the batch) in order, and totals by operator."""

    operators: tuple[str, ...]
    outputs: tuple[tuple[int, ...], ...]
    parameters: dict[str, int]
    macs: dict[str, int]


def small_cnn_onnx(rng: np.random.Generator) -> tuple[bytes, CnnFacts]:
    """Build a convolutional network of random widths; return it with the facts of its graph."""
    first, second, dense = (int(n) for n in rng.integers(3, 12, size=3))
    kernel = int(rng.choice([3, 5]))
    out = 16 - kernel + 1
    shapes = {
        "a.weight": (first, 3, kernel, kernel),
        "a.bias": (first,),
        "b.weight": (second, first, 1, 1),
        "b.bias": (second,),
        "c.weight": (dense, second * out * out),
        "c.bias": (dense,),
    }
    weights = {name: _draw(rng, shape, 1.0) for name, shape in shapes.items()}
    weights["d.shape"] = np.array([0, -1], np.int64)  # an initializer, but not a parameter of the network
    steps = [
        _step("Conv", "a", weights),
        ("Relu", [], {}),
        _step("Conv", "b", weights),
        _step("Reshape", "d", weights),
        _step("Gemm", "c", weights, transB=1),
    ]
    size = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    convolutions = sum(size[name] for name in ("a.weight", "a.bias", "b.weight", "b.bias"))
    facts = CnnFacts(
        operators=("Conv", "Relu", "Conv", "Reshape", "Gemm"),
        outputs=((first, out, out), (first, out, out), (second, out, out), (second * out * out,), (dense,)),
        parameters={"Conv": convolutions, "Gemm": size["c.weight"] + dense, "Relu": 0, "Reshape": 0},
        macs={"Conv": out * out * (size["a.weight"] + size["b.weight"]), "Gemm": size["c.weight"], "Relu": 0},
    )
    return chain(steps, weights, ("pixels", ["batch", 3, 16, 16]), ("scores", ["batch", dense])), facts


Step = tuple[str, list[str], dict[str, Any]]
Port = tuple[str, Sequence[int | str]]


def _step(op: str, layer: str, weights: Weights, **attributes: Any) -> Step:
    return op, [name for name in weights if name.startswith(f"{layer}.")], attributes


def chain(steps: Sequence[Step], weights: Weights, source: Port, sink: Port) -> bytes:
    """Build an ONNX model as a chain of nodes; each reads the previous value and its own weights."""
    nodes, value = [], source[0]
    for index, (op, weight_names, attributes) in enumerate(steps):
        result = sink[0] if index == len(steps) - 1 else f"value_{index}"
        nodes.append(helper.make_node(op, [value, *weight_names], [result], name=f"{op.lower()}_{index}", **attributes))
        value = result
    graph = helper.make_graph(
        nodes,
        "checked",
        [helper.make_tensor_value_info(source[0], TensorProto.FLOAT, list(source[1]))],
        [helper.make_tensor_value_info(sink[0], TensorProto.FLOAT, list(sink[1]))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()
