"""Checks of P2.4: the student's two rewrites, on graphs that must change and on graphs that must not."""

from __future__ import annotations

from collections.abc import Callable

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
from mlhood.grading.projects.p2.loops import PROBES, function
from mlhood.grading.rpc.codec import Hir

PLAIN = Conv((1, 1), (1, 0, 1, 1), (1, 1))
SPARSE = Conv((2, 1), (2, 0, 1, 1), (1, 2), 3)  # every attribute of its own: a rewrite has to keep them all
FUSED_BEFORE = "a convolution that has a relu fused into it -> bn"
RECTIFIED = Conv((1, 1), (1, 0, 1, 1), (1, 1), activation=("Relu",))


class Builder:
    """A graph of convolutions, normalisations and activations with random weights; x is [batch, 3, 9, 8].

    Args:
        rng: Where the weights come from.
        name: What students are told that the graph is.
    """

    def __init__(self, rng: np.random.Generator, name: str) -> None:
        self.rng = rng
        self.name = name
        self.graph = Graph("checked")
        self.x = self.graph.placeholder("x", TensorType("float32", ("batch", 3, 9, 8)))

    def weight(self, name: str, *shape: int, positive: bool = False) -> Value:
        """A constant."""
        data = self.rng.standard_normal(shape)
        return self.graph.constant(name, (np.abs(data) + 0.2 if positive else data).astype(np.float32))

    def conv(
        self, x: Value, features: int, *, bias: bool = True, name: str = "conv", operator: Conv | None = None
    ) -> Value:
        """A convolution of 3 x 2, padded, so that an output channel is neither an input channel nor a pixel."""
        group = 1 if operator is None else operator.group
        w = self.weight(f"{name}.weight", features, int(x.type.shape[1]) // group, 3, 2)
        b = self.weight(f"{name}.bias", features) if bias else None
        return self.graph.add(PLAIN if operator is None else operator, x, w, b, name=name).outputs[0]

    def batchnorm(self, x: Value, *, name: str = "bn", epsilon: float = 1e-5) -> Value:
        """A normalisation with statistics and an epsilon of its own."""
        channels = int(x.type.shape[1])
        parameters = [
            self.weight(f"{name}.{part}", channels, positive=part == "var") for part in ("gamma", "beta", "mean", "var")
        ]
        return self.graph.add(BatchNormalization(epsilon), x, *parameters, name=name).outputs[0]

    def relu(self, x: Value, name: str = "relu") -> Value:
        """max(x, 0)."""
        return self.graph.add(Relu(), x, name=name).outputs[0]


def _rewritten(submission: Submission, name: str, builders: list[Builder]) -> list[tuple[Builder, GraphFacts, object]]:
    """The graphs after the student's rewrite; each must still be sound, and compute what it did."""
    rewrite = function(submission, name)
    pairs, said, wanted = [], [], []
    for builder in builders:
        x = submission.rng.standard_normal((2, 3, 9, 8)).astype(np.float32)
        wanted.append(run(builder.graph, x=x))
        with expect.case(builder.name):
            found = submission.call(PROBES + "rewritten", rewrite, builder.graph)
        found = expect.mapping(found, ("graph", "said"), f"what came of `{name}`")
        if not isinstance(found["graph"], Hir):
            expect.fail(f"`{name}` leaves no graph behind", got=found["graph"], given=builder.name)
        pairs.append((found["graph"], {"x": x}))
        said.append(found["said"])
    facts = graph_facts(pairs, what=f"the graph after `{name}`")
    for builder, one, want in zip(builders, facts, wanted, strict=True):
        _same_meaning(name, builder, one, want)
    return list(zip(builders, facts, said, strict=True))


def _same_meaning(name: str, builder: Builder, facts: GraphFacts, want: dict[str, np.ndarray]) -> None:
    expect.equal(sorted(facts.results), sorted(want), f"`{name}` changes the graph's outputs", given=builder.name)
    for output, value in want.items():
        hint = "W' = W gamma / sqrt(var + epsilon), one factor for each output channel; b' = (b - mean) factor + beta"
        if builder.name == FUSED_BEFORE:
            hint = "leave a convolution alone whose operator.activation is not (): the bn comes after its relu"
        elif name != "fold_batchnorm":
            hint = "the convolution's own operator, with activation=('Relu',)"
        what = f"what the graph computes after `{name}`"
        scale = float(np.abs(value).max())
        expect.close(facts.results[output], value, what, rtol=1e-3, atol=1e-4 * scale, given=builder.name, hint=hint)


def _build(submission: Submission, name: str, make: Callable[[Builder], Value | list[Value]]) -> Builder:
    builder = Builder(submission.rng, name)
    made = make(builder)
    for value in made if isinstance(made, list) else [made]:
        builder.graph.output(value)
    return builder


def _read_by(*readers: Callable[[Builder, Value], Value]) -> Callable[[Builder], list[Value]]:
    """One convolution, and what each of several readers makes of it; all are outputs of the graph."""

    def make(b: Builder) -> list[Value]:
        conv = b.conv(b.x, 5)
        return [reader(b, conv) for reader in readers]

    return make


def _itself(_: Builder, conv: Value) -> Value:
    return conv


def _counts(
    results: list[tuple[Builder, GraphFacts, object]], operator: str, wanted: list[int], what: str, hint: str
) -> None:
    for (builder, facts, _), want in zip(results, wanted, strict=True):
        expect.equal(facts.count(operator), want, what, given=builder.name, hint=hint)


@points(6)
def batchnorm_is_folded(submission: Submission) -> None:
    """`fold_batchnorm` folds every BatchNormalization that follows a convolution into its weights and bias."""

    def two(b: Builder) -> Value:
        x = b.relu(b.batchnorm(b.conv(b.x, 5)))
        return b.batchnorm(b.conv(x, 4, bias=False, name="conv2"), name="bn2", epsilon=0.1)

    cases = [
        _build(submission, "conv -> bn", lambda b: b.batchnorm(b.conv(b.x, 5), epsilon=0.5)),
        _build(submission, "conv without bias -> bn", lambda b: b.batchnorm(b.conv(b.x, 4, bias=False))),
        _build(submission, "conv -> bn -> relu -> conv without bias -> bn", two),
        _build(
            submission, "conv in groups, with strides -> bn", lambda b: b.batchnorm(b.conv(b.x, 6, operator=SPARSE))
        ),
    ]
    results = _rewritten(submission, "fold_batchnorm", cases)
    hint = "the normalisation must be gone: fuse(graph, conv, bn, ...) puts one convolution in the place of both"
    _counts(results, "BatchNormalization", [0] * 4, "there is still a BatchNormalization in the graph", hint)
    hint = (
        "the old convolution must be gone too: fuse(graph, conv, bn, ...), or graph.remove(conv) once nothing reads it"
    )
    _counts(results, "Conv", [1, 1, 2, 1], "the wrong number of convolutions is left", hint)


@points(4)
def folding_leaves_others_alone(submission: Submission) -> None:
    """`fold_batchnorm` leaves a normalisation where the convolution is read by others too, or is none."""

    cases = [
        _build(
            submission, "a convolution that a relu reads as well as the bn", _read_by(Builder.batchnorm, Builder.relu)
        ),
        _build(
            submission,
            "a convolution that is an output of the graph, and read by a bn",
            _read_by(Builder.batchnorm, _itself),
        ),
        _build(submission, "relu -> bn", lambda b: b.batchnorm(b.relu(b.x))),
        _build(submission, "bn as the first node", lambda b: b.batchnorm(b.x)),
        _build(submission, "relu between conv and bn", lambda b: b.batchnorm(b.relu(b.conv(b.x, 3)))),
        _build(submission, FUSED_BEFORE, lambda b: b.batchnorm(b.conv(b.x, 3, operator=RECTIFIED))),
    ]
    results = _rewritten(submission, "fold_batchnorm", cases)
    hint = "here the bn must stay: others would read changed numbers, or there is no convolution right before it"
    _counts(results, "BatchNormalization", [1] * 6, "a BatchNormalization is gone that had to stay", hint)


@points(5)
def relu_is_fused(submission: Submission) -> None:
    """`fuse_relu` turns conv -> relu into one convolution with an activation."""
    cases = [
        _build(submission, "conv -> relu", lambda b: b.relu(b.conv(b.x, 5))),
        _build(
            submission,
            "conv -> relu -> conv -> relu",
            lambda b: b.relu(b.conv(b.relu(b.conv(b.x, 4, bias=False)), 2, name="conv2"), "relu2"),
        ),
        _build(submission, "conv in groups, with strides -> relu", lambda b: b.relu(b.conv(b.x, 6, operator=SPARSE))),
    ]
    results = _rewritten(submission, "fuse_relu", cases)
    hint = "fuse(graph, conv, relu, replace(conv.operator, activation=('Relu',)), *conv.inputs)"
    _counts(results, "Relu", [0] * 3, "there is still a Relu in the graph", hint)
    _counts(results, "Conv", [1, 2, 1], "the wrong number of convolutions is left", hint)


@points(3)
def fusing_leaves_others_alone(submission: Submission) -> None:
    """`fuse_relu` leaves a relu where the convolution is read by others too, or is none."""

    cases = [
        _build(
            submission, "a convolution that a bn reads as well as the relu", _read_by(Builder.relu, Builder.batchnorm)
        ),
        _build(
            submission,
            "a convolution that is an output of the graph, and read by a relu",
            _read_by(_itself, Builder.relu),
        ),
        _build(submission, "bn -> relu", lambda b: b.relu(b.batchnorm(b.conv(b.x, 3)))),
        _build(submission, "relu as the first node", lambda b: b.relu(b.x)),
    ]
    results = _rewritten(submission, "fuse_relu", cases)
    hint = "here the relu must stay: others would read numbers without their negative part, or there is no convolution"
    _counts(results, "Relu", [1] * 4, "a Relu is gone that had to stay", hint)


@points(2)
def rewrites_say_what_they_did(submission: Submission) -> None:
    """Both say whether they changed the graph, so that a driver knows when to stop."""
    for name, good, none in (
        ("fold_batchnorm", lambda b: b.batchnorm(b.conv(b.x, 5)), lambda b: b.relu(b.conv(b.x, 5))),
        ("fuse_relu", lambda b: b.relu(b.conv(b.x, 5)), lambda b: b.batchnorm(b.conv(b.x, 5))),
    ):
        cases = [_build(submission, "a graph to change", good), _build(submission, "a graph with nothing to do", none)]
        for (builder, _, said), want in zip(_rewritten(submission, name, cases), (True, False), strict=True):
            hint = "changed = False at the beginning, True after a rewrite, returned at the end"
            what = f"`{name}` does not say whether it changed something"
            expect.true(isinstance(said, (bool, int)), what, expected="True or False", got=said, hint=hint)
            expect.equal(bool(said), want, f"`{name}` says the wrong thing", given=builder.name, hint=hint)


# the package's own rewrites, each under all of its names, and what runs them
PASSES = (
    "mlhood.compiler.passes.PASSES",
    "mlhood.compiler.passes.optimize",
    "mlhood.compiler.passes.fold_batch_normalization",
    "mlhood.compiler.passes.batch_normalization",
    "mlhood.compiler.passes.fuse_activation",
    "mlhood.compiler.passes.activation",
)

REWRITES_STAND_IN = """
from mlhood.compiler.passes import PASSES as _PASSES
fold_batchnorm, fuse_relu = _PASSES["fold_batch_normalization"], _PASSES["fuse_activation"]
"""


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
        stand_in=REWRITES_STAND_IN,
        forbidden=PASSES,
    ),
)
