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


def make(submission: Submission, name: str) -> Remote:
    """Build a module of the notebook, or of `module:name`; it stays in the student's process."""
    model = submission.call(name)
    if not isinstance(model, Remote):
        expect.fail(f"`{name}()` does not give a module", expected="a torch.nn.Module", got=model)
    return model


def lenet_with(submission: Submission, weights: reference.Weights) -> Remote:
    """The package's LeNet with these weights, in the student's process."""
    model = make(submission, "mlhood.models:LeNet")
    submission.call(PROBES + "load", model, weights)
    return model


def parameters(submission: Submission, model: Remote) -> dict[str, np.ndarray]:
    """A module's parameters by name."""
    found = submission.call(PROBES + "parameters", model)
    if not isinstance(found, dict) or not all(isinstance(value, np.ndarray) for value in found.values()):
        expect.fail("the module's parameters cannot be read", expected="arrays by name", got=found)
    return found


def logits(submission: Submission, model: Remote | str, images: np.ndarray) -> np.ndarray:
    """What a module computes for images, in evaluation mode."""
    if isinstance(model, str):
        model = submission.value(model)
    hint = "one row of ten logits an image: flatten all but the batch, x.flatten(1), before the dense layers"
    try:
        result = submission.call(PROBES + "forward", model, Tensor(images))
    except expect.CheckFailed as failure:
        if "shapes cannot be multiplied" in failure.parts.get("got", ""):
            failure.parts["hint"] = hint
        raise
    return expect.array(result, (len(images), 10), "what the model returns", given=f"{len(images)} images", hint=hint)


def random_images(submission: Submission, count: int) -> np.ndarray:
    """Images that nobody has seen, float32 [count,1,32,32]."""
    return submission.rng.standard_normal((count, 1, 32, 32)).astype(np.float32)


@points(6)
def parameters_have_lenets_shapes(submission: Submission) -> None:
    """The parameters have LeNet's shapes, 61,706 numbers in all."""
    found = parameters(submission, make(submission, "LeNetLayers"))
    got = Counter(tuple(value.shape) for value in found.values())
    want = Counter(reference.SHAPES.values())
    if got == want:
        return
    count = sum(value.size for value in found.values())
    expect.fail(
        f"the parameters are not LeNet's ({count:,} numbers instead of {reference.PARAMETER_COUNT:,})",
        expected=f"{_shapes(want - got)} as well" if want - got else "no others",
        got=_surplus(want - got, got - want),
        hint=_shape_hint(want - got, got - want),
    )


def _shapes(shapes: Counter) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes.elements())


def _surplus(missing: Counter, extra: Counter) -> str:
    if not extra:
        return "nothing in their place"
    return f"{_shapes(extra)} instead" if missing else f"{_shapes(extra)} too many"


def _shape_hint(missing: Counter, extra: Counter) -> str:
    if missing.total() == len(reference.SHAPES) and not extra:
        return "torch finds layers that are attributes of their own (self.conv1 = ...) or in an nn.ModuleList"
    if missing and not extra and all(len(shape) == 1 for shape in missing):
        return "a layer has no bias: leave out `bias=False`"
    if any(shape[::-1] in extra for shape in missing if len(shape) == 2):
        return "nn.Linear takes the number of inputs first, then the number of outputs"
    if any(len(shape) == 2 and shape[0] == 120 for shape in extra):
        return "32 -5+1-> 28 -/2-> 14 -5+1-> 10 -/2-> 5: the first dense layer takes 16*5*5 numbers"
    return "compare your layers with the table, line by line: channels, kernel, inputs, outputs"


@points(4)
def convolutions_have_lenets_geometry(submission: Submission) -> None:
    """The convolutions move by one pixel and add no padding."""
    layers = make(submission, "LeNetLayers")
    weights = [value for value in parameters(submission, layers).values() if value.ndim == 4]
    expect.equal(len(weights), 2, "LeNet has two convolutions")
    for leaf in submission.call(PROBES + "leaves", layers):
        if leaf["type"] == "Conv2d":
            _plain_geometry(leaf)


def _plain_geometry(leaf: dict) -> None:
    plain = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1]}
    for key, want in plain.items():
        got = list(leaf[key]) if isinstance(leaf[key], (list, tuple)) else leaf[key]
        allowed = (want, "valid") if key == "padding" else (want,)
        expect.true(
            got in allowed,
            f"the convolution `{leaf['name']}` has the wrong {key}",
            expected=want[0],
            got=got,
            hint=f"leave `{key}` at its default",
        )


@points(2)
def gives_ten_logits_an_image(submission: Submission) -> None:
    """An image of 32x32 gives ten logits."""
    logits(submission, make(submission, "LeNet"), random_images(submission, 3))


def _drawn(submission: Submission, like: np.ndarray) -> np.ndarray:
    return (submission.rng.standard_normal(like.shape) / np.sqrt(max(1, like[:1].size))).astype(np.float32)


@points(7)
def computes_lenet(submission: Submission) -> None:
    """The logits are LeNet's for these weights."""
    model = make(submission, "LeNet")
    images = random_images(submission, 4)
    values = {name: _drawn(submission, value) for name, value in parameters(submission, model).items()}
    weights = reference.by_shape(values)
    submission.call(PROBES + "load", model, values)  # ours, so that nothing rests on what the model says it holds
    got = logits(submission, model, images)
    want = reference.lenet(weights, images)
    if not np.allclose(got, want, rtol=1e-4, atol=1e-5):
        hint = (
            reference.diagnose(weights, images, got)
            or "follow the picture: conv, relu, pool, twice; then the dense layers"
        )
        expect.close(got, want, "the forward pass", hint=hint, given="random images")


@points(3)
def takes_a_batch_of_any_size(submission: Submission) -> None:
    """A batch of any size gives the same logits as its images one by one."""
    model = make(submission, "LeNet")
    images = random_images(submission, 5)
    together = logits(submission, model, images)
    for index in (0, 4):
        alone = logits(submission, model, images[index : index + 1])
        expect.close(
            alone[0],
            together[index],
            "an image's logits, which depend on its batch",
            given="batches of 1 and 5",
            hint="no number of images may stand in the code: flatten(1), not view(64, 400)",
        )


@dataclass(frozen=True)
class _Training:
    """A fresh model that the student's `train` was called with, some digits, and what it returned."""

    weights: reference.Weights
    model: Remote
    images: np.ndarray
    labels: np.ndarray
    loss: float
    told: Any


def _trained(submission: Submission) -> _Training:
    """One call for the checks that look at it: training takes seconds."""
    weights = reference.fresh_weights(submission.rng)
    model = lenet_with(submission, weights)
    data = digits()
    chosen = submission.rng.permutation(len(data.train_images))[:640]
    images, labels = data.train_images[chosen], data.train_labels[chosen]
    loss = _loss(logits(submission, model, images), labels)
    told = submission.call("train", model, Tensor(images), Tensor(labels))
    return _Training(weights, model, images, labels, loss, told)


@points(4)
def training_moves_every_weight(submission: Submission) -> None:
    """Training changes every parameter of the model that it is given."""
    training = submission.once("training", lambda: _trained(submission))
    before, after = training.weights, parameters(submission, training.model)
    still = [name for name in before if name not in after or np.array_equal(before[name], after[name])]
    expect.true(
        not still,
        "these parameters are the same after training",
        got=", ".join(still),
        hint="each batch: optimizer.zero_grad(), loss.backward(), optimizer.step(), "
        "for an optimizer of model.parameters() of the model that comes in",
    )


@points(3)
def loss_is_told_and_falls(submission: Submission) -> None:
    """It returns the mean loss of every epoch, and the loss falls."""
    training = submission.once("training", lambda: _trained(submission))
    before, told = training.loss, training.told
    told = told.tolist() if isinstance(told, np.ndarray) else told
    expect.true(
        isinstance(told, (list, tuple)) and len(told) > 1,
        "`train` does not return a list of losses",
        expected="one number an epoch, at least two epochs",
        got=told,
    )
    losses = [expect.number(loss, "a loss that `train` returns") for loss in told]
    after = _loss(logits(submission, training.model, training.images), training.labels)
    expect.true(
        after < 0.8 * before,
        "the model is hardly better after training",
        expected=f"a loss well below {before:.3f}",
        got=f"{after:.3f}",
        given="640 training images",
        hint="does each batch begin with optimizer.zero_grad()? Then: more epochs, or Adam with lr=0.002",
    )
    expect.true(
        losses[-1] < losses[0] and abs(losses[0]) < 10 * before,
        "the losses returned do not fall with the training",
        expected=f"from about {before:.2f} downwards",
        got=[round(loss, 3) for loss in losses],
        hint="return the mean over the epoch's batches (loss.item()), not their sum or the loss of a single batch",
    )


def _loss(scores: np.ndarray, labels: np.ndarray) -> float:
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-log_probabilities[np.arange(len(labels)), labels].mean())


@points(6)
def model_reads_unseen_digits(submission: Submission) -> None:
    """The trained `model` reads at least 97 % of the held-out digits."""
    data = digits()
    hint = submission.why() or "has it been trained? Then: more epochs, or a better learning rate"
    noise = 0.05 * submission.rng.standard_normal(data.test_images.shape).astype(np.float32)
    for images, needed, given in (
        (data.test_images, GOOD_ACCURACY, "the held-out digits"),
        (data.test_images + noise, GOOD_ACCURACY - 0.05, "the held-out digits with a little noise"),
    ):
        right = logits(submission, "model", images).argmax(1) == data.test_labels
        expect.true(
            right.mean() >= needed,
            "`model` reads too few of the held-out digits",
            expected=f"at least {needed:.0%}",
            got=f"{right.mean():.1%}",
            given=given,
            hint=hint,
        )


@points(3)
def mistakes_are_found(submission: Submission) -> None:
    """`mistakes` gives the positions of the images that a model reads wrongly."""
    weights = reference.random_weights(submission.rng)
    images = random_images(submission, 40)
    predicted = reference.lenet(weights, images).argmax(1)
    labels = np.where(submission.rng.random(40) < 0.6, predicted, (predicted + 3) % 10).astype(np.int64)
    want = set(np.flatnonzero(predicted != labels).tolist())
    got = submission.call("mistakes", lenet_with(submission, weights), Tensor(images), Tensor(labels))
    expect.equal(
        _positions(got),
        want,
        "`mistakes` does not give the images that are read wrongly",
        given="40 random images",
        hint="where the largest logit of a row (argmax over dimension 1) is not the label",
    )


def _positions(got: object) -> set[int]:
    """Positions in whatever form they come: array, tensor, list, set, Series, or the tuple of np.where."""
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
    hint = "as many whole numbers as there are mistakes, each the place of an image, counted from 0"
    what = "`mistakes` does not give positions"
    if array.dtype == bool:
        expect.fail(what, expected="positions", got="a mask of True and False", hint="torch.nonzero or np.flatnonzero")
    places = array.squeeze(1) if array.ndim == 2 and array.shape[1] == 1 else array
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iuf"):
        expect.fail(what, expected="a row of whole numbers", got=f"values of shape {array.shape}", hint=hint)
    return {int(place) for place in places}


LAYERS_STAND_IN = """
from mlhood.grading.projects.p1 import stand_ins as _stand_ins
LeNetLayers = _stand_ins.repaired(globals().get("LeNetLayers"))
"""

FORWARD_STAND_IN = """
from mlhood.models import LeNet
"""

TRAINING_STAND_IN = """
from mlhood.grading.projects.p1.stand_ins import mistakes
from mlhood.models import LeNet as _LeNet, digits as _digits, train
model, _data = _LeNet(), _digits()
losses = train(model, _data.train_images, _data.train_labels, epochs=max(2, 30_000 // len(_data.train_images)))
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
        checks=(
            gives_ten_logits_an_image,
            computes_lenet,
            takes_a_batch_of_any_size,
        ),
        stand_in=FORWARD_STAND_IN,
    ),
    Task(
        "P1.3",
        "Train it on real digits",
        checks=(
            training_moves_every_weight,
            loss_is_told_and_falls,
            model_reads_unseen_digits,
            mistakes_are_found,
        ),
        stand_in=TRAINING_STAND_IN,
    ),
)
