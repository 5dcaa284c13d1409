"""Checks of P2.2: the student's import rules, on models with all attributes and with none."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.backends.interpreter import run
from mlhood.compiler.onnx.importer import import_model
from mlhood.grading.checks import expect
from mlhood.grading.checks.oracle import graph_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER
from mlhood.grading.projects.p2.loops import PROBES, function
from mlhood.grading.projects.p2.shapes import check_raised
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.variants.parameter import Parameter

# what the rules of MaxPool and Conv refuse
REFUSED = Parameter("refused", ("nothing", "auto_pad", "dilations", "uneven pads"))
# attributes of nodes that are to be refused
REFUSALS: dict[str, tuple[dict[str, Any], ...]] = {
    "auto_pad": ({"auto_pad": "SAME_UPPER"}, {"auto_pad": "VALID"}),
    "dilations": ({"dilations": [2, 1]}, {"dilations": [1, 3]}),
    "uneven pads": ({"pads": [1, 0, 0, 0]}, {"pads": [0, 1, 0, 2]}, {"pads": [0, 1, 1, 0]}),
}

IMPORT = "mlhood.compiler.onnx.importer:import_model"

Weights = dict[str, np.ndarray | None]  # by name; None for an input that the node leaves out, by an empty name
Case = tuple[Weights, dict[str, Any], str]  # weights, attributes of the node, and the hint on failure


def _model(op: str, shape: tuple[int, ...], weights: Weights, attributes: dict[str, Any]) -> bytes:
    """Build a model of one node from x to y."""
    node = helper.make_node(op, ["x", *weights], ["y"], name=f"the_{op.lower()}", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape[1:]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items() if value is not None]
    graph = helper.make_graph([node], "one node", [x], [y], tensors)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def _check(submission: Submission, op: str, rule: str, cases: list[Case]) -> None:
    """Import one-node models by the student's rule and compare their results with those of the package's rule."""
    rules, shape, pairs, right = {op: function(submission, rule)}, (2, 4, 9, 11), [], []
    cases = [
        (weights, _accepted(attributes, submission.parameters.refused), hint) for weights, attributes, hint in cases
    ]
    for weights, attributes, hint in cases:
        x, data = submission.normal(*shape), _model(op, shape, weights, attributes)
        with expect.case(_given(op, weights, attributes), hint):
            hir = submission.call(IMPORT, data, rules=rules)
        expect.true(isinstance(hir, Hir), f"`{rule}` does not produce a graph", got=hir)
        pairs.append((hir, {"x": x}))
        right.append(run(import_model(data), x=x)["y"])
    graphs = graph_facts(submission.parser, pairs, what=f"the graph that `{rule}` produces")
    for facts, want, (weights, attributes, hint) in zip(graphs, right, cases, strict=True):
        with expect.case(_given(op, weights, attributes), hint):
            operators = [node.operator for node in facts.nodes]
            expect.equal(operators, [op], f"`{rule}` adds other nodes", hint="a rule adds one node")
            expect.close(facts.results.get("y"), want, f"the result of the node that `{rule}` adds", atol=1e-4)
    hint = "read the attribute, and raise ValueError(...) if it is wrong"
    weights, attributes, _ = cases[0]
    for each in REFUSALS.get(submission.parameters.refused, ()) if attributes else ():
        given, data = _given(op, weights, attributes | each), _model(op, shape, weights, attributes | each)
        with expect.case(given):
            check_raised(submission.call(PROBES + "refused", rules, data), rule, given, hint)


def _accepted(attributes: dict[str, Any], refused: str) -> dict[str, Any]:
    """Return attributes of which a variant's rules refuse none: some that are there, but have harmless values."""
    if refused == "auto_pad" and attributes:
        return attributes | {"auto_pad": "NOTSET"}
    if refused == "dilations" and "dilations" in attributes:
        return attributes | {"dilations": [1, 1]}
    if refused == "uneven pads" and "pads" in attributes:
        return attributes | {"pads": attributes["pads"][:2] * 2}
    return attributes


def _given(op: str, weights: Weights, attributes: dict[str, Any]) -> str:
    given = f"{op} with {', '.join([f'{k}={v}' for k, v in attributes.items()]) or 'no attributes'}"
    return given + (f" and inputs x, {', '.join(name or 'an empty name' for name in weights)}" if weights else "")


@points(1)
def relu_is_imported(submission: Submission) -> None:
    """The rule for Relu adds one Relu node."""
    _check(submission, "Relu", "relu", [({}, {}, "add one node, with the operator of the same name")])


@points(1)
def max_pool_is_imported(submission: Submission) -> None:
    """The rule for MaxPool reads its attributes and uses ONNX's defaults for those left out."""
    rng = submission.rng
    strides = [int(n) for n in rng.permutation([2, 3])]
    pads = [int(n) for n in rng.permutation([0, 1, 2])[:2]] + [1, 0]
    kernel = [3, 4]
    cases = [
        ({}, {"kernel_shape": kernel, "strides": strides}, "the strides are an attribute of the node"),
        ({}, {"kernel_shape": kernel, "strides": strides, "pads": pads}, "pads are (top, left, bottom, right)"),
        ({}, {"kernel_shape": kernel}, "ONNX's defaults: strides 1, pads 0, dilations 1"),
        ({}, {"kernel_shape": [2, 3], "dilations": [2, 1]}, "dilations are the operator's last field"),
        ({}, {"kernel_shape": [2, 2], "pads": [1, 0, 1, 1]}, "the specification gives the strides if they are omitted"),
        (
            {},
            {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": [1, 2]},
            "each attribute is read for itself, whatever others there are",
        ),
    ]
    _check(submission, "MaxPool", "max_pool", cases)


@points(2)
def conv_is_imported(submission: Submission) -> None:
    """The rule for Conv reads strides, pads, dilations and group; the bias is optional."""
    w, b, grouped = submission.normal(6, 4, 3, 2), submission.normal(6), submission.normal(6, 2, 3, 2)
    depthwise = submission.normal(4, 1, 2, 3)
    strides, pads = [int(n) for n in submission.rng.permutation([1, 2])], [0, 1, 2, 1]
    cases = [
        ({"w": w, "b": b}, {"strides": strides, "pads": pads}, "strides and pads are attributes of the node"),
        ({"w": w, "b": b}, {}, "ONNX's defaults: strides 1, pads 0, dilations 1, group 1"),
        ({"w": w}, {"pads": pads}, "a node may omit its last input: which call allows for that?"),
        ({"w": w, "b": b}, {"dilations": [2, 3]}, "dilations are an attribute, too"),
        ({"w": grouped, "b": b}, {"group": 2}, "the number of groups is an attribute; one by default"),
        ({"w": depthwise}, {"group": 4, "strides": [2, 3]}, "the number of groups is an attribute; one by default"),
        (
            {"w": grouped, "b": b},
            {"strides": strides, "pads": pads, "dilations": [2, 3], "group": 2},
            "each attribute is read for itself, whatever others there are",
        ),
        ({"w": w, "": None}, {}, "an input whose name is empty is left out, too: which call allows for that?"),
    ]
    _check(submission, "Conv", "conv", cases)


P2_2 = Task(
    "P2.2",
    "Import rules",
    solution_is_fallback=True,
    libraries=COMPILER,
    minutes=15,
    builds_on=("P1.4",),
    varies=(REFUSED,),
)
