"""Checks of P2.4: the student's two rewrites, on graphs that they must change and graphs that they must not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import run
from mlhood.compiler.hir import Graph, TensorType, Value
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.grading.checks import expect
from mlhood.grading.checks.oracle import GraphFacts, graph_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER
from mlhood.grading.projects.p2.loops import PROBES, function
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.variants.parameter import Parameter

# the last argument of the two rewrites
REWRITE_ARGUMENT = Parameter("rewrite_argument", ("none", "keep", "only", "dry_run"))

PLAIN = Conv((1, 1), (1, 0, 1, 1), (1, 1))
GROUPED = Conv((2, 1), (2, 0, 1, 1), (1, 2), 3)  # no attribute has its default: a rewrite must preserve them all
Reports = tuple[object, object]  # what the first and the last call of a rewrite return
WITH_RELU = Conv((1, 1), (1, 0, 1, 1), (1, 1), activation=("Relu",))
WITH_SLOPE = Conv((1, 1), (1, 0, 1, 1), (1, 1), activation=("LeakyRelu", 0.1))
# where to look if the results differ, by the rewrite
HINTS = {
    "fold_batchnorm": "write the normalisation as y = f * x + g, with one f and one g for each channel, and insert x",
    "fuse_relu": "the fused convolution differs from the old one in its activation only",
    "shrink": "apply your changes one by one, and run the graph after each: which of them changes the results?",
}
OPERAND = "the convolution has an activation already: what does the normalisation see?"
RELU_BEFORE_BN = "conv with a fused relu -> bn"


class Builder:
    """Builds a graph of convolutions, normalisations and activations with random weights; x is [batch, 3, 9, 8].

    Args:
        rng: Generator of the weights.
        name: Description of the graph in messages.
        arguments: Of the rewrite, besides the graph.
    """

    def __init__(self, rng: np.random.Generator, name: str, arguments: dict[str, Any] | None = None) -> None:
        self.rng = rng
        self.arguments = arguments or {}
        self.name = ", ".join([name, *(f"{argument}={value!r}" for argument, value in self.arguments.items())])
        self.graph = Graph("checked")
        self.x = self.graph.placeholder("x", TensorType("float32", ("batch", 3, 9, 8)))

    def weight(self, name: str, *shape: int, positive: bool = False) -> Value:
        """Add a constant."""
        data = self.rng.standard_normal(shape)
        return self.graph.constant(name, (np.abs(data) + 0.2 if positive else data).astype(np.float32))

    def input(self, name: str, *shape: int) -> Value:
        """Add an input of the graph: a weight that is not constant."""
        return self.graph.placeholder(name, TensorType("float32", shape))

    def inputs(self, submission: Submission) -> dict[str, np.ndarray]:
        """Draw an array for each input of the graph."""
        shapes = {name: value.type.shape for name, value in self.graph.placeholders.items()}
        drawn = {
            name: submission.normal(*(2 if n == "batch" else int(n) for n in dims)) for name, dims in shapes.items()
        }
        return {name: np.abs(array) + np.float32(0.2) if name == "var" else array for name, array in drawn.items()}

    def conv(
        self, x: Value, features: int, *, bias: bool = True, name: str = "conv", operator: Conv | None = None
    ) -> Value:
        """Add a convolution 3 x 2, by default a padded one whose extents all differ."""
        group = 1 if operator is None else operator.group
        w = self.weight(f"{name}.weight", features, int(x.type.shape[1]) // group, 3, 2)
        b = self.weight(f"{name}.bias", features) if bias else None
        return self.graph.add(PLAIN if operator is None else operator, x, w, b, name=name).outputs[0]

    def batchnorm(self, x: Value, *, name: str = "bn", epsilon: float = 1e-5) -> Value:
        """Add a BatchNormalization with random statistics."""
        channels = int(x.type.shape[1])
        parameters = [
            self.weight(f"{name}.{part}", channels, positive=part == "var") for part in ("gamma", "beta", "mean", "var")
        ]
        return self.graph.add(BatchNormalization(epsilon), x, *parameters, name=name).outputs[0]

    def relu(self, x: Value, name: str = "relu") -> Value:
        """Add a Relu."""
        return self.graph.add(Relu(), x, name=name).outputs[0]


def rewritten(submission: Submission, name: str, builders: list[Builder]) -> list[tuple[Builder, GraphFacts, Reports]]:
    """Apply the student's rewrite; check that each graph is still valid and computes the same; add what it reports."""
    rewrite = function(submission, name)
    pairs, reports, references = [], [], []
    for builder in builders:
        inputs = builder.inputs(submission)
        results = run(builder.graph, **inputs)
        references.append({name: results[name] for name in builder.arguments.get("outputs", results)})
        with expect.case(builder.name):
            result = submission.call(PROBES + "rewritten", rewrite, builder.graph, builder.arguments)
        result = expect.mapping(result, ("graph", "changed", "last", "new"), f"the result of `{name}`")
        what, hint = f"`{name}` returns a new graph", "edit the graph that you are given: nobody sees another one"
        expect.true(not result["new"], what, expected="the graph, changed in place", given=builder.name, hint=hint)
        if not isinstance(result["graph"], Hir):
            expect.fail(f"`{name}` does not produce a graph", got=result["graph"], given=builder.name)
        pairs.append((result["graph"], inputs))
        reports.append((result["changed"], result["last"]))
    graphs = graph_facts(pairs, what=f"the graph after `{name}`")
    for builder, facts, want in zip(builders, graphs, references, strict=True):
        _check_results(name, builder, facts, want)
    return list(zip(builders, graphs, reports, strict=True))


def _check_results(name: str, builder: Builder, facts: GraphFacts, want: dict[str, np.ndarray]) -> None:
    expect.equal(sorted(facts.results), sorted(want), f"`{name}` changes the graph's outputs", given=builder.name)
    for output, value in want.items():
        hint = OPERAND if builder.name == RELU_BEFORE_BN else HINTS.get(name)
        what = f"the results of the graph after `{name}`"
        scale = float(np.abs(value).max())
        expect.close(facts.results[output], value, what, rtol=1e-3, atol=1e-4 * scale, given=builder.name, hint=hint)


OPERANDS = ("w", "bias", "gamma", "beta", "mean", "var")


def _folded_later(b: Builder, *, late: str, computed: bool = False) -> Value:
    """Make conv -> bn of which one operand is an input of the graph, or computed from one."""

    def operand(name: str) -> Value:
        shape = (5, 3, 3, 2) if name == "w" else (5,)
        if name != late:
            return b.weight(name, *shape, positive=name == "var")
        return b.relu(b.input(name, *shape), f"{name}.relu") if computed else b.input(name, *shape)

    w, bias, *statistics = map(operand, OPERANDS)
    conv = b.graph.add(PLAIN, b.x, w, bias, name="conv").outputs[0]
    return b.graph.add(BatchNormalization(1e-5), conv, *statistics, name="bn").outputs[0]


def _activated_later(b: Builder) -> Value:
    """Make conv -> relu whose weights are an input of the graph: a fusion does not need to know them."""
    conv = b.graph.add(PLAIN, b.x, b.input("w", 5, 3, 3, 2), None, name="conv").outputs[0]
    return b.relu(conv)


def _build(
    submission: Submission,
    name: str,
    make: Callable[[Builder], Value | list[Value]],
    arguments: dict[str, Any] | None = None,
) -> Builder:
    builder = Builder(submission.rng, name, arguments)
    outputs = make(builder)
    for value in outputs if isinstance(outputs, list) else [outputs]:
        builder.graph.output(value)
    return builder


def _renamed(reader: Callable[[Builder, Value], Value]) -> Callable[[Builder], Value]:
    """Make a convolution with a reader; the graph returns the convolution's result, too, under another name."""

    def make(b: Builder) -> Value:
        conv = b.conv(b.x, 5)
        b.graph.output(conv, "features")
        return reader(b, conv)

    return make


def _read_by(*readers: Callable[[Builder, Value], Value]) -> Callable[[Builder], list[Value]]:
    """Make a convolution with several readers; each reader's value is an output of the graph."""

    def make(b: Builder) -> list[Value]:
        conv = b.conv(b.x, 5)
        return [reader(b, conv) for reader in readers]

    return make


def _itself(_: Builder, conv: Value) -> Value:
    return conv


def _check_counts(
    results: list[tuple[Builder, GraphFacts, Reports]], operator: str, wanted: list[int], what: str, hint: str
) -> None:
    for (builder, facts, _), want in zip(results, wanted, strict=True):
        expect.equal(facts.count(operator), want, what, given=builder.name, hint=hint)


ARGUMENT_HINTS = {
    "keep": "a normalisation or a ReLU whose name is in `keep` is no match, whatever is before it",
    "only": "a convolution whose name is not in `only` is no match; an empty collection is not None",
    "dry_run": "what is a copy of the graph good for?",
}
# what each rewrite removes, and the name of such a node
REMOVED = {"fold_batchnorm": ("BatchNormalization", "bn"), "fuse_relu": ("Relu", "relu")}


def _two_matches(b: Builder, *, name: str) -> Value:
    """Make two convolutions, each before a node that the rewrite removes."""
    add = b.batchnorm if name == "fold_batchnorm" else b.relu
    first = REMOVED[name][1]
    return add(b.conv(add(b.conv(b.x, 5), name=first), 4, bias=False, name="conv2"), name=f"{first}2")


def _check_argument(submission: Submission, name: str, *, partly: bool) -> None:
    """Check a rewrite with the argument that it has in a variant: one of two matches is to stay, or both."""
    argument = submission.parameters.rewrite_argument
    if argument == "none":
        return
    operator, first = REMOVED[name]
    both, stays = (first, f"{first}2"), int(submission.rng.integers(2))
    values = {"keep": both[stays : stays + 1], "only": (("conv2", "conv")[stays],), "dry_run": False}
    values = values if partly else {"keep": both, "only": (), "dry_run": True}
    left = both if not partly else () if argument == "dry_run" else both[stays : stays + 1]
    description = " -> ".join(["conv", first, "conv2", f"{first}2"])
    built = _build(submission, description, partial(_two_matches, name=name), {argument: values[argument]})
    ((builder, facts, _),) = rewritten(submission, name, [built])
    given, hint = builder.name, ARGUMENT_HINTS[argument]
    got = sorted(node.name for node in facts.nodes if node.operator == operator)
    expect.equal(got, sorted(left), f"`{name}` leaves the wrong nodes", given=given, hint=hint)
    expect.equal(facts.count("Conv"), 2, f"`{name}` leaves the wrong number of convolutions", given=given, hint=hint)


def _check_changes(submission: Submission, name: str) -> None:
    """Check that a rewrite removes the node after a convolution: otherwise it is none, whatever else it does.

    What the graph computes afterwards is not compared, so that a wrong value does not count twice.
    """
    operator, first = REMOVED[name]
    add = Builder.batchnorm if name == "fold_batchnorm" else Builder.relu
    builder = _build(submission, f"conv -> {first}", lambda b: add(b, b.conv(b.x, 5)))
    answer = submission.call(PROBES + "rewritten", function(submission, name), builder.graph, {})
    graph = expect.mapping(answer, ("graph",), f"the result of `{name}`")["graph"]
    if not isinstance(graph, Hir):
        expect.fail(f"`{name}` does not produce a graph", got=graph, given=builder.name)
    (facts,) = graph_facts([(graph, {})], what=f"the graph after `{name}`")
    what, hint = f"`{name}` leaves every graph alone", f"the {operator} of this one has to go"
    expect.equal(facts.count(operator), 0, what, given=builder.name, hint=hint)
    _check_others(name, builder, facts, 0)


def _check_others(name: str, builder: Builder, facts: GraphFacts, want: int) -> None:
    """Check how many nodes are left that are no convolutions: what is folded or fused is in no other node."""
    others = [node.operator for node in facts.nodes if node.operator != "Conv"]
    what, hint = f"`{name}` leaves other nodes", "the convolution does their work, with other weights or an activation"
    expect.true(len(others) == want, what, expected=want, got=", ".join(others), given=builder.name, hint=hint)


@points(3)
def batchnorm_is_folded(submission: Submission) -> None:
    """`fold_batchnorm` folds each BatchNormalization after a convolution into its weights and bias."""

    def two(b: Builder) -> Value:
        x = b.relu(b.batchnorm(b.conv(b.x, 5)))
        return b.batchnorm(b.conv(x, 4, bias=False, name="conv2"), name="bn2", epsilon=0.1)

    def shared(b: Builder) -> list[Value]:
        w = b.weight("w", 5, 3, 3, 2)
        first, second = (b.graph.add(PLAIN, b.x, w, None, name=name).outputs[0] for name in ("conv", "conv2"))
        return [b.batchnorm(first, epsilon=0.004), second]

    cases = [
        _build(submission, "conv -> bn", lambda b: b.batchnorm(b.conv(b.x, 5), epsilon=0.5)),
        _build(submission, "conv without bias -> bn", lambda b: b.batchnorm(b.conv(b.x, 4, bias=False))),
        _build(submission, "conv -> bn -> relu -> conv without bias -> bn", two),
        _build(submission, "grouped, strided conv -> bn", lambda b: b.batchnorm(b.conv(b.x, 6, operator=GROUPED))),
        _build(submission, "conv -> bn, and another conv with the same weights", shared),
    ]
    results = rewritten(submission, "fold_batchnorm", cases)
    hint = "which nodes does your loop visit, and what does `conv_before` return for this one?"
    _check_counts(results, "BatchNormalization", [0] * 5, "`fold_batchnorm` leaves a BatchNormalization", hint)
    hint = "the old convolution has to go, too: what does `fuse` replace?"
    _check_counts(results, "Conv", [1, 1, 2, 1, 2], "`fold_batchnorm` leaves the wrong number of convolutions", hint)
    for (builder, facts, _), want in zip(results, [0, 0, 1, 0, 0], strict=True):
        _check_others("fold_batchnorm", builder, facts, want)
    _check_argument(submission, "fold_batchnorm", partly=True)


@points(2)
def folding_leaves_others_alone(submission: Submission) -> None:
    """`fold_batchnorm` keeps a normalisation that has no convolution before it, or one with other readers."""
    cases = [
        _build(submission, "a conv that both a bn and a relu read", _read_by(Builder.batchnorm, Builder.relu)),
        _build(submission, "a conv that a bn reads and the graph outputs", _read_by(Builder.batchnorm, _itself)),
        _build(submission, "a conv that a bn reads and the graph outputs as `features`", _renamed(Builder.batchnorm)),
        _build(submission, "relu -> bn", lambda b: b.batchnorm(b.relu(b.x))),
        _build(submission, "bn as the first node", lambda b: b.batchnorm(b.x)),
        _build(submission, "relu between conv and bn", lambda b: b.batchnorm(b.relu(b.conv(b.x, 3)))),
        _build(submission, RELU_BEFORE_BN, lambda b: b.batchnorm(b.conv(b.x, 3, operator=WITH_RELU))),
        *(
            _build(submission, f"conv -> bn, {late} is an input of the graph", partial(_folded_later, late=late))
            for late in OPERANDS
        ),
        *(
            _build(submission, f"conv -> bn, {late} is computed", partial(_folded_later, late=late, computed=True))
            for late in ("w", "gamma")
        ),
    ]
    results = rewritten(submission, "fold_batchnorm", cases)
    hint = "who else uses the convolution's result, and what is known of its weights before the graph runs?"
    what = "`fold_batchnorm` removes a BatchNormalization that must stay"
    _check_counts(results, "BatchNormalization", [1] * len(cases), what, hint)
    _check_argument(submission, "fold_batchnorm", partly=False)
    _check_changes(submission, "fold_batchnorm")


@points(2)
def relu_is_fused(submission: Submission) -> None:
    """`fuse_relu` replaces conv -> relu by one convolution with an activation."""
    cases = [
        _build(submission, "conv -> relu", lambda b: b.relu(b.conv(b.x, 5))),
        _build(
            submission,
            "conv -> relu -> conv -> relu",
            lambda b: b.relu(b.conv(b.relu(b.conv(b.x, 4, bias=False)), 2, name="conv2"), "relu2"),
        ),
        _build(submission, "grouped, strided conv -> relu", lambda b: b.relu(b.conv(b.x, 6, operator=GROUPED))),
        _build(submission, "conv -> relu, w is an input of the graph", _activated_later),
    ]
    results = rewritten(submission, "fuse_relu", cases)
    hint = "which nodes does your loop visit, and what does `conv_before` return for this one?"
    _check_counts(results, "Relu", [0] * 4, "`fuse_relu` leaves a Relu", hint)
    hint = "the old convolution has to go, too: what does `fuse` replace?"
    _check_counts(results, "Conv", [1, 2, 1, 1], "`fuse_relu` leaves the wrong number of convolutions", hint)
    for builder, facts, _ in results:
        _check_others("fuse_relu", builder, facts, 0)
    _check_argument(submission, "fuse_relu", partly=True)


@points(2)
def fusing_leaves_others_alone(submission: Submission) -> None:
    """`fuse_relu` keeps a relu that has no convolution before it, or one with other readers."""
    cases = [
        _build(submission, "a conv that both a relu and a bn read", _read_by(Builder.relu, Builder.batchnorm)),
        _build(submission, "a conv that a relu reads and the graph outputs", _read_by(_itself, Builder.relu)),
        _build(submission, "a conv that a relu reads and the graph outputs as `features`", _renamed(Builder.relu)),
        *(
            _build(
                submission,
                f"conv with a fused {operator.activation[0]} -> relu",
                lambda b, operator=operator: b.relu(b.conv(b.x, 3, operator=operator)),
            )
            for operator in (WITH_RELU, WITH_SLOPE)
        ),
        _build(submission, "bn -> relu", lambda b: b.relu(b.batchnorm(b.conv(b.x, 3)))),
        _build(submission, "relu as the first node", lambda b: b.relu(b.x)),
    ]
    results = rewritten(submission, "fuse_relu", cases)
    hint = "is there a convolution right before the relu, who else uses its result, and has it an activation already?"
    _check_counts(results, "Relu", [1] * len(cases), "`fuse_relu` removes a Relu that must stay", hint)
    _check_argument(submission, "fuse_relu", partly=False)
    _check_changes(submission, "fuse_relu")


@points(1)
def rewrites_say_what_they_did(submission: Submission) -> None:
    """Both rewrites return whether they changed the graph, so that a driver knows when to stop."""
    for name, matching, other in (
        ("fold_batchnorm", lambda b: b.batchnorm(b.conv(b.x, 5)), lambda b: b.relu(b.conv(b.x, 5))),
        ("fuse_relu", lambda b: b.relu(b.conv(b.x, 5)), lambda b: b.batchnorm(b.conv(b.x, 5))),
    ):
        _check_changes(submission, name)
        cases = [_build(submission, "a graph to change", matching), _build(submission, "a graph with no match", other)]
        for (builder, _, (changed, last)), want in zip(rewritten(submission, name, cases), (True, False), strict=True):
            hint = "remember whether there was a match, and return that"
            what = f"`{name}` does not return whether it changed the graph"
            expect.true(isinstance(changed, (bool, int)), what, expected="True or False", got=changed, hint=hint)
            expect.equal(bool(changed), want, f"`{name}` returns the wrong value", given=builder.name, hint=hint)
            given = f"{builder.name}, once no match is left"
            expect.equal(bool(last), False, f"`{name}` returns the wrong value", given=given, hint=hint)
        _check_report(submission, name, matching)


def _check_report(submission: Submission, name: str, matching: Callable[[Builder], Value]) -> None:
    """Check what a rewrite returns if the argument that it has in a variant keeps it from changing anything."""
    argument = submission.parameters.rewrite_argument
    if argument == "none":
        return
    value = {"keep": (REMOVED[name][1],), "only": (), "dry_run": True}[argument]
    built = _build(submission, "a graph to change", matching, {argument: value})
    ((builder, _, (changed, _)),) = rewritten(submission, name, [built])
    what, expected, hint = f"`{name}` returns the wrong value", argument == "dry_run", ARGUMENT_HINTS[argument]
    right = isinstance(changed, (bool, int)) and bool(changed) == expected
    expect.true(right, what, expected=expected, got=changed, given=builder.name, hint=hint)


TASKS = (
    Task(
        "P2.4",
        "Two rewrites",
        checks=(
            batchnorm_is_folded,
            folding_leaves_others_alone,
            relu_is_fused,
            fusing_leaves_others_alone,
            rewrites_say_what_they_did,
        ),
        solution_stands_in=True,
        libraries=COMPILER,
        minutes=30,
        builds_on=("P2.1", "P2.3"),
        varies=(REWRITE_ARGUMENT,),
    ),
)
