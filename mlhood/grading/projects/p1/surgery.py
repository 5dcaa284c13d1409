"""Checks of P1.7 to P1.9: the graph on paper, a graph made by hand, and a graph cut before its last layer."""

from __future__ import annotations

import string
from collections import Counter

import numpy as np

from mlhood.exchange import find_browser
from mlhood.grading.checks import expect
from mlhood.grading.checks.oracle import PdfFacts, onnx_facts, pdf_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.network import random_images
from mlhood.grading.rpc.codec import Onnx
from mlhood.grading.rpc.file_channel import write_fresh

NO_BROWSER = (
    "there is no browser on this machine, and Netron draws in one: install Chrome, Chromium or Edge to print the graph"
)


def _random_name(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(string.ascii_lowercase), size=9))


def _shows(facts: PdfFacts, words: dict[str, int], what: str, hint: str) -> None:
    for word, times in words.items():
        found = facts.text.count(word)
        expect.true(
            found >= times,
            f"{what} does not show the graph: the text `{word}` is missing in it",
            expected=f"at least {times} times" if times > 1 else "at least once",
            got=found,
            hint=hint,
        )


@points(5)
def any_graph_is_printed(submission: Submission) -> None:
    """`print_graph` prints the graph of any ONNX file to a PDF whose text can be searched."""
    if find_browser() is None:
        raise expect.CheckSkipped(NO_BROWSER)
    image, scores = _random_name(submission.rng), _random_name(submission.rng)
    path, pdf = submission.scratch / "unseen-graph.onnx", submission.scratch / "unseen-graph.pdf"
    weights = reference.random_weights(submission.rng)
    write_fresh(path, reference.lenet_onnx(weights, image=image, logits=scores))
    pdf.unlink(missing_ok=True)
    submission.call("print_graph", str(path), str(pdf))
    facts = pdf_facts(submission.written(pdf), what="the PDF")
    _shows(
        facts,
        {image: 1, scores: 1, "Conv": 2, "Gemm": 3},
        "the PDF",
        "print the file that comes in: exchange.render(path, pdf)",
    )


@points(3)
def lenet_is_printed(submission: Submission) -> None:
    """`lenet.pdf` shows the graph of LeNet."""
    if find_browser() is None:
        raise expect.CheckSkipped(NO_BROWSER)
    facts = pdf_facts(submission.file("lenet.pdf"), what="`lenet.pdf`")
    drawn = Counter(onnx_facts(submission.file("lenet.onnx"), what="`lenet.onnx`").operators)
    del drawn["Constant"]  # Netron draws constants inside the nodes that read them
    _shows(facts, drawn, "`lenet.pdf`", "print your own lenet.onnx, by your own print_graph")


def _layer(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    inputs, outputs = (int(n) for n in rng.integers(3, 9, size=2))
    weight = rng.standard_normal((inputs, outputs)).astype(np.float32)
    return weight, rng.standard_normal(outputs).astype(np.float32)


def _hand_made(submission: Submission, weight: np.ndarray, bias: np.ndarray) -> bytes:
    data = submission.call("build_graph", weight, bias)
    if not isinstance(data, bytes):
        expect.fail(
            "`build_graph` does not return a model",
            expected="an onnx.ModelProto",
            got=data,
            hint="onnx.helper.make_model(graph)",
        )
    return data


@points(2)
def graph_has_two_operators(submission: Submission) -> None:
    """`build_graph` makes a graph of two operators, Gemm and Relu, from `x` to `y`."""
    facts = onnx_facts(_hand_made(submission, *_layer(submission.rng)), what="what `build_graph` returns")
    expect.equal(facts.operators, ("Gemm", "Relu"), "the graph has other operators")
    expect.equal(
        [value.name for value in (*facts.inputs, *facts.outputs)],
        ["x", "y"],
        "input and output have other names",
        hint="weight and bias are initializers, not inputs",
    )


@points(4)
def graph_computes_the_layer(submission: Submission) -> None:
    """The graph computes relu(x @ weight + bias) for a batch of any size."""
    weight, bias = _layer(submission.rng)
    x = submission.rng.standard_normal((6, len(weight))).astype(np.float32)
    facts = onnx_facts(_hand_made(submission, weight, bias), x, what="what `build_graph` returns")
    expect.close(
        facts.results[0],
        np.maximum(x @ weight + bias, 0),
        "relu(x @ weight + bias)",
        given=f"weight {weight.shape}",
        hint="here weight is [inputs, outputs], so Gemm needs no transB",
    )
    expect.true(
        not isinstance(facts.inputs[0].first, int),
        "the number of rows is fixed",
        expected="a name such as 'batch'",
        got=facts.inputs[0].first,
        hint="make_tensor_value_info('x', TensorProto.FLOAT, ['batch', inputs])",
    )


@points(2)
def graph_is_run(submission: Submission) -> None:
    """`run_graph` runs a model on an array by ONNX Runtime."""
    weight, bias = _layer(submission.rng)
    weights = {"w.weight": weight, "w.bias": bias}
    steps = [("Gemm", list(weights), {}), ("Tanh", [], {})]
    model = reference.chain(steps, weights, ("x", ["batch", len(weight)]), ("y", ["batch", len(bias)]))
    x = submission.rng.standard_normal((3, len(weight))).astype(np.float32)
    got = submission.call("run_graph", Onnx(model), x)
    got = got[0] if isinstance(got, (list, tuple)) and len(got) == 1 else got
    expect.close(
        got,
        np.tanh(x @ weight + bias),
        "what `run_graph` returns",
        given="a model with another activation",
        hint="InferenceSession(model.SerializeToString()).run(None, {'x': x})",
    )


def _cut(submission: Submission, data: bytes, nodes: int, feed: np.ndarray) -> np.ndarray:
    """What the cut network gives, once it is a network with one output and one node fewer."""
    path, shorter = submission.scratch / "whole.onnx", submission.scratch / "shorter.onnx"
    write_fresh(path, data)
    shorter.unlink(missing_ok=True)
    submission.call("cut", str(path), str(shorter))
    facts = onnx_facts(submission.written(shorter), feed, what="the file that `cut` writes")
    expect.equal(
        len(facts.outputs),
        1,
        "the cut network has more than one output",
        hint="the value before the last node takes the place of the old output",
    )
    if len(facts.operators) >= nodes:
        expect.fail(
            "the last node is still in the graph",
            expected=f"{nodes - 1} nodes",
            got=len(facts.operators),
            hint="the graph's output must become the value that enters the last node",
        )
    declared, result = facts.outputs[0].dims, facts.results[0]
    fits = not declared or (
        len(declared) == result.ndim
        and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(declared[1:], result.shape[1:], strict=True)
        )
    )
    expect.true(
        fits,
        "the output's declared shape is not that of the features",
        expected=result.shape,
        got=declared,
        hint="the new output needs its own shape, not that of the logits",
    )
    return result


@points(5)
def features_come_out_of_lenet(submission: Submission) -> None:
    """LeNet cut before its last layer gives the 84 features that enter it."""
    weights = reference.random_weights(submission.rng)
    images = random_images(submission, 5)
    got = _cut(submission, reference.lenet_onnx(weights), 12, images)
    want = reference.features(weights, images)
    hint = "features are what the last Gemm reads: after the ReLU, not before it"
    expect.close(got, want, "the features", hint=hint, atol=1e-4, given="a LeNet with other weights")


@points(3)
def any_network_can_be_cut(submission: Submission) -> None:
    """Another network, with other names and sizes, is cut before its last layer too."""
    hidden = int(submission.rng.integers(20, 60))
    data, weights = reference.mlp_onnx(submission.rng, hidden)
    x = submission.rng.standard_normal((4, 784)).astype(np.float32)
    want = np.maximum(x @ weights["a.weight"].T + weights["a.bias"], 0)
    expect.close(
        _cut(submission, data, 3, x),
        want,
        "the features",
        atol=1e-4,
        given=f"an MLP with {hidden} hidden units",
        hint="find the last node and its input in the graph instead of writing down its name",
    )


TASKS = (
    Task(
        "P1.7",
        "Print the graph from Netron",
        checks=(lenet_is_printed, any_graph_is_printed),
    ),
    Task(
        "P1.8",
        "Build a graph by hand",
        checks=(graph_has_two_operators, graph_computes_the_layer, graph_is_run),
    ),
    Task(
        "P1.9",
        "Cut the graph and read features",
        checks=(features_come_out_of_lenet, any_network_can_be_cut),
    ),
)
