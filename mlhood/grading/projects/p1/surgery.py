"""Checks of P1.7 to P1.9: a graph's forks, one built by hand, and one cut before its last layer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, comparison
from mlhood.grading.checks.oracle import OnnxFacts, onnx_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.libraries import TORCH_AND_ONNX
from mlhood.grading.projects.p1.network import random_images, random_name
from mlhood.grading.rpc.codec import Onnx
from mlhood.grading.rpc.server import write_fresh
from mlhood.grading.variants.parameter import Parameter

# how many nodes at least read a value that `forks` returns
READERS = Parameter("readers", (2, 3))
# what the graph of P1.8 computes before its activation
FORMULA = Parameter("formula", ("x @ weight + bias", "x @ weight.T + bias", "bias - x @ weight", "x @ weight - bias"))
ACTIVATION = Parameter("activation", ("Relu", "Sigmoid", "Tanh"))
# how many nodes `cut` removes
CUT = Parameter("cut_nodes", (1, 2, 3))

ACTIVATIONS = {"Relu": lambda x: np.maximum(x, 0), "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Tanh": np.tanh}


def _call_forks(submission: Submission, path: str) -> Any:
    """Call `forks` with a copy of a file of the grader."""
    copy = submission.scratch / "forked.onnx"
    write_fresh(copy, Path(path).read_bytes())
    return submission.call("forks", str(copy))


def _forked_files(submission: Submission, others: int) -> Iterator[Arguments]:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            path = Path(folder, f"forked-{number}.onnx")
            path.write_bytes(_forked_onnx(submission.rng, others))
            yield (str(path),)


def _forked_onnx(rng: np.random.Generator, others: int) -> bytes:
    """Draw a chain of additions to what the node before returns: an earlier value; by `others`, a weight or the same.

    It begins behind a node with two results, which are used again like its input. All values are results of the graph,
    which is no node.
    """
    weight, *values = (random_name(rng) for _ in range(4))
    nodes = [helper.make_node("Split", values[:1], values[1:], num_outputs=2)]
    again = iter([0, *rng.permutation([0, 1, 2, 2])])
    for kind in rng.permutation(["weight", "same"] * others + ["earlier"] * 5):
        other = {"weight": weight, "same": values[-1]}.get(kind) or values[next(again)]
        nodes.append(helper.make_node("Add", [values[-1], other], [random_name(rng)]))
        values += nodes[-1].output
    first, *results = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in values)
    stored = numpy_helper.from_array(np.ones(2, np.float32), weight)
    graph = helper.make_graph(nodes, "forked", [first], results, [stored])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


FORKS = tuple(
    comparison(
        name,
        title,
        value,
        "forks",
        _forked_files,
        others,
        call=_call_forks,
        given=lambda *_: "a Split, and a chain of Add: each adds an earlier value, a weight, or the same value",
        hint=hint,
    )
    for name, title, value, others, hint in (
        (
            "forks_are_found",
            "`forks` returns the names of the values that {{ "
            '"more than one node reads" if readers == 2 else "at least three nodes read" }}, in the order of the graph',
            5,
            0,
            "how many nodes have each value among their inputs? The graph's input comes first, then the outputs of its "
            "nodes, one node after the other",
        ),
        (
            "readers_are_nodes_of_values",
            "A node that reads a value twice is one reader, and weights do not count",
            3,
            2,
            "a weight is no value, and a node that reads a value twice is one",
        ),
    )
)


P1_7 = Task(
    "P1.7",
    "Find where a graph forks",
    checks=FORKS,
    varies=(READERS,),
    libraries=TORCH_AND_ONNX,
    minutes=20,
    builds_on=("P1.4",),
)


def _draw_layer(submission: Submission) -> tuple[np.ndarray, np.ndarray]:
    inputs, outputs = (int(n) for n in submission.rng.permutation(np.arange(3, 9))[:2])
    return submission.normal(inputs, outputs), submission.normal(outputs)


def _build_graph(submission: Submission, weight: np.ndarray, bias: np.ndarray) -> bytes:
    transposed = submission.parameters.formula == "x @ weight.T + bias"
    data = submission.call("build_graph", weight.T.copy() if transposed else weight, bias)
    hint = "the helper of onnx makes a model around a graph"
    what = "`build_graph` does not return a model"
    expect.true(isinstance(data, bytes), what, expected="an onnx.ModelProto", got=data, hint=hint)
    return data


@points(2)
def graph_has_two_operators(submission: Submission) -> None:
    """`build_graph` returns a graph of two operators, Gemm and {{ activation }}, from `x` to `y`."""
    activation = submission.parameters.activation
    weight, bias = _draw_layer(submission)
    data = _build_graph(submission, weight, bias)
    facts = onnx_facts(submission.parser, data, what="what `build_graph` returns")
    expect.equal(facts.operators, ("Gemm", activation), "the graph that `build_graph` returns has the wrong operators")
    hint = "weight and bias are initializers: the graph's only input is x, its only output y"
    what = "the graph that `build_graph` returns has other inputs and outputs"
    expect.equal([value.name for value in (*facts.inputs, *facts.outputs)], ["x", "y"], what, hint=hint)
    with expect.case(f"a weight of shape {weight.shape}"):
        _check_declarations(facts, weight.shape)
    weight_held, bias_held = (any(form.tobytes() in data for form in (each, each.T)) for each in (weight, bias))
    what = "the graph does not hold the weight and the bias that are passed in"
    expected, got = "both as float32 initializers", {"weight": weight_held, "bias": bias_held}
    hint = "initializers are made from arrays"
    expect.true(weight_held and bias_held, what, expected=expected, got=got, hint=hint)


def _check_declarations(facts: OnnxFacts, sizes: tuple[int, ...]) -> None:
    """Check the versions that the text names, and the declared shapes of `x` and `y`."""
    what = "`build_graph` gives the model other versions than the text asks for: [IR version, version of the operators]"
    expect.equal(list(facts.versions), [10, 18], what)
    for value, size in zip((*facts.inputs, *facts.outputs), sizes, strict=False):
        what, fits = f"`build_graph` declares `{value.name}` with another shape", value.dims[1:] == (size,)
        expect.true(fits, what, expected=f"[batch, {size}]", got=list(value.dims))
    batches = [value.first for value in (*facts.inputs, *facts.outputs)]
    what = "`build_graph` declares different batches for `x` and `y`"
    expect.true(len(set(batches)) == 1, what, got=batches, hint="both have the same number of rows")


@points(4)
def graph_computes_the_layer(submission: Submission) -> None:
    """The graph computes {{ activation.lower() }}({{ formula }}) for a batch of any size."""
    formula, activation = submission.parameters.formula, submission.parameters.activation
    weight, bias = _draw_layer(submission)
    x = submission.normal(6, len(weight))
    facts = onnx_facts(submission.parser, _build_graph(submission, weight, bias), x, what="what `build_graph` returns")
    hint = "which axis of the weight does Gemm sum over, with and without transB?"
    if "-" in formula:
        hint = "Gemm multiplies the product by alpha, and what it adds by beta"
    signs = {"bias - x @ weight": (-1, 1), "x @ weight - bias": (1, -1)}.get(formula, (1, 1))
    want = ACTIVATIONS[activation](signs[0] * x @ weight + signs[1] * bias)
    what, shape = f"{activation.lower()}({formula})", weight.shape[::-1] if ".T" in formula else weight.shape
    expect.close(facts.results[0], want, what, given=f"weight {shape}", hint=hint)
    batch, what, expected = facts.inputs[0].first, "the batch size is fixed", "a symbolic dimension, such as 'batch'"
    hint = "a dimension may be a name instead of a number"
    expect.true(not isinstance(batch, int), what, expected=expected, got=batch, hint=hint)


@points(2)
def graph_is_run(submission: Submission) -> None:
    """`run_graph` runs a model on an array with ONNX Runtime."""
    weight, bias = _draw_layer(submission)
    fused = ("FusedGemm", "w", {"activation": "Tanh", "domain": reference.RUNTIME})
    ports = ("x", ["batch", len(weight)]), ("y", ["batch", len(bias)])
    model = reference.chain([fused], {"w.weight": weight, "w.bias": bias}, *ports)
    x = submission.normal(3, len(weight))
    hint = "the session of ONNX Runtime takes the model as bytes; run returns a list of the outputs"
    given = "a model of one operator, FusedGemm, with a different activation, which ONNX Runtime alone can run"
    with expect.case(given, hint):
        got = submission.call("run_graph", Onnx(model), x)
        expect.close(got, np.tanh(x @ weight + bias), "what `run_graph` returns", dtype=np.float32)


P1_8 = Task(
    "P1.8",
    "Build a graph by hand",
    varies=(FORMULA, ACTIVATION),
    libraries=TORCH_AND_ONNX,
    minutes=25,
)


_LAST = {1: "the last node", 2: "the last node but one", 3: "the last node but two"}


def _cut(submission: Submission, data: bytes, nodes: int, feed: np.ndarray) -> np.ndarray:
    """Cut a network of that many nodes; check that the last are gone and one output remains; return its result."""
    removed = submission.parameters.cut_nodes
    last = _LAST[removed]
    path, shorter = submission.scratch / "whole.onnx", submission.scratch / "shorter.onnx"
    write_fresh(path, data)
    shorter.unlink(missing_ok=True)
    submission.call("cut", str(path), str(shorter))
    expect.true(path.read_bytes() == data, "`cut` changes the file that it reads", hint="only `shorter` is written")
    facts = onnx_facts(submission.parser, submission.written(shorter), feed, what="the file that `cut` writes")
    hint = f"the input of {last} replaces the old output"
    expect.equal(len(facts.outputs), 1, "the cut network has more than one output", hint=hint)
    if len(facts.operators) > nodes - removed:
        hint = f"the graph's output must become the value that {last} reads"
        what = f"{last} is still in the graph"
        expect.fail(what, expected=f"{nodes - removed} nodes", got=len(facts.operators), hint=hint)
    declared, result = facts.outputs[0].dims, facts.results[0]
    pairs = zip(declared[1:], result.shape[1:], strict=False)
    fits = len(declared) in (0, result.ndim) and all(not isinstance(dim, int) or dim == size for dim, size in pairs)
    hint = "declare the shape of the features for the new output, not that of the logits"
    what = "the declared output shape is not that of the features"
    expect.true(fits, what, expected=result.shape, got=declared, hint=hint)
    return result


@points(5)
def features_come_out_of_lenet(submission: Submission) -> None:
    """LeNet cut before its last {{ "layer outputs the 84 features that this layer reads" if cut_nodes == 1 else "%d nodes outputs what the first of them reads"|format(cut_nodes) }}."""  # noqa: E501 a template
    weights, removed = reference.random_weights(submission.rng), submission.parameters.cut_nodes
    images = random_images(submission, 5)
    hint = "which value does the last node read? It is what comes after the ReLU, not before it"
    if removed > 1:
        hint = f"which value does {_LAST[removed]} read?"
    with expect.case("a LeNet with different weights", hint):
        got = _cut(submission, reference.lenet_onnx(weights), 12, images)
        expect.close(got, reference.lenet(weights, images, removed=removed), "the features", atol=1e-4)


@points(3)
def any_network_can_be_cut(submission: Submission) -> None:
    """A network with other names and sizes is cut {{ "before its last layer" if cut_nodes == 1 else "in the same way" }}, too."""  # noqa: E501 a template
    hidden = int(submission.rng.integers(20, 60))
    removed = submission.parameters.cut_nodes
    widths = (hidden, 30) if removed > 2 else (hidden,)
    data, shorter = reference.mlp_onnx(submission.rng, *widths, removed=removed)
    x = submission.normal(4, 784)
    hint = "look up the node and its first input in the graph: it need not be the output of the node before it"
    with expect.case(f"an MLP with {hidden} hidden units, in which a node transposes the last weight", hint):
        got = _cut(submission, data, 2 * len(widths) + 2, x)
        expect.close(got, reference.result(shorter, x), "the features", atol=1e-4)


P1_9 = Task(
    "P1.9",
    "Cut the graph and read features",
    varies=(CUT,),
    libraries=TORCH_AND_ONNX,
    minutes=20,
    builds_on=("P1.4",),
)
