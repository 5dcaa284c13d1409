"""Checks of P4.5: four ways to slice a layer, and the table of their measurements."""

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
    check_claim,
    check_comparisons,
    check_operations,
    check_remeasured_claims,
    filled_rows,
)
from mlhood.grading.checks.task import Task, points
from mlhood.grading.checks.timing_claim import TimingClaim
from mlhood.grading.projects.p4 import races
from mlhood.grading.projects.p4.orders import PROBES
from mlhood.grading.projects.p4.reference import LEVELS, Triple
from mlhood.grading.projects.p4.slicing import integer_triple
from mlhood.kernels.tables import RESNET18
from mlhood.measure.claims import ratio
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table

FLOPS = RESNET18["C2"].geometry.flops  # the same for C1, C3 and C4
FILL = "table.fill(row, compare({order: made[row][order] for order in table.columns}, flops=2 * layer.macs)), every row"
SMALL = Caches((16 << 10, 64 << 10, 256 << 10))  # smaller than the output of any layer that is drawn
HUGE = Caches((1 << 40, 1 << 41, 1 << 42))  # nothing is too large for these


def _draw_problem(submission: Submission) -> Problem:
    """Draw a layer of many tiles."""
    rng = submission.rng
    channels, filters = (int(size) for size in rng.permutation([96, 128, 160, 256])[:2])
    size = int(rng.integers(28, 40))
    return Problem(filters, channels, (3, 3), (size, size + 2), int(rng.integers(6, 15)), int(rng.choice([8, 16])))


def _triples(
    submission: Submission, problem: Problem, caches: Caches, row: str
) -> tuple[dict, dict[Order, Triple], str]:
    """Return the student's `triples`, those of one row by order, and a description of the case."""
    analysed = {order: largest(problem, order, caches).tiles for order in ORDERS}
    given = f"{problem}, {caches}"
    with expect.case(given):
        function = submission.value("triples")
        answer = submission.call(PROBES + "triples_of", function, analysed, asdict(problem), asdict(caches))
        rows = dict(expect.mapping(answer, (row,), "what `triples` returns"))
    return rows, _row(rows[row], row, given), given


def _row(value: object, row: str, given: str) -> dict[Order, Triple]:
    columns = expect.mapping(value, ORDERS, f'"{row}"', given=given)
    return {order: integer_triple(columns[order], f'"{row}" of {order}', given) for order in ORDERS}


def _check_existing(problem: Problem, order: Order, tiles: Triple, row: str, given: str) -> None:
    """Fail unless the problem has that many channels and tiles."""
    most = (problem.channels, *counts(problem, order))
    exist = all(1 <= size <= limit for size, limit in zip(tiles, most, strict=True))
    what = f'"{row}" of {order} uses more tiles than there are'
    hint = "k2 counts streamed tiles and k3 stationary tiles: in WS input tiles pass, in IS weight tiles"
    expect.true(exist, what, expected=f"from 1 to {most}", got=f"{tiles}", given=given, hint=hint)


@points(2)
def analysed_is_taken_over(submission: Submission) -> None:
    """`triples` has the result of the analysis in the row "analysed"."""
    problem = _draw_problem(submission)
    _, tiles, given = _triples(submission, problem, SMALL, "analysed")
    _check_analysed(problem, SMALL, tiles, given)


def _check_analysed(problem: Problem, caches: Caches, tiles: dict[Order, Triple], given: str) -> None:
    for order in ORDERS:
        want = largest(problem, order, caches).tiles
        what = f'"analysed" of {order} is not the result of the analysis'
        expect.equal(tiles[order], want, what, given=given, hint="analysed[order]")


@points(3)
def too_small_is_legal(submission: Submission) -> None:
    """`triples` has slices of one or two channels in the row "too small", and they fit."""
    problem = _draw_problem(submission)
    _, row, given = _triples(submission, problem, SMALL, "too small")
    _check_small(problem, SMALL, row, given)


def _check_small(problem: Problem, caches: Caches, row: dict[Order, Triple], given: str) -> None:
    for order, tiles in row.items():
        what = f'"too small" of {order} has the wrong slices'
        expect.true(tiles[0] in (1, 2), what, expected="k1 = 1 or 2", got=f"k1 = {tiles[0]}", given=given)
        _check_existing(problem, order, tiles, "too small", given)
        try:
            check(problem, Slicing(order, *tiles), caches)
        except SlicingError as error:
            what, got = f'"too small" of {order} does not fit into a cache', f"{tiles}: {error.parts.get('got')}"
            expect.fail(what, got=got, given=given, hint="keep k2 and k3 as analysed, or make them smaller")


@points(3)
def too_large_breaks_a_cache(submission: Submission) -> None:
    """`triples` has tiles that exceed at least one cache in the row "too large", or all tiles if all fit."""
    problem = _draw_problem(submission)
    for caches in (SMALL, HUGE):
        _, row, given = _triples(submission, problem, caches, "too large")
        for order, tiles in row.items():
            most = (problem.channels, *counts(problem, order))
            _check_existing(problem, order, tiles, "too large", given)
            levels = zip(LEVELS, needs(problem, order, *tiles), caches.rooms, strict=True)
            shown = ", ".join(f"{level} {used:,} of {int(capacity):,}" for level, used, capacity in levels)
            exceeds = _exceeds(problem, order, tiles, caches) or not _exceeds(problem, order, most, caches)
            what = f'"too large" of {order} exceeds no cache'
            hint = "the largest there is: all channels, all streamed and all stationary tiles"
            expect.true(exceeds, what, got=f"{tiles}: {shown}", given=given, hint=hint)


def _exceeds(problem: Problem, order: Order, tiles: Triple, caches: Caches) -> bool:
    return any(used > capacity for used, capacity in zip(needs(problem, order, *tiles), caches.rooms, strict=True))


@points(2)
def my_own_is_another(submission: Submission) -> None:
    """`triples` has a choice of your own in the row "my own", different from the other three rows."""
    problem = _draw_problem(submission)
    rows, own, given = _triples(submission, problem, SMALL, "my own")
    for order in ORDERS:
        _check_existing(problem, order, own[order], "my own", given)
    others = [_row(rows[row], row, given) for row in TRIPLES if row != "my own" and row in rows]
    for order in ORDERS:
        repeated = any(other[order] == own[order] for other in others)
        what = f'"my own" of {order} is the same as in another row'
        expect.true(not repeated, what, got=f"{own[order]}", given=given)


def _table(submission: Submission) -> Table:
    return submission.once("table", lambda: submission.table(slicing_table()))


@points(3)
def rows_are_comparisons(submission: Submission) -> None:
    """Every row is filled by one comparison of both columns."""
    check_comparisons(_table(submission), FILL)


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
    # The rows are measured one after another, so a table with the analysed tiles behind may be noise: the race decides.
    table = _table(submission)
    check_agreed(filled_rows(table, FILL))
    hint = "fill row by row, each with its own callables: made[row][order]"
    if not submission.session.remeasure:
        check_claim(table.verdicts()[1], "the analysed tiles are not faster", hint)
    what = "the analysed tiles are not as much faster as the table claims"
    check_remeasured_claims(submission, _races(submission, table), what, hint)


def _races(submission: Submission, table: Table) -> list[TimingClaim]:
    """Return timed comparisons of too small and analysed tiles, both by the student's `triples`, in both orders."""
    choice = submission.value("CHOICE")
    layer = RESNET18[choice if isinstance(choice, str) and choice in RESNET18 else "C2"]
    problem, caches = sliced_problem(layer.geometry), of_machine()
    rows, analysed, given = _triples(submission, problem, caches, "analysed")
    _check_analysed(problem, caches, analysed, given)
    small = _row(expect.mapping(rows, ("too small",), "what `triples` returns")["too small"], "too small", given)
    _check_small(problem, caches, small, given)
    claimed: dict[Order, Ratio] = {
        order: ratio(table["too small", order], table["analysed", order]) for order in ORDERS
    }
    return races.slicings(layer, small, analysed, claimed)


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
