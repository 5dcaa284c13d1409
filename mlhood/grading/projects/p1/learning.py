"""Checks of P1.3: training on real digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.libraries import TORCH_AND_ONNX
from mlhood.grading.projects.p1.network import PROBES, lenet_with, logits, named_arrays, parameters, random_images
from mlhood.grading.rpc.codec import TorchTensor
from mlhood.grading.variants.parameter import Parameter
from mlhood.models import digits

# the arguments of `train` besides model, images and labels
TRAIN_ARGUMENT = Parameter("train_argument", ("none", "epochs", "until"))
# the order in which `mistakes` lists the images
MISTAKES_ORDER = Parameter("mistakes_order", ("increasing", "decreasing", "surest first"))

GOOD_ACCURACY = 0.95  # 63 runs of 10 to 30 epochs with the settings that the text recommends reach 95.9 to 99.7%
IMAGES, COPIES = 163, 4  # to train on: together no multiple of a usual size of a batch
GIVEN = f"{IMAGES * COPIES} images, some with a random label, so that no model predicts them all"
MEAN_RTOL = 1e-3  # losses may be added up in float32


@dataclass(frozen=True)
class _TrainingRun:
    """One call of the student's `train`: the losses before and after it, and what it returned.

    Both losses are computed here, from the weights and the digits that `train` was given, and from the weights that
    the model has after it. Weights that were not trained on these digits do not have a low loss. `told` is the last
    argument of `train` in a variant: a number of epochs, or a loss. `sizes` and `losses` of the batches are those that
    the probe has noted: a claim.
    """

    before: reference.Weights
    after: reference.Weights
    initial_loss: float
    final_loss: float
    returned: Any
    told: float
    sizes: np.ndarray
    losses: np.ndarray


def _run_training(submission: Submission) -> _TrainingRun:
    """Train once for all checks that look at it: training takes seconds."""
    weights = reference.fresh_weights(submission.rng)
    images, labels = _digits_to_train_on(submission.rng)
    told = _told(submission, reference.loss(reference.lenet(weights, images), labels))
    arguments = weights, TorchTensor(images), TorchTensor(labels), *([told] if told else [])
    answer = submission.call(PROBES + "trained", submission.value("train"), *arguments)
    report = expect.mapping(answer, ("returned", "parameters", "sizes", "losses"), "what `train` does")
    trained = reference.by_shape(named_arrays(report["parameters"]))
    initial_loss, final_loss = (reference.loss(reference.lenet(w, images), labels) for w in (weights, trained))
    sizes, losses = (np.array(report[name], np.float64) for name in ("sizes", "losses"))
    return _TrainingRun(weights, trained, initial_loss, final_loss, report["returned"], told, sizes, losses)


def _told(submission: Submission, initial_loss: float) -> float:
    """Return the last argument of `train` in a variant, which can be reached whatever share of labels is random."""
    argument = submission.parameters.train_argument
    if argument == "epochs":
        return int(submission.rng.integers(22, 30))
    return 0.7 * initial_loss if argument == "until" else 0


def _digits_to_train_on(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return digits that nobody can have trained on before, and whose loss after training nobody can know.

    The images are turned, mirrored and perhaps negative, each class has a new label, and of the copies of each image
    some have a random label: it depends on how many how low the loss can become.
    """
    data = digits()
    chosen = rng.permutation(len(data.train_images))[:IMAGES]
    images = np.rot90(data.train_images[chosen], int(rng.integers(4)), (2, 3))
    images = images[..., :: int(rng.choice([1, -1]))] * np.float32(rng.choice([1, -1]))
    labels = rng.permutation(10)[data.train_labels[chosen]]
    order = rng.permutation(COPIES * len(chosen))
    images, labels = np.tile(images, (COPIES, 1, 1, 1))[order], np.tile(labels, COPIES)[order]
    noisy = rng.random(len(labels)) < rng.uniform(0.05, 0.35)
    labels = np.where(noisy, rng.integers(10, size=len(labels)), labels)
    return np.ascontiguousarray(images), labels.astype(np.int64)


@points(1)
def training_moves_every_weight(submission: Submission) -> None:
    """`train` updates every parameter of the model passed to it."""
    training = submission.once("training", lambda: _run_training(submission))
    unchanged = [name for name, value in training.before.items() if np.array_equal(value, training.after[name])]
    hint = "is optimizer.step() called for every batch, with an optimizer of the parameters of the model passed in?"
    what = "training leaves these parameters unchanged"
    expect.true(not unchanged, what, got=", ".join(unchanged), hint=hint)
    before, after = training.initial_loss, training.final_loss
    what = "training changes the parameters, but not such that the loss on the images passed in decreases"
    expect.true(after < 0.98 * before, what, expected=f"a loss below {before:.3f}", got=f"{after:.3f}", hint=hint)


@points(3)
def loss_is_told_and_falls(submission: Submission) -> None:
    """`train` returns the mean loss of each epoch over all images, and the loss decreases."""
    training = submission.once("training", lambda: _run_training(submission))
    before, after = training.initial_loss, training.final_loss
    returned = expect.sequence(training.returned, list, "what `train` returns")
    what, expected = "`train` does not return a list of losses", "one number per epoch, at least two epochs"
    expect.true(len(returned) > 1, what, expected=expected, got=returned)
    losses = [expect.number(loss, "a loss that `train` returns") for loss in returned]
    with expect.case(GIVEN):
        what, expected = "the model has hardly improved after training", f"a loss well below {before:.3f}"
        hint = "does each batch begin with optimizer.zero_grad()? If so: another learning rate, such as Adam's 0.002"
        expect.true(after < 0.8 * before, what, expected=expected, got=f"{after:.3f}", hint=hint)
        _check_means(training, losses)
        what = "the last of the returned losses is not that of the trained model"
        expected = f"about {after:.3f}, the mean cross entropy of the model on these images after training"
        near = 0.8 * after - 0.05 <= losses[-1] <= 1.7 * after + 0.2  # of the last epoch, in which it still improves
        expect.true(near, what, expected=expected, got=f"{losses[-1]:.3f}")
    _check_length(submission.parameters.train_argument, training.told, losses)


def _check_means(training: _TrainingRun, losses: list[float]) -> None:
    """Check that losses are the means of their epochs, over the images or over the batches."""
    images, epochs, ends = IMAGES * COPIES, len(losses), np.cumsum(training.sizes)
    once = training.sizes.sum() == images * epochs and set(images * (1 + np.arange(epochs))) <= set(ends)
    expected, got = f"{epochs} times {images} images", f"{training.sizes.sum():.0f} images in {len(ends)} batches"
    hint = "what remains at the end of an epoch is a batch, too, a smaller one; return one loss for each epoch"
    expect.true(once, "`train` does not take every image once in each epoch", expected=expected, got=got, hint=hint)
    epoch = np.ceil(ends / images).astype(int) - 1  # of each batch
    by_images, total, batches = (
        np.bincount(epoch, weights) for weights in (training.losses * training.sizes, training.losses, None)
    )
    by_images, by_batches = by_images / images, total / batches
    last = training.losses[np.isin(ends, images * (1 + np.arange(epochs)))]
    reset = "is the total set to 0 at the start of each epoch?"
    wrong = (
        ("that is the loss of an epoch's last batch: add up those of all its batches", last),
        ("that is the sum over the batches of an epoch: divide it by their number", total),
        ("that is the sum over the images: divide it by their number", by_images * images),
        *((reset, np.cumsum(means)) for means in (by_images, by_batches, total)),
    )
    hint = "the mean of loss.item() over the batches of an epoch, or over its images"
    hint = next((text for text, means in wrong if np.allclose(losses, means, rtol=MEAN_RTOL)), hint)
    right = np.isclose(losses, by_images, rtol=MEAN_RTOL) | np.isclose(losses, by_batches, rtol=MEAN_RTOL)
    first = int(np.argmin(right))
    expected = f"{by_images[first]:.4f} for epoch {first + 1}, the mean over {images} images"
    what = "the returned losses are not the means of their epochs"
    expect.true(bool(right.all()), what, expected=expected, got=f"{losses[first]:.4f}", hint=hint)


def _check_length(argument: str, told: float, losses: list[float]) -> None:
    """Check that training ends after the given number of epochs."""
    if argument == "epochs":
        what = "`train` does not train for the given number of epochs"
        expect.equal(len(losses), told, what, given=f"`epochs={told}`", hint="one loss for each epoch")
    if argument == "until":
        ends = losses[-1] < told and all(loss >= told for loss in losses[:-1])
        what = "`train` does not end after the first epoch whose mean loss is below `until`"
        expected, got = f"only the last loss below {told:.3f}", [round(loss, 3) for loss in losses]
        hint, given = "when is the mean loss of an epoch known?", f"`until={told:.3f}`"
        expect.true(ends, what, expected=expected, got=got, given=given, hint=hint)


@points(5)
def model_reads_unseen_digits(submission: Submission) -> None:
    """A `LeNet` trained by `train` classifies at least 95% of the held-out digits correctly."""
    data = digits()
    note = submission.first_cell_error()
    hint = "does the loss still decrease at the end? Smaller batches, shuffled every epoch, or another learning rate"
    if submission.parameters.train_argument == "none":
        hint += "; or more epochs"
    noise = 0.05 * submission.normal(*data.test_images.shape)
    functions = submission.value("LeNet"), submission.value("train")
    told = {"epochs": [max(2, 30_000 // len(data.train_images))], "until": [0.02]}
    given = (
        TorchTensor(data.train_images),
        TorchTensor(data.train_labels),
        *told.get(submission.parameters.train_argument, []),
    )
    weights = reference.by_shape(submission.call(PROBES + "trained_again", *functions, *given))
    what = "a `LeNet` trained by `train` classifies too few of the held-out digits correctly"
    for images, needed, given in (
        (data.test_images, GOOD_ACCURACY, "the held-out digits"),
        (data.test_images + noise, GOOD_ACCURACY - 0.05, "the held-out digits with a little noise"),
    ):
        right = reference.lenet(weights, images).argmax(1) == data.test_labels
        expected, got = f"at least {needed:.0%}", f"{right.mean():.2%}, {right.sum()} of {len(right)}"
        expect.true(right.mean() >= needed, what, expected=expected, got=got, given=given, hint=hint, note=note)


def weights_of(submission: Submission, name: str, images: np.ndarray) -> reference.Weights:
    """Return the weights of a LeNet of the notebook, after a check that it is LeNet with these weights."""
    weights = reference.by_shape(parameters(submission, name))
    hint = f"`{name}` is to be a `LeNet()`: solve P1.2 first, and run the cell that trains it again"
    got = logits(submission, name, images)
    expect.close(got, reference.lenet(weights, images), f"the logits of `{name}`", rtol=1e-3, atol=1e-3, hint=hint)
    return weights


@points(3)
def mistakes_are_found(submission: Submission) -> None:
    """`mistakes` returns the indices of the images that a model misclassifies."""
    weights = reference.random_weights(submission.rng)
    images = random_images(submission, 2 * int(submission.rng.integers(15, 25)) + 1)  # no multiple of a batch's size
    scores = reference.lenet(weights, images)
    predicted = scores.argmax(1)
    order = submission.parameters.mistakes_order
    wrong = submission.rng.random(len(images)) < 0.4
    wrong[submission.rng.permutation(len(images))[:2]] = True
    model = lenet_with(submission, weights)
    what = "`mistakes` does not return the misclassified images"
    hint = "the model's answer is the class with the largest logit in an image's row; where is it not the label?"
    for where, given in (
        (wrong, f"{len(images)} random images"),
        (~wrong, "other labels"),
        (np.arange(len(images)) == submission.rng.integers(len(images)), "a single mistake"),
        (wrong & ~wrong, "no mistakes"),
    ):
        labels = np.where(where, (predicted + submission.rng.integers(1, 10, len(images))) % 10, predicted)
        want = np.flatnonzero(where)
        sorts = {"surest first": np.argsort(-scores.max(1)[want]), "decreasing": slice(None, None, -1)}
        want = want[sorts.get(order, slice(None))]
        with expect.case(given, hint):
            got = _indices(
                submission.call("mistakes", model, TorchTensor(images), TorchTensor(labels.astype(np.int64)))
            )
            expect.equal(got.tolist(), want.tolist(), what)


def _indices(got: object) -> np.ndarray:
    """Return a one-dimensional array of integers, which is how a tensor arrives."""
    what, expected = "`mistakes` does not return indices", "a one-dimensional tensor of integers, one for each mistake"
    if isinstance(got, np.ndarray) and got.dtype == bool:
        expect.fail(what, expected=expected, got="a Boolean mask", hint="at which indices is it true?")
    if not isinstance(got, np.ndarray) or got.dtype.kind not in "iu":
        expect.fail(what, expected=expected, got=got)
    expect.equal(got.ndim, 1, "`mistakes` returns indices in another shape: the number of axes is wrong")
    return got


TRAINING_FALLBACK = """
from mlhood.models import digits as _digits, train as _train
model, _data = LeNet(), _digits()
losses = _train(model, _data.train_images, _data.train_labels, epochs=max(2, 12_000 // len(_data.train_images)))
"""


P1_3 = Task(
    "P1.3",
    "Train it on real digits",
    checks=(  # what takes no training first
        mistakes_are_found,
        model_reads_unseen_digits,
        training_moves_every_weight,
        loss_is_told_and_falls,
    ),
    fallback=TRAINING_FALLBACK,
    solution_is_fallback=True,
    varies=(TRAIN_ARGUMENT, MISTAKES_ORDER),
    libraries=TORCH_AND_ONNX,
    minutes=30,
    builds_on=("P1.2",),
)
