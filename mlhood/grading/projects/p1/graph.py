"""Checks of P1.4 and P1.5: the exported ONNX file, and its agreement with torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.oracle import OnnxFacts, onnx_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.learning import weights_of
from mlhood.grading.projects.p1.network import PROBES, lenet_with, random_images, random_name
from mlhood.grading.rpc.codec import TorchTensor
from mlhood.grading.rpc.server import write_fresh
from mlhood.grading.variants.parameter import Parameter
from mlhood.models import digits

CONTRASTS = (0.8, 1.0, 1.2)  # of the three readings of the notebook's `Scanner`
SCANNED = "what the file of `Exportable` computes"
# the last argument of `to_onnx`
EXPORT_ARGUMENT = Parameter("export_argument", ("none", "names"))
# what `agreement` returns of the absolute differences
ABSOLUTE = Parameter("absolute", ("max_abs", "mean_abs", "rms"))
DIFFER = (*ABSOLUTE.values, "max_rel")


def _exported(submission: Submission) -> tuple[OnnxFacts, np.ndarray]:
    """Return an untrained model as the student's function exports it, run on images, and the right logits of these.

    The model has a dropout that is active in training mode, in which it is passed.
    """

    def export() -> tuple[OnnxFacts, np.ndarray]:
        weights = reference.random_weights(submission.rng)
        images = random_images(submission, int(submission.rng.integers(11, 17)))
        model = submission.call(PROBES + "with_dropout", lenet_with(submission, weights))
        path, names = submission.scratch / "exported.onnx", _names(submission)
        path.unlink(missing_ok=True)
        argument = [names] if submission.parameters.export_argument == "names" else []
        submission.call("to_onnx", model, str(path), *argument)
        facts = onnx_facts(submission.parser, submission.written(path), images, what="the file that `to_onnx` writes")
        return facts, reference.lenet(weights, images)

    return submission.once("exported", export)


def _names(submission: Submission) -> list[str]:
    """Return the names of input and output that the file is to have."""
    drawn = submission.once("names", lambda: [random_name(submission.rng) for _ in range(2)])
    return drawn if submission.parameters.export_argument == "names" else ["image", "logits"]


def _check_that_it_reads_images(facts: OnnxFacts, want: np.ndarray) -> None:
    """Check that the file is a graph of the model: one with other logits may still earn points for its form."""
    got = expect.array(facts.results[0], want.shape, "the exported model", given=f"a batch of {len(want)}")
    same = (got.argmax(1) == want.argmax(1)).mean()
    what = "the file is not an export of the model passed to `to_onnx`: it reads the images as other digits"
    hint = "is it the `model` that is passed in which you export, with its weights?"
    expect.true(same > 0.8, what, expected="the model's predictions", got=f"{same:.0%} of them", hint=hint)


@points(2)
def file_has_the_asked_names(submission: Submission) -> None:
    """`to_onnx` writes a single, complete ONNX file with {{ "input `image` and output `logits`" if export_argument != "names" else "the names that it is given" }}."""  # noqa: E501 a template
    facts, want = _exported(submission)
    got, hint = [value.name for value in (*facts.inputs, *facts.outputs)], "the exporter takes names for both"
    expect.equal(got, _names(submission), "the graph's input or output has the wrong name", hint=hint)
    _check_that_it_reads_images(facts, want)


@points(2)
def file_computes_the_model(submission: Submission) -> None:
    """ONNX Runtime computes the same logits from the file as torch does from the model."""
    facts, want = _exported(submission)
    hint = "export the model passed in, unchanged and with its weights"
    training = [op for op in facts.operators if op in ("Dropout", "RandomUniformLike", "Bernoulli")]
    what = "the model is exported in training mode: the file drops some of its features"
    expect.true(not training, what, got=", ".join(training), hint="which mode is the model to be in?")
    expect.close(facts.results[0], want, "the exported model", atol=1e-4, hint=hint)


@points(2)
def batch_is_dynamic(submission: Submission) -> None:
    """The exported graph accepts a batch of any size."""
    facts, want = _exported(submission)
    dim = facts.inputs[0].first
    hint = "tell the exporter which dimension of the example may change, and its name; the text of the task says how"
    what, expected = "the batch size is fixed in the file", "a symbolic dimension, such as 'batch'"
    expect.true(not isinstance(dim, int), what, expected=expected, got=dim, hint=hint)
    expect.equal(facts.results[0].shape, want.shape, "the output does not have one row per image")
    _check_that_it_reads_images(facts, want)


@points(2)
def lenet_onnx_holds_the_trained_model(submission: Submission) -> None:
    """`lenet.onnx` contains the trained model."""
    data = digits()
    images = data.test_images + 0.05 * submission.normal(*data.test_images.shape)
    facts = onnx_facts(submission.parser, submission.file("lenet.onnx"), images, what="`lenet.onnx`")
    names = [value.name for value in (*facts.inputs, *facts.outputs)]
    right = submission.parameters.export_argument == "none" or names == ["image", "logits"]
    what, hint = "`lenet.onnx`, exported without `names`, has other names", "they are optional: what is their default?"
    expect.true(right, what, got=names, hint=hint)
    want = reference.lenet(weights_of(submission.in_notebook(), "model", images[:16]), images)
    got = expect.array(facts.results[0], want.shape, "what `lenet.onnx` computes")
    hint = "was it exported before training, or from a different model? Export `model` again after training"
    what, same = "`lenet.onnx` does not compute what `model` computes", np.allclose(got, want, rtol=1e-3, atol=1e-3)
    expect.true(same, what, got=f"logits that differ by up to {np.abs(got - want).max():.3g}", hint=hint)
    right, what = float((got.argmax(1) == data.test_labels).mean()), "`lenet.onnx` does not contain a trained model"
    expect.true(right > 0.85, what, expected="at least 85% of the digits", got=f"{right:.1%}", hint=hint)
    _check_that_it_reads_images(*_exported(submission))  # the notebook may have the file from elsewhere


def _drawn_scans(submission: Submission, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw images whose background is dark where a sign is 1; return also what they are with a light one."""
    images = random_images(submission, len(signs))
    corners = signs * (0.2 + np.abs(images[:, 0, 0, 0]))
    images[:, 0, 0, 0] = corners
    return images, np.where(corners[:, None, None, None] > 0, -images, images)


def _scanned(submission: Submission, images: np.ndarray) -> tuple[np.ndarray, reference.Weights]:
    """Return what the file of the student's scanner computes, and the weights of its LeNet."""

    def export() -> tuple[reference.Weights, Path]:
        weights, path = reference.random_weights(submission.rng), submission.scratch / "scanner.onnx"
        path.unlink(missing_ok=True)
        with expect.case(
            "the export of `Exportable`", "export it in the notebook: the end of the message names a line"
        ):
            submission.call(PROBES + "export_scanner", submission.value("Exportable"), weights, str(path))
        return weights, submission.written(path)

    weights, file = submission.once("scanner", export)
    return onnx_facts(submission.parser, file, images, what="the file of `Exportable`").results[0], weights


def _readings(weights: reference.Weights, images: np.ndarray) -> np.ndarray:
    """Return the mean of three readings [N,10] of images [N,1,32,32] with a light background."""
    readings = [reference.lenet(weights, np.float32(contrast) * images) for contrast in CONTRASTS]
    return np.stack(readings).mean(axis=0)


@points(3)
def scanner_is_exported(submission: Submission) -> None:
    """`Exportable` can be exported, and computes what `Scanner` does for images of one kind."""
    hint = "what does `Scanner` compute for these, line by line?"
    kinds = ([0, -1, -1], "light background, 0 in the corner of the first"), ([1, 1, 1, 1], "dark background")
    for signs, kind in kinds:
        images, light = _drawn_scans(submission, np.array(signs))
        got, weights = _scanned(submission, images)
        given = f"{len(images)} images with a {kind}"
        expect.close(got, _readings(weights, light), SCANNED, atol=1e-4, given=given, hint=hint)
    weights, images = reference.random_weights(submission.rng), random_images(submission, 2)
    images[:, 0, 0, 0] = -1
    for axis, size in ((2, "16 x 32"), (3, "32 x 16")):
        small = images.take(range(0, 32, 2), axis)
        with expect.case(f"images of {size} pixels", hint):
            got = submission.call(PROBES + "scan", submission.value("Exportable"), weights, TorchTensor(small))
            expect.close(got, _readings(weights, small.repeat(2, axis)), "what `Exportable` computes", atol=1e-4)


@points(3)
def each_image_is_inverted_by_itself(submission: Submission) -> None:
    """In a batch of both kinds of images, each is inverted or not by itself."""
    images, light = _drawn_scans(submission, submission.rng.permutation([-1, -1, -1, 1, 1]))
    (got, weights), (alike, _) = _scanned(submission, images), _scanned(submission, light)
    expect.resembles(alike, _readings(weights, light), SCANNED)
    hint = "the condition needs one value for each image: keep the axis of the batch, and let the others broadcast"
    expect.close(got, alike, SCANNED, atol=1e-4, given="3 light and 2 dark images", hint=hint)


P1_4 = Task(
    "P1.4",
    "Export to ONNX with a dynamic batch",
    checks=(
        lenet_onnx_holds_the_trained_model,
        file_has_the_asked_names,
        file_computes_the_model,
        batch_is_dynamic,
        scanner_is_exported,
        each_image_is_inverted_by_itself,
    ),
    fallback='to_onnx(model, "lenet.onnx")\nto_onnx(Exportable(model), "scanner.onnx")',
    solution_is_fallback=True,
    varies=(EXPORT_ARGUMENT,),
    libraries=reference.TORCH_AND_ONNX,
    minutes=40,
    builds_on=("P1.3",),
)


# what `agreement` returns, and what it is
REPORTED = {
    "max_abs": "the largest |torch - onnx| over all images and logits",
    "mean_abs": "the mean of |torch - onnx| over all images and logits",
    "rms": "the square root of the mean of (torch - onnx)^2 over all images and logits",
    "max_rel": "the largest |torch - onnx| / |torch|: divide by |torch|, and by nothing else",
    "same_predictions": "is the argmax of every row the same? A single Boolean for all images together",
}


def _check_agreement(
    submission: Submission,
    weights: reference.Weights,
    file_weights: reference.Weights,
    images: np.ndarray,
    *names: str,
    given: str = "a file whose weights differ slightly from the model's",
) -> None:
    """Check what `agreement` says, by these names, of a model with some weights and a file with others."""
    ours, theirs = (reference.lenet(each, images) for each in (weights, file_weights))
    difference, same = np.abs(ours - theirs).astype(np.float64), ours.argmax(1) == theirs.argmax(1)
    right = {"max_abs": difference.max(), "mean_abs": difference.mean(), "rms": np.sqrt(np.mean(difference**2))}
    right |= {"max_rel": (difference / np.abs(ours)).max(), "same_predictions": same.all()}
    path = write_fresh(submission.scratch / "other.onnx", reference.lenet_onnx(file_weights, fused=True))
    report = submission.call("agreement", lenet_with(submission, weights), str(path), images)
    keys = (submission.parameters.absolute, "max_rel", "same_predictions")
    report = expect.mapping(report, keys, "what `agreement` returns")
    for name in names:
        with expect.case(given, REPORTED[name]):
            want, value = right[name].item(), np.asarray(report[name])
            boolean = (value.dtype == bool and not value.ndim) or not isinstance(want, bool)
            expect.true(boolean, f"`{name}` is no Boolean", expected="True or False", got=report[name])
            near = abs(expect.number(report[name], f"`{name}`") - want) <= (0.05 * want if name in DIFFER else 1e-6)
            expect.true(near, f"`{name}` is wrong", expected=f"{want:.3g}", got=report[name])


def _large_logit_images(submission: Submission, weights: reference.Weights, count: int, scale: float) -> np.ndarray:
    """Images whose logits are all far from zero, so that all sensible definitions of a relative error agree."""
    images = np.float32(scale) * random_images(submission, 60 * count)
    smallest = np.abs(reference.lenet(weights, images)).min(axis=1)
    return images[np.argsort(-smallest)[:count]]


def _small_logit_image(submission: Submission, weights: reference.Weights, other: reference.Weights) -> np.ndarray:
    """Return an image [1,1,32,32] of which one logit is much smaller than that of the other weights.

    It is large enough not to depend on the order in which float32 numbers are added.
    """
    images = random_images(submission, 600)
    ours, theirs = (np.abs(reference.lenet(each, images)) for each in (weights, other))
    ratio = np.where(ours > 2e-4, theirs / ours, 0).max(1)
    return images[[int(np.argmax(ratio))]]


@points(5)
def differences_are_measured(submission: Submission) -> None:
    """`agreement` returns the {{ {"mean_abs": "mean absolute and largest", "rms": "quadratic mean of the absolute and the largest"}.get(absolute, "largest absolute and") }} relative differences over all images."""  # noqa: E501 a template
    weights = reference.random_weights(submission.rng)
    # the largest difference occurs in the last image, so none may be left out
    images = np.concatenate([_large_logit_images(submission, weights, n, scale) for n, scale in ((8, 3), (1, 30))])
    other = {name: value * (1 + np.float32(1e-3) * submission.normal(*value.shape)) for name, value in weights.items()}
    # Swapping changes the sign of the differences, negating that of the logits: one of them exposes a missing abs().
    for pair in ((weights, other), (other, weights), (_scaled(weights, -1), _scaled(other, -1))):
        _check_agreement(submission, *pair, images, submission.parameters.absolute, "max_rel")
    _check_agreement(submission, weights, other, _small_logit_image(submission, weights, other), "max_rel")


def _scaled(weights: reference.Weights, factor: float) -> reference.Weights:
    """Return weights for which all logits are this many times as large."""
    return {name: np.float32(factor) * value if name[:3] == "fc3" else value for name, value in weights.items()}


@points(4)
def changed_predictions_are_noticed(submission: Submission) -> None:
    """`agreement` reports whether all predictions are the same."""
    weights = reference.random_weights(submission.rng)
    images = random_images(submission, 12)
    changed, changed_images = _with_one_changed_prediction(submission, weights)
    cases = (
        (weights, images, "the same weights"),
        (_scaled(weights, 1.5), images, "logits scaled by 1.5, which changes no prediction"),
        (changed, changed_images, "a file that classifies one image of twelve differently"),
        (changed, changed_images[::-1].copy(), "a file that classifies one image of twelve differently"),
    )
    for index in submission.rng.permutation(len(cases)):
        *case, given = cases[index]
        _check_agreement(submission, weights, *case, "same_predictions", given=given)


def _with_one_changed_prediction(
    submission: Submission, weights: reference.Weights
) -> tuple[reference.Weights, np.ndarray]:
    """Return weights that change the prediction of one of twelve images but no column's argmax, and those images.

    Only one class's bias in the last layer is raised. That shifts a column of logits by a constant: enough for the
    image closest to this class, too little for the next closest.
    """
    images = random_images(submission, 12)
    logits = reference.lenet(weights, images)
    margins = logits.max(1, keepdims=True) - logits
    closest, second = np.sort(np.where(margins > 0, margins, 2 * margins.max()), axis=0)[:2]
    best = int(np.argmax(second - closest))
    bias = weights["fc3.bias"].copy()
    bias[best] += (closest[best] + second[best]) / 2
    return weights | {"fc3.bias": bias}, images


P1_5 = Task(
    "P1.5",
    "Show that torch and ONNX Runtime agree",
    varies=(ABSOLUTE,),
    libraries=reference.TORCH_AND_ONNX,
    minutes=20,
    builds_on=("P1.4",),
)
