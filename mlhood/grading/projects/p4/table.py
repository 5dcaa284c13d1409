"""Checks of P4.5 and P4.6: four ways to slice a layer, and the tables of their measurements, of it and of a network."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from mlhood.dataflow.sliced.sliced import sliced_problem
from mlhood.dataflow.slicing.analysis import largest, needs
from mlhood.dataflow.slicing.caches import Caches, of_machine
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, counts
from mlhood.dataflow.tables import TRIPLES, network_table, slicing_table
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import (
    check_agreed,
    check_claim,
    check_one_comparison,
    check_operations,
    check_remeasured_claims,
    filled_rows,
)
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing_verdict import TimingClaim
from mlhood.grading.projects.p4 import timed
from mlhood.grading.projects.p4.kernels import (
    SLICED_BY,
    Triple,
    convolutions_are_right,
    three_by_three_layers_are_sliced,
    weights_are_packed_once,
)
from mlhood.grading.projects.p4.libraries import SLICINGS
from mlhood.grading.projects.p4.nests import PROBES
from mlhood.grading.variants.parameter import Parameter
from mlhood.kernels.tables import RESNET18
from mlhood.measure.claims import ratio
from mlhood.measure.table import Table

# the keys of what `triples` returns: a row, then an order; an order, then a row; or pairs of both
TRIPLES_BY = Parameter("triples_by", ("row", "order", "row and order"))
ONE_OF_EACH = (1, 1, 1)

FLOPS = RESNET18["C2"].geometry.flops  # the same for C1, C3 and C4
FILL = "one `compare` of all eight, then `fill` for each row with the names of its two"
AGAIN = "; if it is, run the cell again while nothing else runs on this machine"
OWN_CALLABLES = f"each row is to hold what was measured of its own callables, made[row][order]{AGAIN}"
OWN_NETWORKS = f"each cell is to hold the time of a network that is compiled with its row's tiles{AGAIN}"
SMALL = Caches((16 << 10, 64 << 10, 256 << 10))  # smaller than the output of any layer that is drawn
TINY = Caches((8 << 10, 16 << 10, 32 << 10))  # a few channels and tiles fit
NARROW = Caches((8 << 10, 8 << 10, 8 << 10))  # a single stationary tile fits, in one of the orders at least
PAIR = Caches((8 << 10, 8 << 10, 12 << 10))  # two stationary tiles fit, in one of the orders at least
HUGE = Caches((1 << 40, 1 << 41, 1 << 42))  # nothing is too large for these
DEEP = Caches((512 << 10, 512 << 10, 512 << 10))  # L1 holds a tile with all channels, but no level all tiles


def _draw_problem(submission: Submission, channels: int = 0) -> Problem:
    """Draw a layer of many tiles, with so many channels, or many."""
    rng = submission.rng
    drawn, filters = (int(size) for size in rng.permutation([96, 128, 160, 256])[:2])
    channels = channels or drawn
    size = int(rng.integers(28, 40))
    return Problem(filters, channels, (3, 3), (size, size + 2), int(rng.integers(6, 15)), int(rng.choice([8, 16])))


def _row(
    submission: Submission, problem: Problem, caches: Caches, row: str, chosen: Triple | None = None
) -> tuple[dict[Order, Triple], dict[Any, Any], str]:
    """Return a row of the student's `triples` by order, all of its rows, and a description of the case.

    Args:
        submission: The notebook.
        problem: The layer.
        caches: The caches.
        row: A row of the table.
        chosen: What the analysis is said to have chosen; by default what it chooses.
    """
    analysed = {order: chosen or largest(problem, order, caches).tiles for order in ORDERS}
    given, what = f"{problem}, {caches}" + (f", analysed {chosen}" if chosen else ""), "what `triples` returns"
    with expect.case(given):
        arguments = submission.parameters.triples_by, analysed, asdict(problem), asdict(caches)
        rows = dict(submission.probe(PROBES + "triples_of", "triples", *arguments))
        return _checked_row(expect.mapping(rows, (row,), what)[row], row), rows, given


def _checked_row(value: object, row: str) -> dict[Order, Triple]:
    columns, tiles = expect.mapping(value, ORDERS, f'"{row}"'), {}
    for order in ORDERS:
        triple = expect.sequence(columns[order], tuple, f'"{row}" of {order}')
        expect.equal(len(triple), 3, f'the wrong number of items in "{row}" of {order}')
        tiles[order] = tuple(expect.integer(number, f'"{row}" of {order}') for number in triple)
    return tiles


def _check_existing(problem: Problem, order: Order, tiles: Triple, row: str, given: str) -> None:
    """Fail unless the problem has that many channels and tiles."""
    most = (problem.channels, *counts(problem, order))
    exist = all(1 <= size <= limit for size, limit in zip(tiles, most, strict=True))
    what = f'"{row}" of {order} is out of range'
    hint = "k2 counts streamed tiles and k3 stationary tiles: in WS input tiles pass, in IS weight tiles"
    expect.true(exist, what, expected=f"from 1 to {most}", got=f"{tiles}", given=given, hint=hint)


def _analysed(submission: Submission, problem: Problem, caches: Caches) -> dict[Order, Triple]:
    """Return the row "analysed"; fail unless it is the result of the analysis."""
    row, _, given = _row(submission, problem, caches, "analysed")
    want = {order: largest(problem, order, caches).tiles for order in ORDERS}
    what, hint = '"analysed" is not the result of the analysis', "this row is an argument of the function"
    expect.equal(row, want, what, given=given, hint=hint)
    return row


def _too_small(submission: Submission, problem: Problem, caches: Caches) -> dict[Order, Triple]:
    """Return the row "too small"; fail unless it is one of each."""
    row, _, given = _row(submission, problem, caches, "too small")
    expect.equal(row, dict.fromkeys(ORDERS, ONE_OF_EACH), '"too small" is not one of each', given=given)
    return row


@points(1)
def analysed_is_taken_over(submission: Submission) -> None:
    """`triples` has the result of the analysis in the row "analysed"."""
    _analysed(submission, _draw_problem(submission), SMALL)


@points(2)
def too_small_is_one_of_each(submission: Submission) -> None:
    """`triples` has (1, 1, 1) in the row "too small"."""
    _too_small(submission, _draw_problem(submission), SMALL)


@points(2)
def too_large_breaks_a_cache(submission: Submission) -> None:
    """`triples` has tiles that exceed at least one cache in the row "too large", or all tiles if all fit."""
    problem = _draw_problem(submission)
    for caches in (SMALL, DEEP, HUGE):
        row, _, given = _row(submission, problem, caches, "too large")
        for order, tiles in row.items():
            most, what = (problem.channels, *counts(problem, order)), f'"too large" of {order} exceeds no cache'
            _check_existing(problem, order, tiles, "too large", given)
            used = needs(problem, order, *tiles)
            larger = any(need > room for need, room in zip(used, caches.rooms, strict=True))
            hint = "what is the largest that the text allows? For which of the two orders is it?"
            got = f"{tiles} need {used} of {caches.rooms}"
            expect.true(larger or tiles == most, what, got=got, given=given, hint=hint)


@points(2)
def my_own_is_another(submission: Submission) -> None:
    """`triples` has a choice of your own in the row "my own", different from the other three rows."""
    problem, few = _draw_problem(submission), _draw_problem(submission, 2)
    cases: list[tuple[Problem, Caches, Triple | None]] = [
        (problem, caches, None) for caches in (SMALL, TINY, NARROW, PAIR, HUGE)
    ]
    cases += [(few, SMALL, None), (few, HUGE, None)]
    cases += [(problem, HUGE, (1, 3, stationary)) for stationary in (1, 2)]  # a k1 that cannot be halved
    for problem, caches, chosen in cases:
        own, rows, given = _row(submission, problem, caches, "my own", chosen)
        others = [_checked_row(rows[row], row) for row in TRIPLES if row != "my own" and row in rows]
        for order in ORDERS:
            _check_existing(problem, order, own[order], "my own", given)
            repeated = any(other[order] == own[order] for other in others)
            what = f'"my own" of {order} is the same as in another row'
            expect.true(not repeated, what, got=f"{own[order]}", given=given)


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(slicing_table()))


def _network_table(submission: Submission) -> Table:
    return submission.once("network table", lambda: submission.table(network_table()))


def _check_one_comparison(table: Table) -> None:
    # The claims compare rows, too: of rows that are measured one after another, noise decides which is faster.
    rows = filled_rows(table, FILL)
    check_one_comparison([cell for cells in rows.values() for cell in cells], "all rows", FILL)


@points(3)
def rows_are_comparisons(submission: Submission) -> None:
    """All cells are filled by one comparison."""
    _check_one_comparison(_table(submission))
    _check_remeasured(submission, _table(submission))


@points(1)
def operations_are_told(submission: Submission) -> None:
    """Every cell records its operations: two for each multiply-accumulate of the layer."""
    table = _table(submission)
    check_operations(filled_rows(table, FILL), dict.fromkeys(table.rows, FLOPS))


@points(2)
def orders_agree_and_analysed_is_faster(submission: Submission) -> None:
    """Both orders compute the same in every row, and the analysed tiles are faster than the too small ones."""
    # Only these two rows claim a ratio, and both orders are timed again. The other rows report measurements, and no
    # check asks which order is faster. The sliced convolution is the package's, so its results need no check here.
    table = _table(submission)
    check_agreed(filled_rows(table, FILL))
    if not submission.session.remeasure:
        check_claim(submission, table.verdicts()[1], "the analysed tiles are not faster", OWN_CALLABLES)
    _check_remeasured(submission, table)


P4_5 = Task(
    "P4.5",
    "The table",
    checks=(
        analysed_is_taken_over,
        too_small_is_one_of_each,
        too_large_breaks_a_cache,
        my_own_is_another,
        rows_are_comparisons,
        operations_are_told,
        orders_agree_and_analysed_is_faster,
    ),
    solution_is_fallback=True,
    libraries=SLICINGS,
    varies=(TRIPLES_BY,),
    timed=True,
    minutes=30,
    builds_on=("P4.4",),
)


def _check_remeasured(submission: Submission, table: Table, *, network: bool = False) -> None:
    """Time too small and analysed tiles, both by the student's `triples`, in both orders: a layer, or a network."""

    def claims() -> list[TimingClaim]:
        choice = submission.value("CHOICE")
        layer = RESNET18[choice if isinstance(choice, str) and choice in RESNET18 else "C2"]
        problem, caches = sliced_problem(layer.geometry), of_machine()
        small, analysed = (row(submission, problem, caches) for row in (_too_small, _analysed))
        timed_side, course = partial(timed.timed_slices, layer), partial(timed.same_slices, layer)
        if network:
            asked = timed.every_layer(submission)
            kernel = lambda order, tiles: submission.solution("sliced_kernel", order, tiles, *asked)  # noqa: E731
            timed_side, course = timed.timed_network, partial(timed.same_network, kernel)
        return [
            TimingClaim(
                f"{'the network, ' if network else ''}too small over analysed, {order}",
                timed_side(order, small[order]),
                timed_side(order, analysed[order]),
                ratio(table["too small", order], table["analysed", order]),
                course(order, small[order]),
                directed=not network,
            )
            for order in ORDERS
        ]

    what = f"{'the network is' if network else 'the analysed tiles are'} not as much faster as the table claims"
    check_remeasured_claims(submission, claims, what, OWN_NETWORKS if network else OWN_CALLABLES)


@points(2)
def network_rows_are_comparisons(submission: Submission) -> None:
    """All cells of the network's table are filled by one comparison."""
    _check_one_comparison(_network_table(submission))
    _check_remeasured(submission, _network_table(submission), network=True)


@points(2)
def network_is_the_same_in_both_orders(submission: Submission) -> None:
    """Both orders compute the same network in every row, and the table's ratios agree with the grader's."""
    table = _network_table(submission)
    check_agreed(filled_rows(table, FILL))
    _check_remeasured(submission, table, network=True)


P4_6 = Task(
    "P4.6",
    "The whole network",
    checks=(
        convolutions_are_right,
        three_by_three_layers_are_sliced,
        weights_are_packed_once,
        network_rows_are_comparisons,
        network_is_the_same_in_both_orders,
    ),
    libraries=SLICINGS,
    timed=True,
    minutes=40,
    varies=(SLICED_BY,),
    builds_on=("P4.5",),
)
