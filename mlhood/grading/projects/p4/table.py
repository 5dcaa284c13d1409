"""Checks of P4.5: four ways to slice a layer, and the table in which they are measured."""

from __future__ import annotations

from dataclasses import asdict

from mlhood.dataflow.sliced.sliced import sliced_problem
from mlhood.dataflow.slicing.analysis import largest
from mlhood.dataflow.slicing.caches import Caches, of_machine
from mlhood.dataflow.slicing.fit import check, needs
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing, counts
from mlhood.dataflow.tables import TRIPLES, slicing_table
from mlhood.errors import SlicingError
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import (
    check_agreed,
    check_by_the_clock,
    check_claim,
    check_comparisons,
    check_operations,
    whole_rows,
)
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing import Race
from mlhood.grading.projects.p4 import races
from mlhood.grading.projects.p4.reference import LEVELS, Triple
from mlhood.grading.projects.p4.slicing import triple
from mlhood.grading.projects.p4.spaces import PROBES
from mlhood.kernels.tables import RESNET18
from mlhood.measure.claims import ratio
from mlhood.measure.table import Table

FLOPS = RESNET18["C2"].geometry.flops  # as many as of C1, C3 and C4
FILL = "table.fill(row, compare({order: made[row][order] for order in table.columns}, flops=2 * layer.macs)), every row"
SMALL = Caches((16 << 10, 64 << 10, 256 << 10))  # less than the output of any layer that is drawn
HUGE = Caches((1 << 40, 1 << 41, 1 << 42))  # nothing is too large for these


def _problem(submission: Submission) -> Problem:
    """A layer of many tiles."""
    rng = submission.rng
    channels, filters = (int(size) for size in rng.permutation([96, 128, 160, 256])[:2])
    size = int(rng.integers(28, 40))
    return Problem(filters, channels, (3, 3), (size, size + 2), int(rng.integers(6, 15)), int(rng.choice([8, 16])))


def _told(submission: Submission, problem: Problem, caches: Caches, row: str) -> tuple[dict, dict[Order, Triple], str]:
    """What `triples` says, as it came; and its triples of one row by order."""
    analysed = {order: largest(problem, order, caches).tiles for order in ORDERS}
    given = f"{problem}, {caches}"
    with expect.case(given):
        found = submission.call(PROBES + "triples_of", submission.value("triples"), analysed, asdict(problem),
                                asdict(caches))  # fmt: skip
        rows = dict(expect.mapping(found, (row,), "what `triples` returns"))
    return rows, _columns(rows[row], row, given), given


def _columns(found: object, row: str, given: str) -> dict[Order, Triple]:
    what = f'"{row}"'
    columns = expect.mapping(found, ORDERS, what, given=given)
    return {order: triple(columns[order], f"{what} of {order}", given) for order in ORDERS}


def _possible(problem: Problem, order: Order, tiles: Triple, row: str, given: str) -> None:
    """Fail unless there are as many channels and tiles."""
    most = (problem.channels, *counts(problem, order))
    there = all(1 <= size <= limit for size, limit in zip(tiles, most, strict=True))
    hint = "k2 counts passing tiles and k3 staying ones: in WS input tiles pass, in IS weight tiles"
    expect.true(there, f'"{row}" of {order} takes tiles that are not there', expected=f"1 to {most}", got=f"{tiles}",
                given=given, hint=hint)  # fmt: skip


@points(2)
def analysed_is_taken_over(submission: Submission) -> None:
    """`triples` has the analysis' choice in the row "analysed"."""
    problem = _problem(submission)
    _, found, given = _told(submission, problem, SMALL, "analysed")
    for order in ORDERS:
        want = largest(problem, order, SMALL).tiles
        expect.equal(found[order], want, f'"analysed" of {order} is another', given=given, hint="analysed[order]")


@points(3)
def too_small_is_legal(submission: Submission) -> None:
    """`triples` has slices of one or two channels in the row "too small", and they fit."""
    problem = _problem(submission)
    _, found, given = _told(submission, problem, SMALL, "too small")
    for order in ORDERS:
        tiles = found[order]
        expect.true(tiles[0] in (1, 2), f'"too small" of {order} has other slices', expected="k1 = 1 or 2",
                    got=f"k1 = {tiles[0]}", given=given)  # fmt: skip
        _possible(problem, order, tiles, "too small", given)
        try:
            check(problem, Slicing(order, *tiles), SMALL)
        except SlicingError as error:
            hint = "leave k2 and k3 as analysed, or make them smaller"
            expect.fail(f'"too small" of {order} breaks a cache', got=f"{tiles}: {error.parts.get('got')}", given=given,
                        hint=hint)  # fmt: skip


@points(3)
def too_large_breaks_a_cache(submission: Submission) -> None:
    """`triples` has tiles that break at least one cache in the row "too large", as far as there are so many."""
    problem = _problem(submission)
    for caches in (SMALL, HUGE):
        _, found, given = _told(submission, problem, caches, "too large")
        for order in ORDERS:
            tiles, most = found[order], (problem.channels, *counts(problem, order))
            _possible(problem, order, tiles, "too large", given)
            needed = zip(LEVELS, needs(problem, order, *tiles), caches.rooms, strict=True)
            told = ", ".join(f"{level} {need:,} of {int(room):,}" for level, need, room in needed)
            hint = "the largest there is: all channels, all passing and all staying tiles"
            broken = _breaks(problem, order, tiles, caches) or not _breaks(problem, order, most, caches)
            expect.true(broken, f'"too large" of {order} breaks no cache', got=f"{tiles}: {told}", given=given,
                        hint=hint)  # fmt: skip


def _breaks(problem: Problem, order: Order, tiles: Triple, caches: Caches) -> bool:
    return any(need > room for need, room in zip(needs(problem, order, *tiles), caches.rooms, strict=True))


@points(2)
def my_own_is_another(submission: Submission) -> None:
    """`triples` has a choice of your own in the row "my own", unlike the other three."""
    problem = _problem(submission)
    rows, found, given = _told(submission, problem, SMALL, "my own")
    for order in ORDERS:
        _possible(problem, order, found[order], "my own", given)
    others = [_columns(rows[row], row, given) for row in TRIPLES if row != "my own" and row in rows]
    for order in ORDERS:
        same = [other[order] for other in others if other[order] == found[order]]
        expect.true(not same, f'"my own" of {order} stands in another row already', got=f"{found[order]}", given=given)


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(slicing_table()))


@points(3)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row is filled by one comparison of both columns."""
    check_comparisons(_table(submission), FILL)


@points(1)
def operations_are_told(submission: Submission) -> None:
    """Every cell knows its operations: two for each multiply-accumulate of the layer."""
    table = _table(submission)
    check_operations(whole_rows(table, FILL), dict.fromkeys(table.rows, FLOPS))


@points(2)
def orders_agree_and_analysed_is_faster(submission: Submission) -> None:
    """Both orders compute the same in every row, and the analysed tiles are faster than those that are too small."""
    # Only these two rows claim a ratio, and both orders race. The other two tell what was measured, and which order is
    # the faster is asked nowhere. The slices are the package's: that they compute the same is no word of the table.
    table = _table(submission)
    check_agreed(whole_rows(table, FILL))
    hint = "row by row, each with its own callables: made[row][order]"
    check_claim(table.verdicts()[1], "the analysed tiles are not faster", hint)
    what = "the analysed tiles are not faster as the table has it"
    check_by_the_clock(submission, _races(submission, table), what, "fill the table with `compare`, as measured")


def _races(submission: Submission, table: Table) -> list[Race]:
    """Too small against analysed in both orders, with the tiles that `triples` says for the notebook's layer."""
    chosen = submission.value("CHOICE")
    layer = RESNET18[chosen if isinstance(chosen, str) and chosen in RESNET18 else "C2"]
    problem, caches = sliced_problem(layer.geometry), of_machine()
    rows, analysed, given = _told(submission, problem, caches, "analysed")
    small = _columns(expect.mapping(rows, ("too small",), "what `triples` returns")["too small"], "too small", given)
    whole = [order for order in ORDERS if ("too small", order) in table and ("analysed", order) in table]
    told = {order: ratio(table["too small", order], table["analysed", order]) for order in whole}
    return races.slicings(layer, small, analysed, told)


TRIPLES_STAND_IN = """
from mlhood.grading.projects.p4.reference import triples
"""


TASKS = (
    Task(
        "P4.5",
        "The table",
        checks=(
            analysed_is_taken_over,
            too_small_is_legal,
            too_large_breaks_a_cache,
            my_own_is_another,
            rows_are_comparisons,
            operations_are_told,
            orders_agree_and_analysed_is_faster,
        ),
        stand_in=TRIPLES_STAND_IN,
        timed=True,
    ),
)
