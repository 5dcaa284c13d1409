"""Checks of P1.1 and P1.2: the layers of LeNet, its forward pass."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.rpc.codec import Remote, TorchTensor
from mlhood.grading.variants.parameter import Parameter

# the size of the layers that is an argument of `LeNetLayers`
LAYERS_ARGUMENT = Parameter("layers_argument", ("none", "classes", "channels", "maps"))
# the second argument of `forward`
FORWARD_ARGUMENT = Parameter("forward_argument", ("none", "features", "probabilities"))

PROBES = "mlhood.grading.projects.p1.probes:"
CONV = Conv((1, 1), (0, 0, 0, 0), (1, 1))
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
    model = submission.value(model) if isinstance(model, str) else model
    hint = "if a shape does not fit: one row of ten logits per image, so flatten all axes but the first, the batch"
    with expect.case(f"{len(images)} images", hint):
        result = submission.call(PROBES + "forward", model, TorchTensor(images), training)
        return expect.array(result, (len(images), 10), "what the model returns")


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
        what, given = "the parameters are not LeNet's", f"`LeNetLayers({_arguments(sizes)})`"
        expected, found = (f"also {_shapes(each)}" if each else "no others" for each in (missing, extra))
        expect.true(got == want, what, expected=expected, got=found, hint=_shape_hint(missing, extra), given=given)
        for layer in _run_layers(submission, layers, values, 2):
            layer.check(layer.input @ layer.weight.T + layer.bias, "does a layer of your own add its bias?")


def _shapes(shapes: Counter) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes.elements())


def _shape_hint(missing: Counter, extra: Counter) -> str:
    if missing.total() == len(reference.SHAPES) and not extra:
        return "torch registers a layer that is an attribute (self.conv1 = ...) or in an nn.ModuleList, not in a list"
    if missing and not extra and all(len(shape) == 1 for shape in missing):
        return "a layer has no bias: remove `bias=False`"
    if any(shape[::-1] in extra for shape in missing if len(shape) == 2):
        return "nn.Linear takes the number of inputs first, then the number of outputs"
    return "compare with the table, row by row; how many places has a 5x5 window, and what does the pooling leave?"


@points(2)
def convolutions_have_lenets_geometry(submission: Submission) -> None:
    """The convolutions have stride 1 and no padding."""
    for sizes in _sizes(submission):
        layers = construct(submission, "LeNetLayers", **sizes)
        values = parameters(submission, layers)
        expect.equal(sum(value.ndim == 4 for value in values.values()), 2, "LeNet has two convolutions")
        for layer in _run_layers(submission, layers, values, 4):
            want = np.asarray(CONV.evaluate(layer.input, layer.weight, layer.bias))
            layer.check(want, "leave padding, stride and dilation at their defaults")


class _RunLayer(NamedTuple):
    """A layer of the student's with weight and bias of ours: an input, and what the layer made of it."""

    name: str
    weight: np.ndarray
    bias: np.ndarray
    input: np.ndarray
    output: Any

    def check(self, want: np.ndarray, hint: str) -> None:
        """Check the output; a layer of the student's own may include the activation and the pooling."""
        what, activated = f"what the layer `{self.name}` returns", np.maximum(want, 0)
        results = [activated, *([POOL.evaluate(activated)] if want.ndim == 4 else [])]
        if not any(expect.holds(expect.close, self.output, result, what) for result in results):
            given = f"a random input of shape {self.input.shape}"
            expect.close(self.output, want, what, given=given, hint=hint)


def _run_layers(submission: Submission, layers: Remote, like: dict[str, np.ndarray], ndim: int) -> Iterator[_RunLayer]:
    """Run each layer whose weight has so many dimensions: with random weights, on a random input.

    Parameters without a layer (`nn.Parameter` in the module itself) cannot be run before the forward pass.
    """
    values = _random_like(submission, like)
    weights = {name: value for name, value in values.items() if value.ndim == ndim}
    size = submission.rng.integers(20, 30, size=2)  # not LeNet's own, so that outputs cannot be known
    inputs = {name: submission.normal(2, value.shape[1], *size[: ndim - 2]) for name, value in weights.items()}
    outputs = submission.call(PROBES + "layer_outputs", layers, values, {n: TorchTensor(x) for n, x in inputs.items()})
    outputs = expect.mapping(outputs, tuple(weights), "what the layers return")
    for name, weight in weights.items():
        if outputs[name] is not None:
            layer, zero = name.rpartition(".")[0], np.zeros(len(weight), np.float32)
            biases = (v for n, v in values.items() if n.rpartition(".")[0] == layer and v.shape == zero.shape)
            yield _RunLayer(layer, weight, next(biases, zero), inputs[name], outputs[name])


@points(1)
def gives_ten_logits_an_image(submission: Submission) -> None:
    """The model returns ten logits for each 32x32 image."""
    _check_responses(submission)


def _check_responses(submission: Submission) -> Remote:
    """Check that the logits depend on the image and on the parameters: constants are no logits. Return the model."""
    model, images, rows = construct(submission, "LeNet"), random_images(submission, 3), []
    for _ in range(2):
        submission.call(PROBES + "load", model, _random_like(submission, parameters(submission, model)))
        rows += [row.tobytes() for row in logits(submission, model, images)]
    what = "the logits do not depend on the image, or not on the parameters"
    hint = "every layer takes part: conv, ReLU, pool, twice; then three dense layers"
    expect.true(len(set(rows)) == len(rows), what, hint=hint)
    return model


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
    options, hint = {
        "features": ({"removed": 1}, "what does `fc3` read? It comes after the last ReLU"),
        "probabilities": ({"output": "Softmax"}, "a softmax over the ten logits of each image"),
    }[argument]
    want = reference.lenet(weights, images, **options)
    got = submission.call(PROBES + "forward", model, TorchTensor(images), False, {argument: True})
    expect.close(got, want, "the forward pass", hint=hint, given=f"`{argument}=True`")


@points(2)
def takes_a_batch_of_any_size(submission: Submission) -> None:
    """A batch of any size gives the same logits as its images one at a time."""
    model, images = _check_responses(submission), random_images(submission, 5)
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


P1_1 = Task(
    "P1.1",
    "The layers of LeNet",
    checks=(parameters_have_lenets_shapes, convolutions_have_lenets_geometry),
    fallback=LAYERS_FALLBACK,
    varies=(LAYERS_ARGUMENT,),
    libraries=reference.TORCH_AND_ONNX,
    minutes=15,
)


P1_2 = Task(
    "P1.2",
    "The forward pass",
    checks=(gives_ten_logits_an_image, computes_lenet, takes_a_batch_of_any_size),
    fallback=FORWARD_FALLBACK,
    varies=(FORWARD_ARGUMENT,),
    libraries=reference.TORCH_AND_ONNX,
    minutes=15,
    builds_on=("P1.1",),
)
