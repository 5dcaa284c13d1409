"""References for P1's checks: LeNet in NumPy, and small ONNX graphs that students have not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.projects.convolve import convolve

RUNTIME = "com.microsoft"  # the domain of ONNX Runtime's own operators
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


def shapes(classes: int = 10, channels: int = 1, maps: int = 6) -> dict[str, tuple[int, ...]]:
    """Return the shapes of LeNet's parameters with other numbers of classes, channels or first feature maps."""
    other = {
        "conv1.weight": (maps, channels, 5, 5),
        "conv1.bias": (maps,),
        "conv2.weight": (16, maps, 5, 5),
        "fc3.weight": (classes, 84),
        "fc3.bias": (classes,),
    }
    return SHAPES | other


Weights = dict[str, np.ndarray]
Function = Callable[[np.ndarray], np.ndarray]


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


def features(weights: Weights, images: np.ndarray, removed: int = 1) -> np.ndarray:
    """Return what the first of LeNet's 1, 2 or 3 last nodes reads: [N,84], or [N,120] for three, float32."""
    return _lenet(weights, images, Variant())[removed]


def _lenet(weights: Weights, images: np.ndarray, variant: Variant) -> tuple[np.ndarray, ...]:
    parts = [_lenet_of_few(weights, images[i : i + FEW], variant) for i in range(0, len(images), FEW)]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _lenet_of_few(w: Weights, x: np.ndarray, variant: Variant) -> tuple[np.ndarray, ...]:
    """Return the logits, and what the last node, the last but one, and the last but two read."""
    act = [ACTIVATIONS[name] for name in variant.activations]
    pool = POOLS[variant.pool]
    x = pool(act[0](convolve(x, w["conv1.weight"], w["conv1.bias"])))
    x = pool(act[1](convolve(x, w["conv2.weight"], w["conv2.bias"])))
    hidden = act[2](dense(x.reshape(len(x), -1), w["fc1.weight"], w["fc1.bias"]))
    sums = dense(hidden, w["fc2.weight"], w["fc2.bias"])
    x = act[3](sums)
    return ACTIVATIONS[variant.output](dense(x, w["fc3.weight"], w["fc3.bias"])), x, sums, hidden


def dense(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Multiply rows [N,K] by a weight [F,K] and add a bias [F]: [N,F]."""
    return x @ weight.T + bias


def max_pool(x: np.ndarray) -> np.ndarray:
    """Return the maximum of each window of 2 x 2."""
    return _windows(x).max((3, 5))


def _windows(x: np.ndarray) -> np.ndarray:
    height, width = x.shape[2] // 2, x.shape[3] // 2
    return x[:, :, : 2 * height, : 2 * width].reshape(*x.shape[:2], height, 2, width, 2)


def relu(x: np.ndarray) -> np.ndarray:
    """Return the larger of x and 0, element by element."""
    return np.maximum(x, 0)


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Return the logarithms of the softmax of each row [N,10]."""
    shifted = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean cross entropy of logits [N,10] and labels [N]."""
    return float(-log_softmax(logits)[np.arange(len(labels)), labels].mean())


FEW = 256  # images at a time: the windows of a convolution are 25 times as large as the images
POOLS: dict[str, Function] = {"max_pool2d": max_pool, "avg_pool2d": lambda x: _windows(x).mean((3, 5))}
ACTIVATIONS: dict[str, Function] = {
    "identity": lambda x: x,
    "relu": relu,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softmax": lambda x: np.exp(log_softmax(x)),
    "log_softmax": log_softmax,
}

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


def lenet_onnx(weights: Weights, *, fused: bool = False) -> bytes:
    """Build LeNet as an ONNX file with a dynamic batch by hand, independently of any exporter.

    Where the first dense layer is `fused` with its ReLU, this is an operator that only ONNX Runtime knows.
    """
    first = [_step("Gemm", "fc1", weights, transB=1), ("Relu", [], {})]
    steps = [
        _step("Conv", "conv1", weights),
        ("Relu", [], {}),
        ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        _step("Conv", "conv2", weights),
        ("Relu", [], {}),
        ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Flatten", [], {"axis": 1}),
        *([_step("FusedGemm", "fc1", weights, transB=1, activation="Relu", domain=RUNTIME)] if fused else first),
        _step("Gemm", "fc2", weights, transB=1),
        ("Relu", [], {}),
        _step("Gemm", "fc3", weights, transB=1),
    ]
    return chain(steps, weights, ("image", ["batch", 1, 32, 32]), ("logits", ["batch", 10]))


def mlp_onnx(rng: np.random.Generator, *hidden: int, last: int = 0) -> tuple[bytes, Weights]:
    """Build an MLP 784 -> hidden -> ReLU -> ... -> 10 with layers a, b, ...; return it with its weights.

    In front of so many of its `last` nodes is one that transposes the weight of the last node.
    """
    weights: Weights = {}
    steps: list[Step] = []
    for layer, (inputs, outputs) in zip("abcd", pairwise([784, *hidden, 10]), strict=False):
        shapes = {f"{layer}.weight": (outputs, inputs), f"{layer}.bias": (outputs,)}
        weights |= {name: _draw(rng, shape, 1.0) for name, shape in shapes.items()}
        steps += [_step("Gemm", layer, weights, transB=1), ("Relu", [], {})]
    steps.pop()
    data = chain(steps, weights, ("pixels", ["batch", 784]), ("scores", ["batch", 10]))
    return _with_transposed_weight(data, last) if last else data, weights


def _with_transposed_weight(data: bytes, last: int) -> bytes:
    model = onnx.load_model_from_string(data)
    nodes = list(model.graph.node)
    transpose = helper.make_node("Transpose", [nodes[-1].input[1]], ["transposed"], perm=[1, 0])
    nodes[-1].input[1] = "transposed"
    del nodes[-1].attribute[:]
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:-last], transpose, *nodes[-last:]])
    return model.SerializeToString()


def random_network_onnx(rng: np.random.Generator, image: str, scores: str) -> bytes:
    """Build a network of two convolutions and two or three dense layers, with activations drawn at random."""
    widths = [1, *(int(n) for n in rng.integers(3, 12, size=2))]
    units = [16 * widths[2], *(int(n) for n in rng.integers(10, 90, size=rng.integers(2, 4)))]
    weights: Weights = {}
    steps: list[Step] = []
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        weights |= {
            f"c{index}.weight": _draw(rng, (outputs, inputs, 3, 3), 1.0),
            f"c{index}.bias": _draw(rng, (outputs,), 1.0),
        }
        pool = ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]})
        steps += [_step("Conv", f"c{index}", weights), _random_activation(rng), pool]
    steps.append(("Flatten", [], {"axis": 1}))
    for index, (inputs, outputs) in enumerate(pairwise(units)):
        weights |= {
            f"d{index}.weight": _draw(rng, (outputs, inputs), 1.0),
            f"d{index}.bias": _draw(rng, (outputs,), 1.0),
        }
        steps += [_step("Gemm", f"d{index}", weights, transB=1), _random_activation(rng)]
    return chain(steps, weights, (image, ["batch", 1, 22, 22]), (scores, ["batch", units[-1]]))


def _random_activation(rng: np.random.Generator) -> Step:
    return str(rng.choice(["Relu", "Tanh", "Sigmoid", "Softplus", "Elu", "Selu", "Softsign"])), [], {}


@dataclass(frozen=True)
class CnnFacts:
    """Facts of a graph: operators and output shapes (without the batch) in order, and totals by operator."""

    operators: tuple[str, ...]
    outputs: tuple[tuple[int, ...], ...]
    parameters: dict[str, int]
    macs: dict[str, int]


def small_cnn_onnx(rng: np.random.Generator) -> tuple[bytes, CnnFacts]:
    """Build a convolutional network of random widths on oblong images; return it with the facts of its graph.

    Its kernels are oblong, its convolutions have a stride, groups and padding, one has no bias, and a Split has two
    outputs of different shapes, of which the second is not used. A Gemm transposes its weight and another does not.
    Weights also belong to operators without a count of multiply-accumulates: ConvTranspose, PRelu and MatMul.
    """
    image, shapes, outputs = _small_cnn_shapes(rng)
    channels, units = shapes["a.weight"][0], shapes["e.bias"][0]
    kept = shapes["t.weight"][0]
    weights = {name: _draw(rng, shape, 1.0) for name, shape in shapes.items()}
    weights["d.shape"] = np.array([0, -1], np.int64)  # initializers, but not parameters of the network
    weights["s.sizes"] = np.array([kept, channels - kept], np.int64)
    steps = [
        _step("Conv", "a", weights, strides=[2, 2]),
        ("Relu", [], {}),
        _step("Conv", "g", weights, group=channels, pads=[1, 1, 1, 1]),
        _step("Split", "s", weights, axis=1),
        _step("ConvTranspose", "t", weights, strides=[2, 2]),
        _step("Conv", "b", weights),
        _step("PRelu", "p", weights),
        _step("Reshape", "d", weights),
        _step("Gemm", "c", weights, transB=1),
        _step("MatMul", "m", weights),
        _step("Gemm", "e", weights),
    ]
    facts = _small_cnn_facts(tuple(op for op, *_ in steps), shapes, outputs)
    return chain(steps, weights, ("pixels", ["batch", 3, *image]), ("scores", ["batch", units])), facts


def _small_cnn_shapes(
    rng: np.random.Generator,
) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]], tuple[tuple[int, ...], ...]]:
    """Draw the height and width of the image; return them, the shapes of the weights, and those of all outputs."""
    first, second, units = 2 * int(rng.integers(2, 6)), *(int(n) for n in rng.integers(3, 12, size=2))
    (kh, kw), kept, raised, features = rng.permutation([3, 5]).tolist(), 1 + first // 2, 3, int(rng.integers(12, 16))
    height, width = (int(n) for n in rng.permutation([14, 17, 20])[:2])
    tall, wide = (height - kh) // 2 + 1, (width - kw) // 2 + 1
    large = 2 * tall, 2 * wide  # of what the ConvTranspose returns
    shapes = {
        "a.weight": (first, 3, kh, kw),
        "a.bias": (first,),
        "g.weight": (first, 1, 3, 3),  # a depthwise convolution, without a bias
        "t.weight": (kept, raised, 2, 2),
        "b.weight": (second, raised, 1, 1),
        "b.bias": (second,),
        "p.slope": (second, 1, 1),
        "c.weight": (features, second * math.prod(large)),
        "c.bias": (features,),
        "m.weight": (features, 2 * features),
        "e.weight": (2 * features, units),
        "e.bias": (units,),
    }
    outputs = (
        *[(first, tall, wide)] * 3,
        (kept, tall, wide),
        (raised, *large),
        *[(second, *large)] * 2,
        (second * math.prod(large),),
        (features,),
        (2 * features,),
        (units,),
    )
    return (height, width), shapes, outputs


def _small_cnn_facts(
    operators: tuple[str, ...], shapes: dict[str, tuple[int, ...]], outputs: tuple[tuple[int, ...], ...]
) -> CnnFacts:
    """Count the parameters and the multiply-accumulates of each operator."""
    size = {name: math.prod(shape) for name, shape in shapes.items()}
    layers = {"a": 0, "g": 2, "b": 5}  # the convolutions, and their places among the operators
    convolutions = sum(value for name, value in size.items() if name[0] in layers)
    products = sum(math.prod(outputs[i][1:]) * size[f"{layer}.weight"] for layer, i in layers.items())
    dense, biases = size["c.weight"] + size["e.weight"], size["c.bias"] + size["e.bias"]
    others = {"ConvTranspose": "t.weight", "PRelu": "p.slope", "MatMul": "m.weight"}
    nothing = {"Relu": 0, "Reshape": 0, "Split": 0}
    return CnnFacts(
        operators=operators,
        outputs=outputs,
        parameters={"Conv": convolutions, "Gemm": dense + biases}
        | {op: size[name] for op, name in others.items()}
        | nothing,
        macs={"Conv": products, "Gemm": dense} | dict.fromkeys(others, 0) | nothing,
    )


Step = tuple[str, list[str], dict[str, Any]]
Port = tuple[str, Sequence[int | str]]


def _step(op: str, layer: str, weights: Weights, **attributes: Any) -> Step:
    return op, [name for name in weights if name.startswith(f"{layer}.")], attributes


def chain(steps: Sequence[Step], weights: Weights, source: Port, sink: Port) -> bytes:
    """Build an ONNX model as a chain of nodes; each reads the previous value and its own weights."""
    nodes, value = [], source[0]
    for index, (op, weight_names, attributes) in enumerate(steps):
        result = sink[0] if index == len(steps) - 1 else f"value_{index}"
        results = [result, f"{result}_rest"] if op == "Split" else [result]
        nodes.append(helper.make_node(op, [value, *weight_names], results, name=f"{op.lower()}_{index}", **attributes))
        value = result
    graph = helper.make_graph(
        nodes,
        "checked",
        [helper.make_tensor_value_info(source[0], TensorProto.FLOAT, list(source[1]))],
        [helper.make_tensor_value_info(sink[0], TensorProto.FLOAT, list(sink[1]))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(RUNTIME, 1)] if any(n.domain for n in nodes) else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()
