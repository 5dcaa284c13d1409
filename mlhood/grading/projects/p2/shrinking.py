"""Checks of P2.5: as few nodes as possible in graphs that nobody has tidied up, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mlhood.compiler.hir import Value
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER
from mlhood.grading.projects.p2.rewrites import GROUPED, POOL, GraphBuilder, rewritten
from mlhood.grading.variants.parameter import Parameter

# the last argument of `shrink`
SHRINK_ARGUMENT = Parameter("shrink_argument", ("none", "outputs"))

GRAPHS = 6

Block = Callable[[GraphBuilder, Value, str], Value]


def _unused(b: GraphBuilder, x: Value, name: str) -> Value:
    conv = b.conv(x, 5, bias=False, name=name)
    b.relu(b.batchnorm(conv))
    return b.relu(conv)


def _twice(b: GraphBuilder, add: Callable[[GraphBuilder, Value], Value], x: Value) -> Value:
    return b.sum(add(b, x), add(b, x))


# each with the nodes that the course's own solution leaves of it
REDUNDANT: tuple[tuple[Block, int], ...] = (
    (lambda b, x, name: b.relu(b.batchnorm(b.conv(x, 4, name=name))), 1),
    (lambda b, x, name: b.relu(b.relu(b.conv(x, 5, name=name))), 1),
    (lambda b, x, name: b.relu(b.pool(b.conv(x, 4, name=name))), 2),
    (_unused, 1),
    (lambda b, x, name: _twice(b, GraphBuilder.relu, b.conv(x, 3, name=name)), 2),
    (lambda b, x, name: _twice(b, GraphBuilder.pool, b.relu(b.conv(x, 4, name=name))), 3),
)


def _pooled_for_two(b: GraphBuilder) -> None:
    pooled = b.pool(b.conv(b.x, 3, name="shared"))
    b.graph.output(b.sum(pooled, b.relu(pooled)))


def _pooled_and_returned(b: GraphBuilder) -> None:
    pooled = b.pool(b.conv(b.x, 3, name="returned"))
    b.graph.output(pooled, "pooled")  # not its own name
    b.graph.output(b.relu(pooled, "returned.relu"))


def _others_that_stay(b: GraphBuilder) -> None:
    grouped = b.conv(b.x, 6, operator=GROUPED, name="grouped")
    b.graph.output(grouped)
    b.graph.output(b.relu(grouped, "kept"), "rectified")  # not its own name
    twice = b.conv(b.x, 3, name="twice")  # pooled by other strides
    for operator in (POOL, replace(POOL, strides=(2, 2))):
        b.graph.output(b.pool(twice, operator))
    # windows of single elements, of which the strides leave some out
    b.graph.output(b.pool(b.conv(b.x, 3, name="few"), MaxPool((1, 1), (1, 2), (0, 0, 0, 0), (1, 1))))
    b.graph.output(b.relu(b.sum(b.conv(b.x, 3, name="added"), b.x)))  # sums may be negative
    b.graph.output(b.batchnorm(b.pool(b.conv(b.x, 8, name="late"))))  # and so may some factors
    b.graph.output(b.relu(b.x))  # no node computes an input


def draw_draft(rng: np.random.Generator, number: int) -> tuple[GraphBuilder, int]:
    """Draw a chain of redundant blocks, and add some that must stay; return the fewest nodes known, too."""
    builder, least = GraphBuilder(rng, f"drawn graph {number + 1}"), 0
    value, kinds = builder.x, len(REDUNDANT)
    # each graph lacks two other kinds, so that the steps a solution reaches do not depend on how often one is drawn
    for i, chosen in enumerate(rng.permutation(kinds - 2)):
        block, left = REDUNDANT[(number + chosen) % kinds]
        value, least = block(builder, value, f"conv{i}"), least + left
    builder.graph.output(value)
    redundant = len(builder.graph.nodes)
    (_pooled_and_returned if number % 2 else _pooled_for_two)(builder)
    _others_that_stay(builder)
    return builder, least + len(builder.graph.nodes) - redundant


def _shrink(submission: Submission) -> tuple[int, int, int]:
    """Return the nodes of the drawn graphs before and after `shrink`, and those that the course's own leaves."""
    drawn = [draw_draft(submission.rng, number) for number in range(GRAPHS)]
    if submission.parameters.shrink_argument == "outputs":
        # the argument may be left out, as for the first
        drawn = [drawn[0], *((builder, least - _drop_outputs(builder)) for builder, least in drawn[1:])]
    before = [len(builder.graph.nodes) for builder, _ in drawn]
    results = rewritten(submission, "shrink", [builder for builder, _ in drawn])
    return sum(before), sum(len(facts.nodes) for _, facts, _ in results), sum(least for _, least in drawn)


# outputs of drawn graphs: a node and its ReLU
PAIRS = (("grouped", "rectified"), ("pooled", "returned.relu"))


def _drop_outputs(builder: GraphBuilder) -> int:
    """Ask for all outputs but one of each pair of a node and its ReLU; return how many nodes fewer must stay."""
    names = list(builder.graph.outputs)
    pairs = [pair for pair in PAIRS if set(pair) <= set(names)]
    dropped = [pair[int(builder.rng.integers(2))] for pair in pairs]
    builder.arguments["outputs"] = [name for name in names if name not in dropped]
    return len(dropped)


def _check_nodes(submission: Submission, share: float, hint: str) -> None:
    """Check the share removed of what the course's own solution removes; the two rewrites of P2.4 remove a third."""
    before, after, least = submission.once("shrunk", lambda: _shrink(submission))
    submission.reach(after, course=least, smaller_is_better=True)
    limit = before - share * (before - least)
    expected, got = f"at most {limit:.0f} of {before} nodes left", f"{after}; the course's own leaves {least}"
    given = f"{GRAPHS} drawn graphs"
    expect.true(after <= limit, "`shrink` leaves too many nodes", expected=expected, got=got, given=given, hint=hint)


@points(2)
def half_of_it_goes(submission: Submission) -> None:
    """`shrink` keeps the results, and removes half of the nodes that the course's own solution removes."""
    _check_nodes(submission, 0.5, "a result that nobody reads is a user, too: what does it keep your rewrites from?")


@points(2)
def most_of_it_goes(submission: Submission) -> None:
    """`shrink` keeps the results, and removes three quarters of the nodes that the course's own solution removes."""
    _check_nodes(submission, 0.75, "two nodes with one operator and the same inputs: who could read one for both?")


@points(2)
def all_of_it_goes(submission: Submission) -> None:
    """`shrink` keeps the results, and leaves as few nodes as the course's own solution."""
    _check_nodes(submission, 1, "which operators change nothing where they are, and which two may change places?")


P2_5 = Task(
    "P2.5",
    "Fewest nodes",
    libraries=COMPILER,
    minutes=30,
    builds_on=("P2.4",),
    varies=(SHRINK_ARGUMENT,),
    leaderboard="nodes left of the drawn graphs",
)
