"""Checks of P1.1 to P1.3: the layers of LeNet, its forward pass, its training."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.rpc.codec import Remote, Tensor
from mlhood.models import digits

PROBES = "mlhood.grading.checks.probes:"
GOOD_ACCURACY = 0.97


def construct(submission: Submission, name: str) -> Remote:
    """Construct a module by the name of its class; `module:name` for one of the package. It stays over there."""
    model = submission.call(name)
    if not isinstance(model, Remote):
        expect.fail(f"`{name}()` does not return a module", expected="a torch.nn.Module", got=model)
    return model


def lenet_with(submission: Submission, weights: reference.Weights) -> Remote:
    """The package's LeNet with the given weights, in the student's process."""
    model = construct(submission, "mlhood.models:LeNet")
    submission.call(PROBES + "load", model, weights)
    return model


def parameters(submission: Submission, model: Remote) -> dict[str, np.ndarray]:
    """Return a module's parameters by name."""
    values = submission.call(PROBES + "parameters", model)
    if not isinstance(values, dict) or not all(isinstance(value, np.ndarray) for value in values.values()):
        expect.fail("the module's parameters cannot be read", expected="arrays by name", got=values)
    return values


def logits(submission: Submission, model: Remote | str, images: np.ndarray) -> np.ndarray:
    """Return the logits [N,10] that a module computes for images [N,1,32,32] in evaluation mode."""
    if isinstance(model, str):
        model = submission.value(model)
    hint = "one row of ten logits per image: flatten all axes but the batch, x.flatten(1), before the dense layers"
    try:
        result = submission.call(PROBES + "forward", model, Tensor(images))
    except expect.CheckFailed as failure:
        if "shapes cannot be multiplied" in failure.parts.get("got", ""):
            failure.parts["hint"] = hint
        raise
    return expect.array(result, (len(images), 10), "what the model returns", given=f"{len(images)} images", hint=hint)


def random_images(submission: Submission, count: int) -> np.ndarray:
    """Draw images, float32 [count,1,32,32]."""
    return submission.normal(count, 1, 32, 32)


@points(6)
def parameters_have_lenets_shapes(submission: Submission) -> None:
    """The parameters have LeNet's shapes: 61,706 values in total."""
    values = parameters(submission, construct(submission, "LeNetLayers"))
    got = Counter(tuple(value.shape) for value in values.values())
    want = Counter(reference.SHAPES.values())
    if got == want:
        return
    count = sum(value.size for value in values.values())
    missing, extra = want - got, got - want
    expect.fail(
        f"the parameters are not LeNet's ({count:,} values instead of {reference.PARAMETER_COUNT:,})",
        expected=f"also {_shapes(missing)}" if missing else "no other parameters",
        got=_surplus(missing, extra),
        hint=_shape_hint(missing, extra),
    )


def _shapes(shapes: Counter) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes.elements())


def _surplus(missing: Counter, extra: Counter) -> str:
    if not extra:
        return "they are missing"
    return f"{_shapes(extra)} instead" if missing else f"also {_shapes(extra)}"


def _shape_hint(missing: Counter, extra: Counter) -> str:
    if missing.total() == len(reference.SHAPES) and not extra:
        return (
            "torch registers a layer that is an attribute (self.conv1 = ...) or is in an nn.ModuleList, not in a list"
        )
    if missing and not extra and all(len(shape) == 1 for shape in missing):
        return "a layer has no bias: remove `bias=False`"
    if any(shape[::-1] in extra for shape in missing if len(shape) == 2):
        return "nn.Linear takes the number of inputs first, then the number of outputs"
    if any(len(shape) == 2 and shape[0] == 120 for shape in extra):
        return "image size 32 -conv-> 28 -pool-> 14 -conv-> 10 -pool-> 5: the first dense layer has 16*5*5 inputs"
    return "compare your layers with the table, row by row: channels, kernel, inputs, outputs"


@points(4)
def convolutions_have_lenets_geometry(submission: Submission) -> None:
    """The convolutions have stride 1 and no padding."""
    layers = construct(submission, "LeNetLayers")
    weights = [value for value in parameters(submission, layers).values() if value.ndim == 4]
    expect.equal(len(weights), 2, "LeNet has two convolutions")
    for leaf in submission.call(PROBES + "leaves", layers):
        if leaf["type"] == "Conv2d":
            _check_default_geometry(leaf)


def _check_default_geometry(leaf: dict) -> None:
    for key, want in {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1]}.items():
        got = list(leaf[key]) if isinstance(leaf[key], (list, tuple)) else leaf[key]
        allowed = (want, "valid") if key == "padding" else (want,)
        what = f"the convolution `{leaf['name']}` has the wrong {key}"
        expect.true(got in allowed, what, expected=want[0], got=got, hint=f"leave `{key}` at its default")


@points(2)
def gives_ten_logits_an_image(submission: Submission) -> None:
    """The model returns ten logits for each 32x32 image."""
    logits(submission, construct(submission, "LeNet"), random_images(submission, 3))


def _random_like(submission: Submission, like: np.ndarray) -> np.ndarray:
    return (submission.rng.standard_normal(like.shape) / np.sqrt(max(1, like[:1].size))).astype(np.float32)


@points(7)
def computes_lenet(submission: Submission) -> None:
    """The logits are those of LeNet with the same weights."""
    model = construct(submission, "LeNet")
    images = random_images(submission, 4)
    values = {name: _random_like(submission, value) for name, value in parameters(submission, model).items()}
    weights = reference.by_shape(values)
    submission.call(PROBES + "load", model, values)  # our own, so that the model's report of its weights is not trusted
    got = logits(submission, model, images)
    want = reference.lenet(weights, images)
    if not np.allclose(got, want, rtol=1e-4, atol=1e-5):
        hint = (
            reference.diagnose(weights, images, got)
            or "follow the figure: conv, ReLU, pool, twice; then the three dense layers"
        )
        expect.close(got, want, "the forward pass", hint=hint, given="random images")


@points(3)
def takes_a_batch_of_any_size(submission: Submission) -> None:
    """A batch of any size gives the same logits as its images one at a time."""
    model = construct(submission, "LeNet")
    images = random_images(submission, 5)
    together = logits(submission, model, images)
    for index in (0, 4):
        single = logits(submission, model, images[index : index + 1])
        hint = "do not write the batch size into the code: x.flatten(1), not x.view(64, 400)"
        what = "an image's logits, which depend on the rest of its batch"
        expect.close(single[0], together[index], what, given="batches of 1 and 5", hint=hint)


@dataclass(frozen=True)
class _TrainingRun:
    """One call of the student's `train`: the model and the digits it was given, and what it returned."""

    weights: reference.Weights
    model: Remote
    images: np.ndarray
    labels: np.ndarray
    initial_loss: float
    returned: Any


def _run_training(submission: Submission) -> _TrainingRun:
    """Train once for all checks that look at it: training takes seconds."""
    weights = reference.fresh_weights(submission.rng)
    model = lenet_with(submission, weights)
    data = digits()
    chosen = submission.rng.permutation(len(data.train_images))[:640]
    images, labels = data.train_images[chosen], data.train_labels[chosen]
    initial_loss = _loss(logits(submission, model, images), labels)
    returned = submission.call("train", model, Tensor(images), Tensor(labels))
    return _TrainingRun(weights, model, images, labels, initial_loss, returned)


@points(4)
def training_moves_every_weight(submission: Submission) -> None:
    """`train` updates every parameter of the model passed to it."""
    training = submission.once("training", lambda: _run_training(submission))
    before, after = training.weights, parameters(submission, training.model)
    unchanged = [name for name in before if name not in after or np.array_equal(before[name], after[name])]
    expect.true(
        not unchanged,
        "training leaves these parameters unchanged",
        got=", ".join(unchanged),
        hint="for each batch: optimizer.zero_grad(), loss.backward(), optimizer.step(), "
        "where the optimizer holds model.parameters() of the model passed in",
    )


@points(3)
def loss_is_told_and_falls(submission: Submission) -> None:
    """`train` returns the mean loss of each epoch, and the loss decreases."""
    training = submission.once("training", lambda: _run_training(submission))
    before, returned = training.initial_loss, training.returned
    returned = returned.tolist() if isinstance(returned, np.ndarray) else returned
    expected = "one number per epoch, at least two epochs"
    what = "`train` does not return a list of losses"
    expect.true(isinstance(returned, (list, tuple)) and len(returned) > 1, what, expected=expected, got=returned)
    losses = [expect.number(loss, "a loss that `train` returns") for loss in returned]
    after = _loss(logits(submission, training.model, training.images), training.labels)
    expect.true(
        after < 0.8 * before,
        "the model has hardly improved after training",
        expected=f"a loss well below {before:.3f}",
        got=f"{after:.3f}",
        given="640 training images",
        hint="does each batch begin with optimizer.zero_grad()? If so: more epochs, or Adam with lr=0.002",
    )
    expect.true(
        losses[-1] < losses[0] and abs(losses[0]) < 10 * before,
        "the returned losses do not decrease during training",
        expected=f"values that start near {before:.2f} and decrease",
        got=[round(loss, 3) for loss in losses],
        hint="return the mean of loss.item() over the epoch's batches, not their sum or the loss of a single batch",
    )


def _loss(scores: np.ndarray, labels: np.ndarray) -> float:
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-log_probabilities[np.arange(len(labels)), labels].mean())


@points(6)
def model_reads_unseen_digits(submission: Submission) -> None:
    """The trained `model` classifies at least 97% of the held-out digits correctly."""
    data = digits()
    hint = submission.first_cell_error() or "has it been trained? If so, try more epochs or another learning rate"
    noise = 0.05 * submission.normal(*data.test_images.shape)
    for images, needed, given in (
        (data.test_images, GOOD_ACCURACY, "the held-out digits"),
        (data.test_images + noise, GOOD_ACCURACY - 0.05, "the held-out digits with a little noise"),
    ):
        right = logits(submission, "model", images).argmax(1) == data.test_labels
        what = "`model` classifies too few of the held-out digits correctly"
        expected = f"at least {needed:.0%}"
        expect.true(right.mean() >= needed, what, expected=expected, got=f"{right.mean():.1%}", given=given, hint=hint)


@points(3)
def mistakes_are_found(submission: Submission) -> None:
    """`mistakes` returns the indices of the images that a model misclassifies."""
    weights = reference.random_weights(submission.rng)
    images = random_images(submission, 40)
    predicted = reference.lenet(weights, images).argmax(1)
    labels = np.where(submission.rng.random(40) < 0.6, predicted, (predicted + 3) % 10).astype(np.int64)
    want = set(np.flatnonzero(predicted != labels).tolist())
    got = submission.call("mistakes", lenet_with(submission, weights), Tensor(images), Tensor(labels))
    hint = "an image is misclassified if the argmax of its logits (over dimension 1) differs from its label"
    what = "`mistakes` does not return the misclassified images"
    expect.equal(_indices(got), want, what, given="40 random images", hint=hint)


def _indices(got: object) -> set[int]:
    """Indices in any form: array, tensor, list, set, Series, or the tuple of np.where."""
    if isinstance(got, dict):
        got = list(got.values())
    if isinstance(got, frozenset):
        got = list(got)
    if isinstance(got, tuple) and len(got) == 1:
        got = got[0]
    try:
        array = np.asarray(got)
    except ValueError:
        array = np.empty((2, 2))
    hint = "one integer for each misclassified image: its index, counted from 0"
    what = "`mistakes` does not return indices"
    if array.dtype == bool:
        expect.fail(what, expected="indices", got="a Boolean mask", hint="torch.nonzero or np.flatnonzero")
    indices = array.squeeze(1) if array.ndim == 2 and array.shape[1] == 1 else array
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iuf"):
        expect.fail(what, expected="a one-dimensional list of integers", got=f"shape {array.shape}", hint=hint)
    return {int(index) for index in indices}


LAYERS_STAND_IN = """
from mlhood.grading.projects.p1.stand_ins import repaired as _repaired
LeNetLayers = _repaired(globals().get("LeNetLayers"))
"""

FORWARD_STAND_IN = """
from mlhood.models import LeNet
"""

TRAINING_STAND_IN = """
from mlhood.grading.projects.p1.stand_ins import mistakes
from mlhood.models import LeNet as _LeNet, digits as _digits, train
model, _data = _LeNet(), _digits()
losses = train(model, _data.train_images, _data.train_labels, epochs=max(2, 12_000 // len(_data.train_images)))
"""

TASKS = (
    Task(
        "P1.1",
        "The layers of LeNet",
        checks=(parameters_have_lenets_shapes, convolutions_have_lenets_geometry),
        stand_in=LAYERS_STAND_IN,
    ),
    Task(
        "P1.2",
        "The forward pass",
        checks=(gives_ten_logits_an_image, computes_lenet, takes_a_batch_of_any_size),
        stand_in=FORWARD_STAND_IN,
    ),
    Task(
        "P1.3",
        "Train it on real digits",
        checks=(training_moves_every_weight, loss_is_told_and_falls, model_reads_unseen_digits, mistakes_are_found),
        stand_in=TRAINING_STAND_IN,
    ),
)
