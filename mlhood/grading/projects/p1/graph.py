"""Checks of P1.4 to P1.6: the exported ONNX file, its agreement with torch, and the operator table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.oracle import OnnxFacts, onnx_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.network import lenet_with, logits, random_images
from mlhood.grading.rpc.file_channel import write_fresh
from mlhood.models import digits


def _exported(submission: Submission) -> tuple[OnnxFacts, reference.Weights, np.ndarray]:
    """An untrained model exported by the student's function, its weights, and the images that ran through the file."""
    return submission.once("exported", lambda: _export(submission))


def _export(submission: Submission) -> tuple[OnnxFacts, reference.Weights, np.ndarray]:
    weights, images = reference.random_weights(submission.rng), random_images(submission, 7)
    model = lenet_with(submission, weights)
    path = submission.scratch / "exported.onnx"
    path.unlink(missing_ok=True)
    submission.call("to_onnx", model, str(path))
    facts = onnx_facts(submission.written(path), images, what="the file that `to_onnx` writes")
    return facts, weights, images


@points(3)
def file_has_the_asked_names(submission: Submission) -> None:
    """`to_onnx` writes a single, complete ONNX file with input `image` and output `logits`."""
    facts, _, _ = _exported(submission)
    what = "the graph's input has the wrong name"
    expect.equal([value.name for value in facts.inputs], ["image"], what, hint="input_names=['image']")
    what = "the graph's output has the wrong name"
    expect.equal([value.name for value in facts.outputs], ["logits"], what, hint="output_names=['logits']")


@points(4)
def file_computes_the_model(submission: Submission) -> None:
    """ONNX Runtime computes the same logits from the file as torch does from the model."""
    facts, weights, images = _exported(submission)
    hint = "export the model passed in, unchanged and with its weights"
    expect.close(facts.results[0], reference.lenet(weights, images), "the exported model", atol=1e-4, hint=hint)


@points(4)
def batch_is_dynamic(submission: Submission) -> None:
    """The exported graph accepts a batch of any size."""
    facts, _, _ = _exported(submission)
    dim = facts.inputs[0].first
    hint = "dynamic_shapes=({0: 'batch'},) or, with dynamo=False, dynamic_axes={'image': {0: 'batch'}, …}"
    expected = "a symbolic dimension, such as 'batch'"
    expect.true(not isinstance(dim, int), "the batch size is fixed in the file", expected=expected, got=dim, hint=hint)
    expect.equal(facts.results[0].shape, (7, 10), "the output does not have one row per image", given="a batch of 7")


@points(3)
def lenet_onnx_holds_the_trained_model(submission: Submission) -> None:
    """`lenet.onnx` contains the trained model."""
    images = digits().test_images[:32]
    facts = onnx_facts(submission.file("lenet.onnx"), images, what="`lenet.onnx`")
    want = logits(submission, "model", images)
    got = expect.array(facts.results[0], want.shape, "what `lenet.onnx` computes")
    expect.true(
        np.allclose(got, want, rtol=1e-3, atol=1e-3),
        "`lenet.onnx` does not compute what `model` computes",
        expected=f"logits up to {np.abs(want).max():.1f}",
        got=f"they differ by up to {np.abs(got - want).max():.3g}",
        hint="was it exported before training, or from a different model? Export `model` again after training",
    )


def _agreement(submission: Submission, file_weights: reference.Weights, model: object, images: np.ndarray) -> dict:
    path = submission.scratch / "other.onnx"
    write_fresh(path, reference.lenet_onnx(file_weights))
    report = submission.call("agreement", model, str(path), images)
    return dict(expect.mapping(report, ("max_abs", "max_rel", "same_predictions"), "what `agreement` returns"))


def _large_logit_images(submission: Submission, weights: reference.Weights, count: int, scale: float) -> np.ndarray:
    """Images whose logits are all far from zero, so that all sensible definitions of a relative error agree."""
    images = np.float32(scale) * random_images(submission, 60 * count)
    smallest = np.abs(reference.lenet(weights, images)).min(axis=1)
    return images[np.argsort(-smallest)[:count]]


def _perturbed(weights: reference.Weights, rng: np.random.Generator, relative: float) -> reference.Weights:
    return {
        name: (value * (1 + relative * rng.standard_normal(value.shape))).astype(np.float32)
        for name, value in weights.items()
    }


@points(6)
def differences_are_measured(submission: Submission) -> None:
    """`agreement` returns the largest absolute and relative differences over all images."""
    weights = reference.random_weights(submission.rng)
    # The largest difference occurs in the last image, so none may be left out.
    images = np.concatenate(
        [_large_logit_images(submission, weights, count, scale) for count, scale in ((8, 3), (1, 30))]
    )
    other = _perturbed(weights, submission.rng, 1e-3)
    # Swapping changes the sign of the differences, negating that of the logits: one of them exposes a missing abs().
    for torch_weights, file_weights in ((weights, other), (other, weights), (_negated(weights), _negated(other))):
        want = reference.lenet(torch_weights, images)
        difference = np.abs(want - reference.lenet(file_weights, images))
        report = _agreement(submission, file_weights, lenet_with(submission, torch_weights), images)
        _near(report["max_abs"], difference.max(), "max_abs", "the largest |torch - onnx| over all images and logits")
        _near(report["max_rel"], (difference / np.abs(want)).max(), "max_rel", "the largest |torch - onnx| / |torch|")


def _negated(weights: reference.Weights) -> reference.Weights:
    """Weights for which all logits change their sign."""
    return {name: -value if name.startswith("fc3") else value for name, value in weights.items()}


def _near(value: object, want: float, name: str, meaning: str) -> None:
    got = expect.number(value, f"`{name}`")
    expect.true(
        abs(got - want) <= 0.05 * want,
        f"`{name}` is wrong",
        expected=f"about {want:.3g}",
        got=f"{got:.3g}",
        given="a file whose weights differ slightly from the model's",
        hint=meaning,
    )


@points(4)
def changed_predictions_are_noticed(submission: Submission) -> None:
    """`agreement` reports whether all predictions are the same."""
    weights = reference.random_weights(submission.rng)
    model = lenet_with(submission, weights)
    images = random_images(submission, 12)
    scaled = {name: 1.5 * value if name.startswith("fc3") else value for name, value in weights.items()}
    changed, changed_images = _with_one_changed_prediction(submission, weights)
    cases = (
        (weights, images, True, "the same weights"),
        (scaled, images, True, "logits scaled by 1.5, which changes no prediction"),
        (changed, changed_images, False, "a file that classifies one image of twelve differently"),
        (weights, changed_images, True, "the same weights"),
        (changed, changed_images[::-1].copy(), False, "a file that classifies one image of twelve differently"),
    )
    for index in submission.rng.permutation(len(cases)):
        file_weights, case_images, want, given = cases[index]
        report = _agreement(submission, file_weights, model, case_images)
        hint = "a single Boolean for all images: do all predictions agree? (.all())"
        got = bool(expect.number(report["same_predictions"], "`same_predictions`", hint=hint))
        expect.equal(
            got,
            want,
            "`same_predictions` is wrong",
            given=given,
            hint="take the argmax of every row, and test whether all of them agree",
        )


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


def _columns(submission: Submission, path: Path, *names: str) -> dict[str, list]:
    """Return columns of the student's table for the graph in `path`."""
    table = submission.call("operator_table", str(path))
    columns = {str(name): list(table[name]) for name in getattr(table, "columns", ())}
    hint = "return a pandas DataFrame with these columns (reset_index() turns an index into a column)"
    expect.mapping(columns, names, "what `operator_table` returns", hint=hint)
    return columns


def _totals(submission: Submission, path: Path, column: str) -> dict[str, float]:
    """Sum a column of the student's table by operator."""
    columns = _columns(submission, path, "op", column)
    totals: dict[str, float] = {}
    for op, value in zip(columns["op"], columns[column], strict=True):
        totals[str(op)] = totals.get(str(op), 0.0) + expect.number(value, f"the column `{column}`")
    return totals


def _unseen_network(submission: Submission) -> tuple[Path, reference.CnnFacts]:
    data, facts = reference.small_cnn_onnx(submission.rng)
    return write_fresh(submission.scratch / "unseen.onnx", data), facts


def _check_totals(submission: Submission, column: str, hint: str) -> None:
    path, facts = _unseen_network(submission)
    got = _totals(submission, path, column)
    for op, want in getattr(facts, column).items():
        given = "a small network that you have not seen"
        expect.equal(got.get(op, 0.0), float(want), f"the {column} of {op} are wrong", given=given, hint=hint)


@points(2)
def rows_follow_the_graph(submission: Submission) -> None:
    """`operator_table` has one row per node, in graph order, with the node's output shape."""
    path, facts = _unseen_network(submission)
    columns = _columns(submission, path, "op", "output")
    expect.equal([str(op) for op in columns["op"]], list(facts.operators), "the rows are not the nodes in graph order")
    for op, got, want in zip(facts.operators, columns["output"], facts.outputs, strict=True):
        numbers = [int(text) for text in re.findall(r"\d+", str(got))]
        expect.true(
            tuple(numbers[-len(want) :]) == want,
            f"the `output` of {op} is wrong",
            expected=f"[1, {', '.join(map(str, want))}]",
            got=got,
            hint="shapes_of(model)[node.output[0]]",
        )


@points(3)
def parameters_are_counted(submission: Submission) -> None:
    """`operator_table` counts the parameters of each operator, for any graph."""
    hint = "add up the sizes of the node's inputs that are float initializers, bias included"
    _check_totals(submission, "parameters", hint)


@points(4)
def multiply_accumulates_are_counted(submission: Submission) -> None:
    """`operator_table` counts the multiply-accumulates of each operator, for any graph."""
    hint = "for one image. Conv: output pixels x size of the weight; Gemm: size of the weight; all others: 0"
    _check_totals(submission, "macs", hint)


@points(5)
def questions_are_answered(submission: Submission) -> None:
    """`answers` names the operators with the most parameters and the most multiply-accumulates."""
    answers = expect.mapping(submission.value("answers"), ("most_parameters", "most_macs"), "`answers`")
    for key, column, truth, hint in (
        ("most_parameters", "parameters", "Gemm", "add up by operator type: one dense layer alone has 48,120"),
        ("most_macs", "macs", "Conv", "add up by operator type: a convolution reuses its kernel at every output pixel"),
    ):
        allowed = {truth.lower(), _from_own_table(submission, column)}
        got = str(answers[key]).strip()
        expect.true(
            got.lower() in allowed, f"`answers['{key}']` is wrong for LeNet", expected=truth, got=got, hint=hint
        )


def _from_own_table(submission: Submission, column: str) -> str:
    """The answer by the student's own table: a wrong table read correctly costs only the table's points."""
    try:
        totals = _totals(submission, submission.file("lenet.onnx").resolve(), column)
    except expect.CheckFailed:
        return ""
    heaviest = max(totals, key=lambda op: totals[op], default="").lower()
    return heaviest if heaviest in ("conv", "gemm", "relu", "maxpool") and any(totals.values()) else ""


EXPORT_STAND_IN = """
import numpy as _np
from mlhood.exchange import export as _export
def to_onnx(model, path):
    _export(model, _np.zeros((2, 1, 32, 32), _np.float32), path)
to_onnx(model, "lenet.onnx")
"""

TASKS = (
    Task(
        "P1.4",
        "Export to ONNX with a dynamic batch",
        checks=(
            lenet_onnx_holds_the_trained_model,  # first, before a call can write over the file
            file_has_the_asked_names,
            file_computes_the_model,
            batch_is_dynamic,
        ),
        stand_in=EXPORT_STAND_IN,
    ),
    Task(
        "P1.5",
        "Show that torch and ONNX Runtime agree",
        checks=(differences_are_measured, changed_predictions_are_noticed),
    ),
    Task(
        "P1.6",
        "Read the graph into a table",
        checks=(
            rows_follow_the_graph,
            parameters_are_counted,
            multiply_accumulates_are_counted,
            questions_are_answered,
        ),
    ),
)
