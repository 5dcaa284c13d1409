"""What P1's checks compare with: LeNet and small networks that students have not seen, as ONNX models.

The compiler's interpreter runs them. They are built by hand, independently of any exporter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.checks.expect import CheckFailed

# where P1 is graded: the course's own networks, exports and tables, which would solve its tasks, are not there
TORCH_AND_ONNX = Libraries(
    packages=("numpy", "torch", "onnx", "onnxscript", "onnxruntime", "pandas"),
    modules=("mlhood.exchange",),
    without=(
        "mlhood.exchange.export.export",
        *(f"mlhood.exchange.{name}" for name in ("lenet", "render", "view")),
    ),
)
RUNTIME = "com.microsoft"  # the domain of ONNX Runtime's own operators
FEW = 256  # images at a time: the windows of a convolution are 25 times as large as the images

Weights = dict[str, np.ndarray]
Step = tuple[str, str, dict[str, Any]]  # an operator, the layer whose weights it reads, and its attributes
Port = tuple[str, Sequence[int | str]]  # name and shape of an input or output


def shapes(classes: int = 10, channels: int = 1, maps: int = 6) -> dict[str, tuple[int, ...]]:
    """Return the shapes of LeNet's parameters, by default those of the course."""
    layers = {"conv1": (maps, channels, 5, 5), "conv2": (16, maps, 5, 5)}
    layers |= {"fc1": (120, 400), "fc2": (84, 120), "fc3": (classes, 84)}
    return {f"{name}.{part}": s for name, shape in layers.items() for part, s in _parts(shape).items()}


def _parts(shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {"weight": shape, "bias": shape[:1]}


SHAPES = shapes()


def random_weights(rng: np.random.Generator) -> Weights:
    """Draw LeNet's weights so that activations keep their magnitude through the layers and logits differ widely."""
    return {name: _draw(rng, shape, 1.5) for name, shape in SHAPES.items()}


def fresh_weights(rng: np.random.Generator) -> Weights:
    """Draw LeNet's weights as torch initialises them: uniform within 1 / sqrt(inputs) of each layer."""
    inputs = {name: np.prod(SHAPES[f"{name.partition('.')[0]}.weight"][1:]) for name in SHAPES}
    return {name: (rng.uniform(-1, 1, shape) * inputs[name] ** -0.5).astype("f4") for name, shape in SHAPES.items()}


def _draw(rng: np.random.Generator, shape: tuple[int, ...], gain: float = 1.0) -> np.ndarray:
    scale = 0.3 if len(shape) == 1 else gain / np.sqrt(np.prod(shape[1:]))
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def _drawn_layer(rng: np.random.Generator, name: str, *shape: int) -> Weights:
    return {f"{name}.{part}": _draw(rng, s) for part, s in _parts(shape).items()}


def by_shape(parameters: dict[str, np.ndarray]) -> Weights:
    """Map a student's parameters to LeNet's names, whatever their own names and order: all ten shapes differ.

    Raises:
        CheckFailed: The shapes are not LeNet's.
    """
    values = {tuple(value.shape): value for value in parameters.values()}
    if len(parameters) != len(SHAPES) or set(values) != set(SHAPES.values()):
        raise CheckFailed("the forward pass cannot be checked: the layers are not LeNet's yet", hint="solve P1.1 first")
    return {name: np.asarray(values[shape], np.float32) for name, shape in SHAPES.items()}


def lenet(weights: Weights, images: np.ndarray, **options: Any) -> np.ndarray:
    """Return LeNet's logits [N,10] for images [N,1,32,32], float32; options are those of `lenet_onnx`."""
    model = lenet_onnx(weights, **options)
    return np.concatenate([result(model, images[i : i + FEW]) for i in range(0, len(images), FEW)])


def result(model: bytes, x: np.ndarray) -> np.ndarray:
    """Return what a model of one input and one output computes."""
    from mlhood.compiler.backends.interpreter import run
    from mlhood.compiler.onnx.importer import import_model

    graph = import_model(model)
    (y,) = run(graph, **dict.fromkeys(graph.placeholders, x)).values()
    return y


def loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean cross entropy of logits [N,10] and labels [N]."""
    from scipy.special import log_softmax

    return float(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean())


COMMON_MISTAKES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"output": "Softmax"}, "the model ends in a softmax: return the raw logits, since the loss applies it"),
    ({"output": "LogSoftmax"}, "the model ends in a log_softmax: return the raw logits"),
    ({"output": "Relu"}, "the last layer is followed by a ReLU: logits may be negative"),
    ({"pool": "AveragePool"}, "it uses average pooling: this LeNet takes the maximum of each 2x2 window"),
    ({"activation": "Tanh"}, "it uses tanh, as in 1998: the activation here is ReLU"),
    ({"activation": "Identity"}, "there is no ReLU at all"),
)


def diagnose(weights: Weights, images: np.ndarray, got: np.ndarray) -> str | None:
    """Return the common mistake that produces these logits, or None."""
    for options, mistake in COMMON_MISTAKES:
        if np.allclose(got, lenet(weights, images, **options), rtol=1e-4, atol=1e-5):
            return mistake
    return None


def lenet_onnx(
    weights: Weights,
    *,
    fused: bool = False,
    activation: str = "Relu",
    pool: str = "MaxPool",
    output: str = "",
    removed: int = 0,
) -> bytes:
    """Build LeNet as an ONNX file with a dynamic batch.

    Args:
        weights: By name.
        fused: Whether the first dense layer and its ReLU are one operator, which only ONNX Runtime knows.
        activation: The operator after the first four layers.
        pool: The operator that pools.
        output: An operator after the last layer, if any.
        removed: How many of the last nodes are left out: up to 3.
    """
    active = (activation, "", {})
    pooling = (pool, "", {"kernel_shape": [2, 2], "strides": [2, 2]})
    dense = [("Gemm", f"fc{i}", {"transB": 1}) for i in (1, 2, 3)]
    one = ("FusedGemm", "fc1", {"transB": 1, "activation": "Relu", "domain": RUNTIME})
    steps = [("Conv", "conv1", {}), active, pooling, ("Conv", "conv2", {}), active, pooling, ("Flatten", "", {})]
    steps += [*([one] if fused else [dense[0], active]), dense[1], active, dense[2]]
    steps += [(output, "", {})] if output else []
    features = (10, 84, 84, 120)[removed]
    return chain(
        steps[: len(steps) - removed], weights, ("image", ["batch", 1, 32, 32]), ("logits", ["batch", features])
    )


def mlp_onnx(rng: np.random.Generator, *hidden: int, removed: int = 1) -> tuple[bytes, bytes]:
    """Build an MLP 784 -> hidden -> ReLU -> ... -> 10, and the same without so many of its last nodes.

    In front of these nodes, the first has one that transposes the weight of the last node.
    """
    weights: Weights = {}
    steps: list[Step] = []
    for layer, (inputs, outputs) in zip("abcd", pairwise([784, *hidden, 10]), strict=False):
        weights |= _drawn_layer(rng, layer, outputs, inputs)
        steps += [("Gemm", layer, {"transB": 1}), ("Relu", "", {})]
    steps.pop()
    pixels, scores = ("pixels", ["batch", 784]), ("scores", ["batch", "features"])
    model = onnx.load_model_from_string(chain(steps, weights, pixels, ("scores", ["batch", 10])))
    nodes = list(model.graph.node)
    transpose = helper.make_node("Transpose", [nodes[-1].input[1]], ["transposed"], perm=[1, 0])
    nodes[-1].input[1] = "transposed"
    del nodes[-1].attribute[:], model.graph.node[:]
    model.graph.node.extend([*nodes[:-removed], transpose, *nodes[-removed:]])
    return model.SerializeToString(), chain(steps[:-removed], weights, pixels, scores)


def small_cnn_onnx(rng: np.random.Generator) -> bytes:
    """Build a convolutional network of random widths on oblong images.

    Its kernels are oblong, its convolutions have a stride, groups and padding, one has no bias, and a Split has two
    outputs of different shapes, of which the second is not used. A Gemm transposes its weight and another does not.
    Weights also belong to operators without a count of multiply-accumulates: PRelu and MatMul.
    """
    first, second, units = 2 * int(rng.integers(2, 6)), *(int(n) for n in rng.integers(3, 12, size=2))
    (kh, kw), kept, features = rng.permutation([3, 5]).tolist(), 1 + first // 2, int(rng.integers(12, 16))
    height, width = (int(n) for n in rng.permutation([14, 17, 20])[:2])
    pixels = ((height - kh) // 2 + 1) * ((width - kw) // 2 + 1)
    weights = _drawn_layer(rng, "a", first, 3, kh, kw) | _drawn_layer(rng, "b", second, kept, 1, 1)
    weights |= _drawn_layer(rng, "c", features, second * pixels)
    weights |= {"e.weight": _draw(rng, (2 * features, units)), "e.bias": _draw(rng, (units,))}
    others = {"g": (first, 1, 3, 3), "p": (second, 1, 1), "m": (features, 2 * features)}
    weights |= {f"{name}.weight": _draw(rng, shape) for name, shape in others.items()}
    weights["d.shape"] = np.array([0, -1], np.int64)  # initializers, but not parameters of the network
    weights["s.sizes"] = np.array([kept, first - kept], np.int64)
    steps: list[Step] = [
        ("Conv", "a", {"strides": [2, 2]}),
        ("Relu", "", {}),
        *[("Conv", "g", {"group": first, "pads": [1, 1, 1, 1]})] * 2,  # depthwise, no bias; both read the same weight
        ("Split", "s", {"axis": 1}),
        ("Conv", "b", {}),
        ("PRelu", "p", {}),
        ("Reshape", "d", {}),
        ("Gemm", "c", {"transB": 1}),
        ("MatMul", "m", {}),
        ("Gemm", "e", {}),
    ]
    return chain(steps, weights, ("pixels", ["batch", 3, height, width]), ("scores", ["batch", units]))


def chain(steps: Sequence[Step], weights: Weights, source: Port, sink: Port) -> bytes:
    """Build an ONNX model as a chain of nodes; each reads the previous value and the weights of its layer."""
    nodes, value, stored = [], source[0], {}
    for index, (op, layer, attributes) in enumerate(steps):
        name = sink[0] if index == len(steps) - 1 else f"value_{index}"
        own = {key: weight for key, weight in weights.items() if key.partition(".")[0] == layer}
        outputs = [name, f"{name}_rest"] if op == "Split" else [name]
        nodes.append(helper.make_node(op, [value, *own], outputs, name=f"{op.lower()}_{index}", **attributes))
        value, stored = name, stored | own
    first, last = (helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims)) for name, dims in (source, sink))
    tensors = [numpy_helper.from_array(weight, name) for name, weight in stored.items()]
    graph = helper.make_graph(nodes, "checked", [first], [last], tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(RUNTIME, 1)][: 1 + any(node.domain for node in nodes)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()
