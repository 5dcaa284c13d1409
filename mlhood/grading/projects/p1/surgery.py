"""Checks of P1.6 to P1.9: the graph as a table, its forks, one built by hand, and one cut before its last layer."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.oracle import onnx_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.network import random_images, random_name
from mlhood.grading.rpc.codec import Onnx
from mlhood.grading.rpc.server import write_fresh
from mlhood.grading.variants.parameter import Parameter

# the column of the table that says what an operator has to do
WORK = Parameter("work_column", ("macs", "flop", "macs_of_8"))


def _drawn(submission: Submission, column: str) -> tuple[dict[str, list], dict[str, list]]:
    """Return columns of the student's table for a network that nobody has seen, and of the solution's."""
    model = reference.small_cnn_onnx(submission.rng)
    with tempfile.TemporaryDirectory() as folder:  # where no student's code writes
        right = submission.solution("operator_table", str(write_fresh(Path(folder, "unseen.onnx"), model)))
    got = _columns(submission, write_fresh(submission.scratch / "unseen.onnx", model), column)
    return got, {name: right[name].tolist() for name in ("op", column)}


def _columns(submission: Submission, path: Path, column: str) -> dict[str, list]:
    """Return the operators and another column of the student's table for the graph in `path`."""
    table = submission.call("operator_table", str(path))
    columns = {str(name): list(table[name]) for name in getattr(table, "columns", ())}
    expect.mapping(columns, ("op", column), "the columns of `operator_table`, a pandas DataFrame")
    if column != "output":
        columns[column] = [expect.integer(n, f"the column `{column}` of `operator_table`") for n in columns[column]]
    return {"op": list(map(str, columns["op"])), column: columns[column]}


def _totals(columns: dict[str, list]) -> Counter[str]:
    """Sum a column by operator."""
    totals: Counter[str] = Counter()
    for op, value in zip(*columns.values(), strict=True):
        totals[op] += value
    return totals


def _check_totals(submission: Submission, column: str, hint: str) -> None:
    got, want = map(_totals, _drawn(submission, column))
    for op, count in want.items():
        given = "a small network that you have not seen"
        expect.equal(got[op], count, f"the {column} of {op} are wrong", given=given, hint=hint)


@points(2, solved=True)
def rows_follow_the_graph(submission: Submission) -> None:
    """`operator_table` has one row per node, in graph order, with the node's output shape."""
    got, want = _drawn(submission, "output")
    expect.equal(got["op"], want["op"], "the rows are not the nodes in graph order")
    hint = "`shapes_of` knows the shape of each value by its name, with a batch of 1; a node names its outputs in order"
    for op, output, right in zip(want["op"], got["output"], want["output"], strict=True):
        output = list(output) if isinstance(output, tuple) else output
        expect.equal(output, right, f"the `output` of {op} is wrong", hint=hint)


@points(3, solved=True)
def parameters_are_counted(submission: Submission) -> None:
    """`operator_table` counts the parameters of each operator, for any graph."""
    hint = "add up the sizes of the node's inputs that are float initializers, bias included, shared or not"
    _check_totals(submission, "parameters", hint)


@points(4, solved=True)
def multiply_accumulates_are_counted(submission: Submission) -> None:
    """`operator_table` counts the {{ {"flop": "operations", "macs_of_8": "multiply-accumulates for eight images"}.get(work_column, "multiply-accumulates") }} of each operator, for any graph."""  # noqa: E501 a template
    hint = (
        "count for one output number first: how many products are in its sum? Then: how many such numbers are there? "
        "The input's size does not matter, padding, strides and groups show in the shapes"
    )
    _check_totals(submission, submission.parameters.work_column, hint)


@points(3)
def questions_are_answered(submission: Submission) -> None:
    """`answers` names the operators with the most parameters and the most {{ "operations" if work_column == "flop" else "multiply-accumulates" }}."""  # noqa: E501 a template
    work = submission.parameters.work_column
    answers = expect.mapping(submission.value("answers"), ("most_parameters", f"most_{work}"), "`answers`")
    for column, truth, hint in (
        ("parameters", "Gemm", "all layers of a type together, not the largest alone"),
        (work, "Conv", "which one reuses its weight, and how often?"),
    ):
        got, what = str(answers[f"most_{column}"]).strip(), f"`answers['most_{column}']` is wrong for LeNet"
        right = got.lower() in (truth.lower(), _from_own_table(submission, column))
        expect.true(right, what, expected=truth, got=got, hint=f"add up by operator type: {hint}")


def _from_own_table(submission: Submission, column: str) -> str:
    """The answer by the student's own table, if it has the right rows: a wrong count costs only the table's points."""
    if not submission.passed(rows_follow_the_graph):
        return ""
    path = write_fresh(submission.scratch / "lenet.onnx", submission.file("lenet.onnx").read_bytes())
    totals = _totals(_columns(submission, path, column))
    return max(totals, key=lambda op: totals[op]).lower()


P1_6 = Task(
    "P1.6",
    "Read the graph into a table",
    varies=(WORK,),
    libraries=reference.TORCH_AND_ONNX,
    minutes=35,
    builds_on=("P1.4",),
)


# how many nodes at least read a value that `forks` returns
READERS = Parameter("readers", (2, 3))
# what the graph of P1.8 computes before its activation
FORMULA = Parameter("formula", ("x @ weight + bias", "x @ weight.T + bias", "bias - x @ weight", "x @ weight - bias"))
# how many nodes `cut` removes
CUT = Parameter("cut_nodes", (1, 2, 3))


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
    again = iter(
        [0, *rng.permutation([0, 1, 1, 2, 2])]
    )  # with the chain and the Split, read three, two and three times
    for kind in rng.permutation(["weight", "same"] * others + ["earlier"] * 6):
        other = {"weight": weight, "same": values[-1]}.get(kind) or values[next(again)]
        nodes.append(helper.make_node("Add", [values[-1], other], [random_name(rng)]))
        values += nodes[-1].output
    first, *results = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in values)
    stored = numpy_helper.from_array(np.ones(2, np.float32), weight)
    graph = helper.make_graph(nodes, "forked", [first], results, [stored])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


FORKED = "a Split, and a chain of Add: each adds an earlier value, a weight, or the same value"


@compared(
    5,
    "forks",
    call=_call_forks,
    given=lambda *_: FORKED,
    hint="how many nodes have each value among their inputs? The graph's input comes first, then each node's outputs",
)
def forks_are_found(submission: Submission) -> Iterator[Arguments]:
    """`forks` returns the names of the values that {{ "more than one node reads" if readers == 2 else "at least three nodes read" }}, in the order of the graph."""  # noqa: E501 a template
    return _forked_files(submission, 0)


@compared(
    3,
    "forks",
    call=_call_forks,
    given=lambda *_: FORKED,
    hint="a weight is no value, and a node that reads a value twice is one",
)
def readers_are_nodes_of_values(submission: Submission) -> Iterator[Arguments]:
    """A node that reads a value twice is one reader, and weights do not count."""
    return _forked_files(submission, 2)


P1_7 = Task(
    "P1.7",
    "Find where a graph forks",
    varies=(READERS,),
    libraries=reference.TORCH_AND_ONNX,
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
    """`build_graph` returns a graph of two operators, Gemm and Relu, from `x` to `y`."""
    weight, bias = _draw_layer(submission)
    data = _build_graph(submission, weight, bias)
    facts = onnx_facts(submission.parser, data, what="what `build_graph` returns")
    batch = facts.inputs[0].first if facts.inputs else None  # whether it is fixed is asked by another check
    ports = {
        side: {
            value.name: ["batch" if n == batch else n for n in value.dims[:1]] + [*value.dims[1:]] for value in values
        }
        for side, values in (("inputs", facts.inputs), ("outputs", facts.outputs))
    }
    got = {"operators": facts.operators, **ports, "versions": facts.versions}
    sizes = [["batch", size] for size in weight.shape]
    want = {
        "operators": ("Gemm", "Relu"),
        "inputs": {"x": sizes[0]},
        "outputs": {"y": sizes[1]},
    }
    hint = (
        "weight and bias are initializers: the only input is x, the only output y, both of one batch; the versions are "
    )
    hint += "those of the IR and of the operators"
    what, given = "the graph that `build_graph` returns is another one", f"a weight of shape {weight.shape}"
    expect.equal(got, want | {"versions": (10, 18)}, what, given=given, hint=hint)
    held = all(any(form.tobytes() in data for form in (each, each.T)) for each in (weight, bias))
    what = "the graph does not hold the weight and the bias that are passed in"
    expect.true(held, what, expected="both as float32 initializers", hint="initializers are made from arrays")


@points(4)
def graph_computes_the_layer(submission: Submission) -> None:
    """The graph computes relu({{ formula }}) for a batch of any size."""
    formula = submission.parameters.formula
    weight, bias = _draw_layer(submission)
    x = submission.normal(6, len(weight))
    facts = onnx_facts(submission.parser, _build_graph(submission, weight, bias), x, what="what `build_graph` returns")
    hint = "which axis of the weight does Gemm sum over, with and without transB? It has factors alpha and beta, too"
    signs = {"bias - x @ weight": (-1, 1), "x @ weight - bias": (1, -1)}.get(formula, (1, 1))
    want = np.maximum(signs[0] * x @ weight + signs[1] * bias, 0)
    expect.close(facts.results[0], want, f"relu({formula})", given=f"x {x.shape}", hint=hint)
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
    varies=(FORMULA,),
    libraries=reference.TORCH_AND_ONNX,
    minutes=25,
)


_LAST = {1: "the last node", 2: "the last node but one", 3: "the last node but two"}


def _cut(submission: Submission, data: bytes, nodes: int, feed: np.ndarray) -> np.ndarray:
    """Cut a network of that many nodes; check that the last are gone and one output remains; return its result."""
    removed = submission.parameters.cut_nodes
    path, shorter = submission.scratch / "whole.onnx", submission.scratch / "shorter.onnx"
    write_fresh(path, data)
    shorter.unlink(missing_ok=True)
    submission.call("cut", str(path), str(shorter))
    expect.true(path.read_bytes() == data, "`cut` changes the file that it reads", hint="only `shorter` is written")
    facts = onnx_facts(submission.parser, submission.written(shorter), feed, what="the file that `cut` writes")
    hint = f"the graph's output must become the value that {_LAST[removed]} reads, with the shape of the features"
    expect.equal(len(facts.outputs), 1, "the cut network has more than one output", hint=hint)
    what, expected = f"{_LAST[removed]} is still in the graph", f"at most {nodes - removed} nodes"
    expect.true(len(facts.operators) <= nodes - removed, what, expected=expected, got=len(facts.operators), hint=hint)
    declared, result = facts.outputs[0].dims, facts.results[0]
    pairs = zip(declared[1:], result.shape[1:], strict=False)
    fits = len(declared) in (0, result.ndim) and all(not isinstance(dim, int) or dim == size for dim, size in pairs)
    what = "the declared output shape is not that of the features"
    expect.true(fits, what, expected=result.shape, got=declared, hint=hint)
    return result


@points(5)
def features_come_out_of_lenet(submission: Submission) -> None:
    """LeNet cut before its last {{ "layer outputs the 84 features that this layer reads" if cut_nodes == 1 else "%d nodes outputs what the first of them reads"|format(cut_nodes) }}."""  # noqa: E501 a template
    weights, removed = reference.random_weights(submission.rng), submission.parameters.cut_nodes
    images = random_images(submission, 5)
    hint = f"which value does {_LAST[removed]} read? Of the last node, it is what comes after the ReLU"
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
    libraries=reference.TORCH_AND_ONNX,
    minutes=20,
    builds_on=("P1.4",),
)
