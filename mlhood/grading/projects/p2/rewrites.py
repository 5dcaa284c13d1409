"""Checks of P2.4: the student's two rewrites, on graphs that they must change and graphs that they must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import run
from mlhood.compiler.hir import Graph, TensorType, Value
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.grading.checks import expect
from mlhood.grading.checks.oracle import GraphFacts, graph_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER
from mlhood.grading.projects.p2.loops import PROBES
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.variants.parameter import Parameter

# the last argument of the two rewrites
REWRITE_ARGUMENT = Parameter("rewrite_argument", ("none", "keep", "only"))

POOL = MaxPool((2, 2), (1, 1), (0, 0, 0, 0), (1, 1))
PLAIN = Conv((1, 1), (1, 0, 1, 1), (1, 1))
GROUPED = Conv((2, 1), (2, 0, 1, 1), (1, 2), 3)  # no attribute has its default: a rewrite must preserve them all
WITH_RELU = Conv((1, 1), (1, 0, 1, 1), (1, 1), activation=("Relu",))
WITH_SLOPE = Conv((1, 1), (1, 0, 1, 1), (1, 1), activation=("LeakyRelu", 0.1))
# where to look if the results differ, by the rewrite
HINTS = {
    "fold_batchnorm": "write the normalisation as y = f * x + g, with one f and one g for each channel, and insert x",
    "fuse_relu": "the fused convolution differs from the old one in its activation only",
    "shrink": "apply your changes one by one, and run the graph after each: which of them changes the results?",
}
GONE = "the old convolution has to go, too, and the other node; `fuse` replaces both. Which nodes does your loop visit?"
GUARDS = (
    "it must stay: who else uses the convolution's result, has it an activation already, and what is known of its "
    "weights before the graph runs?"
)
OPERANDS = ("w", "bias", "gamma", "beta", "mean", "var")


class GraphBuilder:
    """Builds a graph of convolutions, normalisations and activations with random weights; x is [batch, 3, 9, 8].

    Args:
        rng: Generator of the weights.
        name: Description of the graph in messages.
        arguments: Of the rewrite, besides the graph.
        compared: Whether the graph has to compute the same after it; if not, a wrong value does not count twice.
    """

    def __init__(
        self, rng: np.random.Generator, name: str, arguments: dict[str, Any] | None = None, compared: bool = True
    ) -> None:
        self.rng, self.compared = rng, compared
        self.arguments = arguments or {}
        self.name = ", ".join([name, *(f"{argument}={value!r}" for argument, value in self.arguments.items())])
        self.graph = Graph(self.name)
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

    def pool(self, x: Value, operator: MaxPool = POOL) -> Value:
        """Add a max pooling."""
        return self.graph.add(operator, x).outputs[0]

    def sum(self, x: Value, y: Value) -> Value:
        """Add an addition."""
        return self.graph.add(Add(), x, y).outputs[0]


Make = Callable[[GraphBuilder], Value | list[Value]]
# of a graph: what it is, the values that it returns, the names of the nodes that stay besides convolutions, how many
# convolutions it has then, or None if that is not asked; and arguments of `GraphBuilder`
Row = tuple[str, Make, str, int | None] | tuple[str, Make, str, int | None, dict[str, Any]]
Result = tuple[GraphBuilder, GraphFacts, tuple[object, object]]  # with what the first and the last call return


def rewritten(submission: Submission, name: str, builders: list[GraphBuilder]) -> list[Result]:
    """Apply the student's rewrite; check that each graph is still valid and computes the same; add what it reports."""
    pairs, reports, references = [], [], []
    for builder in builders:
        inputs = builder.inputs(submission)
        results = run(builder.graph, **inputs)
        references.append({name: results[name] for name in builder.arguments.get("outputs", results)})
        with expect.case(builder.name):
            what, keys = PROBES + "rewritten", ("graph", "changed", "last")
            result = submission.probe(what, name, builder.graph, builder.arguments, keys=keys)
        if not isinstance(result["graph"], Hir):
            expect.fail(f"`{name}` does not produce a graph", got=result["graph"], given=builder.name)
        pairs.append((result["graph"], inputs if builder.compared else {}))
        reports.append((result["changed"], result["last"]))
    graphs = graph_facts(submission.parser, pairs, what=f"the graph after `{name}`")
    for builder, facts, want in zip(builders, graphs, references, strict=True):
        with expect.case(builder.name, HINTS[name]):
            for output, value in want.items() if builder.compared else ():
                what, scale = f"the results of the graph after `{name}`", 1e-4 * float(np.abs(value).max())
                expect.close(facts.results.get(output), value, what, rtol=1e-3, atol=scale)
            what = f"`{name}` changes the graph's outputs"
            expect.true(not builder.compared or facts.results.keys() == want.keys(), what, got=[*facts.results])
    return list(zip(builders, graphs, reports, strict=True))


def _check(submission: Submission, name: str, rows: list[Row], hint: str) -> list[Result]:
    """Check which nodes a rewrite leaves of the graphs of some rows, and that they compute the same."""
    builders = []
    for description, make, _, _, *options in rows:
        builders.append(GraphBuilder(submission.rng, description, **(options[0] if options else {})))
        values = make(builders[-1])
        for value in values if isinstance(values, list) else [values]:
            builders[-1].graph.output(value)
    results = rewritten(submission, name, builders)
    for (builder, facts, _), (_, _, stay, convolutions, *_) in zip(results, rows, strict=True):
        left = [node.name for node in facts.nodes if node.operator != "Conv"]
        left += ["Conv"] * (facts.count("Conv") if convolutions is not None else 0)
        want, what = [*stay.split(), *["Conv"] * (convolutions or 0)], f"`{name}` leaves the wrong nodes"
        expect.equal(sorted(left), sorted(want), what, given=builder.name, hint=hint)
    return results


def _folded_later(late: str, computed: bool = False) -> Make:
    """Make conv -> bn of which one operand is an input of the graph, or computed from one."""

    def make(b: GraphBuilder) -> Value:
        def operand(name: str) -> Value:
            shape = (5, 3, 3, 2) if name == "w" else (5,)
            if name != late:
                return b.weight(name, *shape, positive=name == "var")
            return b.relu(b.input(name, *shape), f"{name}.relu") if computed else b.input(name, *shape)

        w, bias, *statistics = map(operand, OPERANDS)
        conv = b.graph.add(PLAIN, b.x, w, bias, name="conv").outputs[0]
        return b.graph.add(BatchNormalization(1e-5), conv, *statistics, name="bn").outputs[0]

    return make


def _read_by(*readers: Callable[[GraphBuilder, Value], Value], output: str = "") -> Make:
    """Make a convolution with readers, whose values the graph returns; its own, too, under the name `output`."""

    def make(b: GraphBuilder) -> list[Value]:
        conv = b.conv(b.x, 5)
        if output:
            b.graph.output(conv, output)
        return [reader(b, conv) for reader in readers]

    return make


def _two_matches(name: str) -> Make:
    """Make two convolutions, each before a node that the rewrite removes."""
    add, first = (GraphBuilder.batchnorm, "bn") if name == "fold_batchnorm" else (GraphBuilder.relu, "relu")
    return lambda b: add(b, b.conv(add(b, b.conv(b.x, 5), name=first), 4, bias=False, name="conv2"), name=f"{first}2")


def _rows_of_argument(submission: Submission, name: str, *, partly: bool) -> list[Row]:
    """Return a row with the argument that the rewrites have in a variant: one of two matches stays, or both do."""
    argument, first = submission.parameters.rewrite_argument, "bn" if name == "fold_batchnorm" else "relu"
    if argument == "none":
        return []
    both, one = (first, f"{first}2"), int(submission.rng.integers(2))
    stay = both[one : one + 1] if partly else both
    value = stay if argument == "keep" else (("conv2", "conv")[one],) if partly else ()
    return [(f"conv -> {first}, twice", _two_matches(name), " ".join(stay), 2, {"arguments": {argument: value}})]


# a rewrite that leaves every graph alone is none
CHANGES: dict[str, Row] = {
    "fold_batchnorm": ("conv -> bn", _read_by(GraphBuilder.batchnorm), "", None, {"compared": False}),
    "fuse_relu": ("conv -> relu", _read_by(GraphBuilder.relu), "", None, {"compared": False}),
}


@points(3)
def batchnorm_is_folded(submission: Submission) -> None:
    """`fold_batchnorm` folds each BatchNormalization after a convolution into its weights and bias."""

    def two(b: GraphBuilder) -> Value:
        x = b.relu(b.batchnorm(b.conv(b.x, 5)))
        return b.batchnorm(b.conv(x, 4, bias=False, name="conv2"), name="bn2", epsilon=0.1)

    def shared(b: GraphBuilder) -> list[Value]:
        w = b.weight("w", 5, 3, 3, 2)
        first, second = (b.graph.add(PLAIN, b.x, w, None, name=name).outputs[0] for name in ("conv", "conv2"))
        return [b.batchnorm(first, epsilon=0.004), second]

    rows: list[Row] = [
        ("conv -> bn", lambda b: b.batchnorm(b.conv(b.x, 5), epsilon=0.5), "", 1),
        ("conv without bias -> bn", lambda b: b.batchnorm(b.conv(b.x, 4, bias=False)), "", 1),
        ("conv -> bn -> relu -> conv without bias -> bn", two, "relu", 2),
        ("grouped, strided conv -> bn", lambda b: b.batchnorm(b.conv(b.x, 6, operator=GROUPED)), "", 1),
        ("conv -> bn, and another conv with the same weights", shared, "", 2),
        *_rows_of_argument(submission, "fold_batchnorm", partly=True),
    ]
    _check(submission, "fold_batchnorm", rows, GONE)


@points(2)
def folding_leaves_others_alone(submission: Submission) -> None:
    """`fold_batchnorm` keeps a normalisation that has no convolution before it, or one with other readers."""
    rows: list[Row] = [
        ("a conv that both a bn and a relu read", _read_by(GraphBuilder.batchnorm, GraphBuilder.relu), "bn relu", 1),
        ("conv -> bn, the conv is an output, too", _read_by(GraphBuilder.batchnorm, lambda b, conv: conv), "bn", 1),
        ("conv -> bn, the conv is the output `features`", _read_by(GraphBuilder.batchnorm, output="features"), "bn", 1),
        ("relu -> bn", lambda b: b.batchnorm(b.relu(b.x)), "relu bn", 0),
        ("bn as the first node", lambda b: b.batchnorm(b.x), "bn", 0),
        ("relu between conv and bn", lambda b: b.batchnorm(b.relu(b.conv(b.x, 3))), "relu bn", 1),
        ("conv with a fused relu -> bn", lambda b: b.batchnorm(b.conv(b.x, 3, operator=WITH_RELU)), "bn", 1),
        *((f"conv -> bn, {late} is an input of the graph", _folded_later(late), "bn", 1) for late in OPERANDS),
        *(
            (f"conv -> bn, {late} is computed", _folded_later(late, True), f"bn {late}.relu", 1)
            for late in ("w", "gamma")
        ),
        *_rows_of_argument(submission, "fold_batchnorm", partly=False),
        CHANGES["fold_batchnorm"],
    ]
    _check(submission, "fold_batchnorm", rows, GUARDS)


@points(2)
def relu_is_fused(submission: Submission) -> None:
    """`fuse_relu` replaces conv -> relu by one convolution with an activation."""

    def late(b: GraphBuilder) -> Value:
        return b.relu(b.graph.add(PLAIN, b.x, b.input("w", 5, 3, 3, 2), None, name="conv").outputs[0])

    rows: list[Row] = [
        ("conv -> relu", lambda b: b.relu(b.conv(b.x, 5)), "", 1),
        ("conv -> relu -> conv -> relu", _two_matches("fuse_relu"), "", 2),
        ("grouped, strided conv -> relu", lambda b: b.relu(b.conv(b.x, 6, operator=GROUPED)), "", 1),
        ("conv -> relu, w is an input of the graph", late, "", 1),
        *_rows_of_argument(submission, "fuse_relu", partly=True),
    ]
    _check(submission, "fuse_relu", rows, GONE)


@points(2)
def fusing_leaves_others_alone(submission: Submission) -> None:
    """`fuse_relu` keeps a relu that has no convolution before it, or one with other readers."""
    rows: list[Row] = [
        ("a conv that both a relu and a bn read", _read_by(GraphBuilder.relu, GraphBuilder.batchnorm), "relu bn", 1),
        ("conv -> relu, the conv is an output, too", _read_by(lambda b, conv: conv, GraphBuilder.relu), "relu", 1),
        ("conv -> relu, the conv is the output `features`", _read_by(GraphBuilder.relu, output="features"), "relu", 1),
        ("conv with a fused Relu -> relu", lambda b: b.relu(b.conv(b.x, 3, operator=WITH_RELU)), "relu", 1),
        ("conv with a fused LeakyRelu -> relu", lambda b: b.relu(b.conv(b.x, 3, operator=WITH_SLOPE)), "relu", 1),
        ("bn -> relu", lambda b: b.relu(b.batchnorm(b.conv(b.x, 3))), "bn relu", 1),
        ("relu as the first node", lambda b: b.relu(b.x), "relu", 0),
        *_rows_of_argument(submission, "fuse_relu", partly=False),
        CHANGES["fuse_relu"],
    ]
    _check(submission, "fuse_relu", rows, GUARDS)


@points(1)
def rewrites_say_what_they_did(submission: Submission) -> None:
    """Both rewrites return whether they changed the graph, so that a driver knows when to stop."""
    argument = submission.parameters.rewrite_argument
    for name, matching, other in (("fold_batchnorm", "bn", "relu"), ("fuse_relu", "relu", "bn")):
        adds = {"bn": _read_by(GraphBuilder.batchnorm), "relu": _read_by(GraphBuilder.relu)}
        rows: list[Row] = [("a graph to change", adds[matching], "", None), ("no match", adds[other], other, 1)]
        if argument != "none":
            value = {"arguments": {argument: (matching,) if argument == "keep" else ()}}
            rows.append(("a graph to change", adds[matching], matching, 1, value))
        hint = "remember whether there was a match, and return that"
        for number, (builder, _, (changed, last)) in enumerate(_check(submission, name, rows, hint)):
            what, is_flag = f"`{name}` does not return whether it changed the graph", isinstance(changed, (bool, int))
            with expect.case(builder.name, hint):
                expect.true(is_flag and bool(changed) == (number == 0), what, expected=number == 0, got=changed)
                expect.true(not last, f"{what}, once no match is left", expected=False, got=last)


P2_4 = Task(
    "P2.4",
    "Two rewrites",
    solution_is_fallback=True,
    libraries=COMPILER,
    minutes=30,
    builds_on=("P2.1", "P2.3"),
    varies=(REWRITE_ARGUMENT,),
)
