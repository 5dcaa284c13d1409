"""Checks of P2.11: memory of three stages of LeNet, the tables of what they cost on the processor, and their claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlhood.compiler.hir import Graph
from mlhood.compiler.quantize import Recipe, profile, quantize
from mlhood.compiler.tables import IMAGES, STAGES, costs_table, latency_table
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import check_agreed, check_claim, check_comparisons, filled_rows
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing_verdict import PRECISION
from mlhood.grading.projects.p2.rewrites import GROUPED, GraphBuilder
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.rpc.limited import IsolatedCallError
from mlhood.grading.variants.parameter import Parameter
from mlhood.measure.claims import ratio
from mlhood.measure.measurement import Count, Measurement
from mlhood.measure.table import Table
from mlhood.models import digits

# what `memory` counts of a graph's program
ACTIVATIONS = Parameter("activations", ("the arena", "the live maximum", "all buffers"))

COSTS = "mlhood.grading.projects.reference_runs:stage_costs"
FILL = "each row is filled by one `race` of all sides, on the images of this row"
COUNT = "two counts for each stage: the bytes by your `memory`, and how many digits are right"
SIDES = "each column is its own side: partial(sides[name], x), with the images of the row; a lambda in a loop or a \
comprehension calls what its variables are at the end"
GROWTH = 1.5  # sixteen images take about ten times as long as one


def _constants(graph: Graph) -> int:
    return sum(value.data.nbytes for value in graph.constants.values())


@compared(
    2,
    "memory",
    hint="the constants, of 1 or 4 bytes an element, and of the program {{ activations }}",
    mistakes={
        "the activations need memory, too: how large is the arena of the plan?": lambda want, graph: _constants(graph)
    },
)
def memory_is_counted(submission: Submission) -> Iterator[Arguments]:
    """`memory` adds up the bytes of a graph's constants, and of {{ activations }} of its program for one image."""
    rng = submission.rng
    builder = GraphBuilder(rng, "conv -> relu, four times")  # in a chain, the arena is larger than what is live at once
    value = builder.x
    for _ in range(4):
        value = builder.relu(builder.conv(value, int(rng.integers(4, 10))))
    builder.graph.output(value)
    yield (builder.graph,)
    builder = GraphBuilder(rng, "grouped, strided conv -> bn")
    builder.graph.output(builder.batchnorm(builder.conv(builder.x, 6, bias=False, operator=GROUPED)))
    yield (builder.graph,)
    seen = profile(builder.graph, [{"x": submission.normal(2, 3, 9, 8)}])
    yield (quantize(builder.graph, seen, Recipe("asymmetric")),)


def _latency(submission: Submission) -> Table:
    return submission.once("latency", lambda: submission.table(latency_table()))


@points(2)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row of the first table is filled by one comparison of all columns, on as many images as the row says."""
    table = _latency(submission)
    check_comparisons(table, FILL)
    few, many = (table[row, "optimised"] for row in IMAGES)
    if isinstance(few, Measurement) and isinstance(many, Measurement):
        grown = min(many.seconds) / min(few.seconds)  # other programs only add to a time
        what = "the rows of `latency` are not of different numbers of images"
        expected = f"more than {GROWTH} times the time of one image for sixteen, by optimised"
        hint = "which part of the test images does a row take?"
        expect.true(grown > GROWTH, what, expected=expected, got=f"{grown:.2f} times", hint=hint)
    check_shown(submission, table)


def _measured(submission: Submission) -> dict[str, Any]:
    """Return what the stages cost, by name."""
    stages = expect.mapping(submission.value("stages"), STAGES, "`stages`")
    graphs = {name: stages[name] for name in STAGES}
    are_graphs = all(isinstance(graph, Hir) for graph in graphs.values())
    expect.true(are_graphs, "`stages` are not graphs", got=stages, hint="run the given cell, which makes them")
    _, _, images, labels, _ = digits()
    try:
        return submission.parser.call(COSTS, graphs, (images, labels), submission.parameters.activations)
    except IsolatedCallError as failure:
        raise expect.CheckFailed("a graph in `stages` cannot be run", got=str(failure)) from None


@points(2)
def costs_are_counted(submission: Submission) -> None:
    """The second table holds the memory of each stage, and how many of the test images it reads right."""
    table = submission.table(costs_table())
    filled_rows(table, COUNT)
    measured = _measured(submission)
    for name in STAGES:
        size, right = (_count(table, row, name) for row in ("bytes", "digits"))
        want = measured[name]
        what, hint = f"the bytes of {name} are wrong", "memory(stages[name])"
        expect.equal(size, want["bytes"], what, hint=hint)
        what, hint = f"the digits of {name} are wrong", "how many of all test images, not which share of them"
        least, most = want["digits"]
        expected = str(least) if least == most else f"{least} to {most}"
        expect.true(least <= right <= most, what, expected=expected, got=right, hint=hint)
    for verdict in table.verdicts():
        check_claim(submission, verdict, "a claim of the table fails", "the quantised graph is `stages['quantised']`")


def _count(table: Table, row: str, column: str) -> int:
    cell = table[row, column]
    return cell.value if isinstance(cell, Count) else -1


@points(2)
def optimised_is_faster(submission: Submission) -> None:
    """Optimised, the graph is faster than as it is in every row, and computes the same."""
    table = _latency(submission)
    check_agreed(filled_rows(table, FILL))
    check_shown(submission, table)


def check_shown(submission: Submission, table: Table) -> None:
    """Check that the table shows that optimised is faster.

    It is not measured again: the programs are the course's, of which optimised takes a third of the time or less. Where
    other programs, which only add to a time, leave it open, the least times may show it.

    Raises:
        CheckFailed: It does not.
        CheckUndecided: Its times are too noisy to show anything.
    """
    verdict = table.verdicts()[0]
    pairs: list[Any] = [(table[row, "as it is"], table[row, "optimised"]) for row in table.rows]
    not_shown = [gained for gained in (ratio(*pair) for pair in pairs) if gained.low <= 1]
    if verdict.state == "open" and all(gained.high > PRECISION * gained.value for gained in not_shown):
        if all(min(whole.seconds) > GROWTH * min(optimised.seconds) for whole, optimised in pairs):
            return
        raise expect.CheckUndecided(f"the times of the table are too noisy: {'; '.join(verdict.reasons)}")
    what, got = "the table does not show that optimised is faster", "; ".join(verdict.reasons)
    expect.true(verdict.state == "holds", what, expected=verdict.text, got=got, hint=SIDES)


P2_11 = Task(
    "P2.11",
    "Three stages on the CPU",
    timed=True,
    varies=(ACTIVATIONS,),
    minutes=25,
    builds_on=("P2.7", "P2.10"),
)
