"""Checks of P1.1 and P1.2: the layers of LeNet, its forward pass."""

from __future__ import annotations

import math
import string
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.compiler.operators.pooling import MaxPool
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.libraries import TORCH_AND_ONNX
from mlhood.grading.rpc.codec import Remote, TorchTensor
from mlhood.grading.variants.parameter import Parameter

# the size of the layers that is an argument of `LeNetLayers`
LAYERS_ARGUMENT = Parameter("layers_argument", ("none", "classes", "channels", "maps"))
# the second argument of `forward`
FORWARD_ARGUMENT = Parameter("forward_argument", ("none", "features", "temperature", "probabilities"))

PROBES = "mlhood.grading.projects.p1.probes:"
POOL = MaxPool((2, 2), (2, 2), (0, 0, 0, 0), (1, 1))


def construct(submission: Submission, name: str, **sizes: int) -> Remote:
    """Construct a module by the name of its class. It stays over there."""
    model = submission.call(name, **dict[str, Any](sizes))
    if not isinstance(model, Remote):
        expect.fail(f"`{name}({_arguments(sizes)})` does not return a module", expected="a torch.nn.Module", got=model)
    return model


def lenet_with(submission: Submission, weights: reference.Weights) -> Remote:
    """The course's LeNet with the given weights, in the student's process."""
    return submission.call(PROBES + "lenet", weights)


def parameters(submission: Submission, model: Remote | str) -> dict[str, np.ndarray]:
    """Return a module's parameters by name: a claim, to be confirmed by what is computed from them."""
    model = submission.value(model) if isinstance(model, str) else model
    return named_arrays(submission.call(PROBES + "parameters", model))


def named_arrays(values: object) -> dict[str, np.ndarray]:
    """Return the parameters that a probe has read; fail unless they are arrays."""
    if not isinstance(values, dict) or not all(isinstance(value, np.ndarray) for value in values.values()):
        expect.fail("the module's parameters cannot be read", expected="arrays by name", got=values)
    return values


def logits(submission: Submission, model: Remote | str, images: np.ndarray, training: bool = False) -> np.ndarray:
    """Return the logits [N,10] that a module computes for images [N,1,32,32], in evaluation or in training mode."""
    if isinstance(model, str):
        model = submission.value(model)
    hint = "one row of ten logits per image: before the dense layers, flatten all axes but the first, the batch"
    try:
        result = submission.call(PROBES + "logits", model, TorchTensor(images), training)
    except expect.CheckFailed as failure:
        if "shapes cannot be multiplied" in failure.parts.get("got", ""):
            failure.parts["hint"] = hint
        raise
    return expect.array(result, (len(images), 10), "what the model returns", given=f"{len(images)} images", hint=hint)


def random_images(submission: Submission, count: int) -> np.ndarray:
    """Draw images, float32 [count,1,32,32]."""
    return submission.normal(count, 1, 32, 32)


def _arguments(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _sizes(submission: Submission) -> list[dict[str, int]]:
    """Return the arguments with which `LeNetLayers` is constructed: none, and in a variant the one that it takes."""
    argument = submission.parameters.layers_argument
    return [{}] if argument == "none" else [{}, {argument: int(submission.rng.integers(11, 16))}]


def random_name(rng: np.random.Generator) -> str:
    """Draw a name of nine letters."""
    return "".join(rng.choice(list(string.ascii_lowercase), size=9))


@points(4)
def parameters_have_lenets_shapes(submission: Submission) -> None:
    """The parameters have LeNet's shapes: 61,706 values in total."""
    for sizes in _sizes(submission):
        layers = construct(submission, "LeNetLayers", **sizes)
        values = parameters(submission, layers)
        got, want = (
            Counter(tuple(value.shape) for value in values.values()),
            Counter(reference.shapes(**sizes).values()),
        )
        missing, extra = want - got, got - want
        count, right = (sum(map(math.prod, each.elements())) for each in (got, want))
        expect.true(
            got == want,
            f"the parameters are not LeNet's ({count:,} values instead of {right:,})",
            expected=f"also {_shapes(missing)}" if missing else "no other parameters",
            got=f"{_shapes(extra)} instead"
            if missing and extra
            else f"also {_shapes(extra)}"
            if extra
            else "they are missing",
            hint=_shape_hint(missing, extra),
            given=f"`LeNetLayers({_arguments(sizes)})`" if sizes else None,
        )
        _check_that_values_are_held(submission, layers, values)
        for name, layer in _run_layers(submission, layers, values, 2).items():
            product = layer.input @ layer.weight.T + layer.bias
            layer.check(product, f"the dense layer `{name}`", "does a layer of your own add its bias?")


def _check_that_values_are_held(submission: Submission, layers: Remote, like: dict[str, np.ndarray]) -> None:
    """Check that the module holds as many values as its parameters have, by storing our own in it."""
    values = _random_like(submission, like)
    held = submission.call(PROBES + "held_values", layers, values)
    held = expect.mapping(held, tuple(values), "the parameters after they have been set")
    for name, value in values.items():
        what = f"the parameter `{name}` after it has been set"
        expect.close(held[name], value, what, rtol=0, atol=0, hint="nn.Parameter, or a layer of torch.nn")


def _shapes(shapes: Counter) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes.elements())


def _shape_hint(missing: Counter, extra: Counter) -> str:
    if missing.total() == len(reference.SHAPES) and not extra:
        return "torch registers a layer that is an attribute (self.conv1 = ...) or in an nn.ModuleList, not in a list"
    if missing and not extra and all(len(shape) == 1 for shape in missing):
        return "a layer has no bias: remove `bias=False`"
    if any(shape[::-1] in extra for shape in missing if len(shape) == 2):
        return "nn.Linear takes the number of inputs first, then the number of outputs"
    if any(len(shape) == 2 and shape[0] == 120 for shape in extra):
        return "follow the image: how many places has a 5x5 window in 32 pixels, and what does the pooling leave?"
    return "compare your layers with the table, row by row: channels, kernel, inputs, outputs"


@points(2)
def convolutions_have_lenets_geometry(submission: Submission) -> None:
    """The convolutions have stride 1 and no padding."""
    others = (("padding", 1), ("padding", 2), ("padding", 4), ("stride", 2), ("stride", 3), ("dilation", 2))
    for sizes in _sizes(submission):
        layers = construct(submission, "LeNetLayers", **sizes)
        values = parameters(submission, layers)
        expect.equal(sum(value.ndim == 4 for value in values.values()), 2, "LeNet has two convolutions")
        for name, layer in _run_layers(submission, layers, values, 4).items():
            convolved = partial(convolve, layer.input, layer.weight, layer.bias)
            want, got = convolved(), np.shape(layer.output)
            for key, value in others:
                wrong, what = convolved(**{key: value}).shape, f"the convolution `{name}` has the wrong {key}"
                given, hint = f"an input of shape {layer.input.shape}", f"leave `{key}` at its default"
                expected = f"an output of shape {want.shape}"
                expect.true(got != wrong, what, expected=expected, got=got, given=given, hint=hint)
            layer.check(want, f"the convolution `{name}`", "compare it with what torch's own convolution does")


@dataclass(frozen=True)
class _RunLayer:
    """A layer of the student's with weight and bias of ours: an input, and what the layer made of it."""

    weight: np.ndarray
    bias: np.ndarray
    input: np.ndarray
    output: Any

    def check(self, want: np.ndarray, what: str, hint: str) -> None:
        """Check the output; a layer of the student's own may include the activation and the pooling."""
        given = f"a random input of shape {self.input.shape}"
        if isinstance(self.output, str):
            expect.fail(f"{what} cannot be run", got=self.output, given=given, hint=hint)
        activated = np.maximum(want, 0)
        results = [activated, *([POOL.evaluate(activated)] if want.ndim == 4 else [])]
        if not any(expect.holds(expect.close, self.output, result, what) for result in results):
            expect.close(self.output, want, what, given=given, hint=hint)


def _run_layers(submission: Submission, layers: Remote, like: dict[str, np.ndarray], ndim: int) -> dict[str, _RunLayer]:
    """Run each layer whose weight has so many dimensions, by its name: with random weights, on a random input.

    Parameters without a layer (`nn.Parameter` in the module itself) cannot be run before the forward pass.
    """
    values = _random_like(submission, like)
    weights = {name: value for name, value in values.items() if value.ndim == ndim}
    size = submission.rng.integers(20, 30, size=2)  # not LeNet's own, so that outputs cannot be known
    inputs = {name: submission.normal(2, value.shape[1], *size[: ndim - 2]) for name, value in weights.items()}
    outputs = submission.call(PROBES + "layer_outputs", layers, values, {n: TorchTensor(x) for n, x in inputs.items()})
    outputs = expect.mapping(outputs, tuple(weights), "what the layers return")
    return {
        name.rpartition(".")[0]: _RunLayer(weight, _bias_of(name, values), inputs[name], outputs[name])
        for name, weight in weights.items()
        if outputs[name] is not None
    }


def _bias_of(name: str, values: dict[str, np.ndarray]) -> np.ndarray:
    layer = name.rpartition(".")[0]
    biases = (v for n, v in values.items() if n.rpartition(".")[0] == layer and v.shape == values[name].shape[:1])
    return next(biases, np.zeros(len(values[name]), np.float32))


@points(1)
def gives_ten_logits_an_image(submission: Submission) -> None:
    """The model returns ten logits for each 32x32 image."""
    submission.once("responses", lambda: _check_responses(submission))


def _check_responses(submission: Submission) -> None:
    """Check that the logits depend on the image and on every parameter: constants are no logits."""
    model, images = construct(submission, "LeNet"), random_images(submission, 3)
    logits(submission, model, images)
    like = parameters(submission, model)
    values, others = (_random_like(submission, like) for _ in range(2))
    outputs = submission.call(PROBES + "responses", model, values, others, TorchTensor(images))
    what, hint = "what the model returns", "every layer takes part: conv, ReLU, pool, twice; then three dense layers"
    rows = [expect.array(output, (len(images), 10), what) for output in outputs]
    expect.equal(len(rows), 1 + len(others), "the model cannot be run with other parameters")
    same_for_all = bool(like) and np.array_equal(rows[0][0], rows[0][1])
    what = "the logits do not depend on the image"
    expect.true(not same_for_all, what, expected="other logits for another image", got=rows[0][0], hint=hint)
    unused = [name for name, row in zip(others, rows[1:], strict=True) if np.array_equal(row, rows[0])]
    what = "the logits do not depend on all parameters"
    expect.true(bool(like) and not unused, what, got=f"no change with {', '.join(unused) or 'any'}", hint=hint)


def _random_like(submission: Submission, like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: submission.normal(*each.shape) / np.float32(max(1, each[:1].size) ** 0.5) for name, each in like.items()
    }


def _with_own_weights(submission: Submission, model: Remote) -> reference.Weights:
    """Give a LeNet weights of ours, and return them: so a model's report of its weights is not trusted."""
    values = _random_like(submission, parameters(submission, model))
    submission.call(PROBES + "load", model, values)
    return reference.by_shape(values)


@points(4)
def computes_lenet(submission: Submission) -> None:
    """The logits are those of LeNet with the same weights."""
    model = construct(submission, "LeNet")
    images = random_images(submission, 4)
    weights = _with_own_weights(submission, model)
    got, want = logits(submission, model, images), reference.lenet(weights, images)
    if not np.allclose(got, want, rtol=1e-4, atol=1e-5):
        steps = "compare with the text, step by step: conv, ReLU, pool, twice; then the three dense layers"
        hint = reference.diagnose(weights, images, got) or steps
        expect.close(got, want, "the forward pass", hint=hint, given="random images")
    hint = "the text names every step, and none of them differs while the model is trained"
    got = logits(submission, model, images, training=True)
    expect.close(got, want, "the forward pass in training mode", hint=hint, given="random images")
    _check_argument(submission, model, weights, images)


def _check_argument(submission: Submission, model: Remote, weights: reference.Weights, images: np.ndarray) -> None:
    """Check what the forward pass returns with the second argument that it takes in a variant."""
    argument = submission.parameters.forward_argument
    if argument == "none":
        return
    value = float(submission.rng.uniform(2, 5)) if argument == "temperature" else True
    options, hint = {
        "features": ({"removed": 1}, "what does `fc3` read? It comes after the last ReLU"),
        "temperature": ({}, "the ten logits of each image, divided by it"),
        "probabilities": ({"output": "Softmax"}, "a softmax over the ten logits of each image"),
    }[argument]
    want = reference.lenet(weights, images, **options) / np.float32(value)
    got = submission.call(PROBES + "forward_with", model, TorchTensor(images), {argument: value})
    given = f"`{argument}={value if value is True else round(value, 3)}`"
    expect.close(got, want, "the forward pass", hint=hint, given=given)


@points(2)
def takes_a_batch_of_any_size(submission: Submission) -> None:
    """A batch of any size gives the same logits as its images one at a time."""
    submission.once("responses", lambda: _check_responses(submission))
    model = construct(submission, "LeNet")
    images = random_images(submission, 5)
    together = logits(submission, model, images)
    for index in (0, 4):
        single = logits(submission, model, images[index : index + 1])
        hint = "does a size in the code, such as one in a view, stand for the batch?"
        what = "an image's logits, which depend on the rest of its batch"
        expect.close(single[0], together[index], what, given="batches of 1 and 5", hint=hint)
    _check_argument(submission, model, _with_own_weights(submission, model), images[:1])


# LeNet's layers under the student's own names, since a forward pass may have been written for these
LAYERS_FALLBACK = """
def _with_lenets_layers(own):
    class LeNetLayers(own):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            new = [nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5), nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)]
            for owner in list(self.modules()):
                for name, child in list(owner.named_children()):
                    same = next((i for i, layer in enumerate(new) if type(layer) is type(child)), None)
                    if same is not None:
                        setattr(owner, name, new.pop(same))
            if new:
                raise ValueError("layers are missing")
    LeNetLayers()
    return LeNetLayers

try:
    LeNetLayers = _with_lenets_layers(LeNetLayers)
except Exception:
    class LeNetLayers(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
            self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)
"""

# complete, since the layers of the student's P1.1 may have other names
FORWARD_FALLBACK = """
class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))
"""


def convolve(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, stride: int = 1, padding: int = 0, dilation: int = 1
) -> np.ndarray:
    """Convolve images [N, C, H, W] with a weight [F, C, KH, KW] and a bias [F], in their dtype: [N, F, OH, OW]."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    size = tuple((n - 1) * dilation + 1 for n in weight.shape[2:])
    windows = sliding_window_view(x, size, (2, 3))[:, :, ::stride, ::stride, ::dilation, ::dilation]
    products = np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3)))  # N, OH, OW, F
    return np.moveaxis(products + bias, 3, 1)


P1_1 = Task(
    "P1.1",
    "The layers of LeNet",
    checks=(parameters_have_lenets_shapes, convolutions_have_lenets_geometry),
    fallback=LAYERS_FALLBACK,
    varies=(LAYERS_ARGUMENT,),
    libraries=TORCH_AND_ONNX,
    minutes=15,
)


P1_2 = Task(
    "P1.2",
    "The forward pass",
    checks=(gives_ten_logits_an_image, computes_lenet, takes_a_batch_of_any_size),
    fallback=FORWARD_FALLBACK,
    varies=(FORWARD_ARGUMENT,),
    libraries=TORCH_AND_ONNX,
    minutes=15,
    builds_on=("P1.1",),
)
