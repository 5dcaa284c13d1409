"""Checks of P4.2: the order in which tiles meet, and a product that is computed in that order."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4 import reference
from mlhood.grading.projects.p4.spaces import PROBES, first_difference, integer_rows

OTHER = {"IS": "WS", "WS": "IS"}
STATIONARY = {"IS": "input", "WS": "weight"}


def _draw_sizes(submission: Submission) -> list[tuple[int, int, int, int, int]]:
    """Draw input tiles, weight tiles, slices, k2 and k3: once with full groups only, once with partial groups."""
    k2, k3 = (int(size) for size in submission.rng.permutation([2, 3, 4])[:2])
    partial = int(submission.rng.integers(1, 2 * k3))
    return [(2 * k2 * k3, 3 * k2 * k3, 2, k2, k3), (3 * k2 + 1, 2 * k2 * k3 + 1 + partial, 3, k2, k3)]


def _steps(submission: Submission, order: str, sizes: tuple[int, ...]) -> tuple[list, str]:
    labelled = zip(("inputs", "weights", "slices", "k2", "k3"), sizes, strict=True)
    given = ", ".join([order, *(f"{name} {size}" for name, size in labelled)])
    with expect.case(given):
        got = submission.call(PROBES + "listed", submission.value("steps"), order, *sizes)
    return integer_rows(got, 3, "what `steps` returns", given), given


@points(4)
def every_step_is_there_once(submission: Submission) -> None:
    """`steps` combines every input tile with every weight tile exactly once in each slice."""
    hint = "tiles count from 0, and the last group may be smaller: min(group + k, tiles); slices are the outermost loop"
    for order in ("IS", "WS"):
        for sizes in _draw_sizes(submission):
            got, given = _steps(submission, order, sizes)
            want = {*np.ndindex(sizes[2], sizes[0], sizes[1])}
            nonexistent, missing = sorted(set(got) - want), sorted(want - set(got))
            with expect.case(given, hint):
                what, triple = "there are steps with tiles that do not exist", "(slice, input tile, weight tile)"
                expect.true(not nonexistent, what, expected=triple, got=str(nonexistent[:3]))
                expect.true(not missing, "steps are missing", got=str(missing[:3]))
                expect.equal(len(got), len(want), "steps occur more than once")


def _check_order(submission: Submission, order: str) -> None:
    for sizes in _draw_sizes(submission):
        got, given = _steps(submission, order, sizes)
        common = set(reference.steps(order, *sizes)) & set(got)  # missing and surplus steps are another check's subject
        most = 2 * len(common) >= sizes[0] * sizes[1] * sizes[2]
        expect.true(most, "most steps are missing", got=f"{len(common)}", given=given)
        got = [step for step in dict.fromkeys(got) if step in common]

        def expected(order: str, *sizes: int, common: set = common) -> list:
            return [step for step in reference.steps(order, *sizes) if step in common]

        want = expected(order, *sizes)
        hint = (
            f"{order}: {STATIONARY[order]} tiles stay. For each slice, group of k3 stationary tiles, group of k2 "
            "streamed tiles, stationary tile, streamed tile"
        )
        inputs, weights, slices, k2, k3 = sizes
        if got == expected(OTHER[order], *sizes):
            hint = f"this is the order {OTHER[order]}: in {order} the {STATIONARY[order]} tiles stay"
        elif got == expected(order, inputs, weights, slices, k3, k2):
            hint = "k2 and k3 are swapped: k2 counts streamed tiles, k3 stationary tiles"
        what = f"the steps of {order} are in the wrong order"
        expect.true(got == want, what, given=given, hint=hint, **first_difference(got, want))


@points(4)
def input_tiles_stay(submission: Submission) -> None:
    """`steps` for "IS" keeps an input tile while a group of weight tiles passes."""
    _check_order(submission, "IS")


@points(4)
def weight_tiles_stay(submission: Submission) -> None:
    """`steps` for "WS" keeps a weight tile while a group of input tiles passes."""
    _check_order(submission, "WS")


def _check_product(
    submission: Submission, sizes: tuple[int, ...], tiles: tuple[int, ...], hint: str, through_steps: bool = False
) -> None:
    """Check the product in both orders; the student's own `steps` is replaced by the reference's if it is at fault.

    Args:
        submission: The submission.
        sizes: Channels, kernel positions, windows, filters.
        tiles: k1, k2, k3, windows and filters of a tile.
        hint: The hint on failure.
        through_steps: Whether to check the calls of `steps`, too.
    """
    channels, positions, windows, filters = sizes
    columns = submission.normal(channels, positions, windows)
    weights = submission.normal(filters, channels, positions)
    want = np.einsum("fct,ctp->fp", weights.astype(np.float64), columns)
    k1, k2, k3, window, filter_tile = tiles
    for order in ("IS", "WS"):
        arguments = (columns.copy(), weights.copy(), order, k1, k2, k3, window, filter_tile)
        shapes = f"columns {columns.shape}, weights {weights.shape}"
        given = f"{shapes}, {order}, k1 {k1}, k2 {k2}, k3 {k3}, window {window}, filters {filter_tile}"
        try:
            with expect.case(given, hint):
                got = submission.call("sliced_product", *arguments)
                expect.close(got, want, "what `sliced_product` returns")
        except expect.CheckFailed as failure:
            if not _right_with_reference_steps(submission, arguments, want):
                raise failure
        if through_steps:
            _check_calls_of_steps(submission, arguments, given)


def _check_calls_of_steps(submission: Submission, arguments: tuple, given: str) -> None:
    """Fail unless `sliced_product` calls `steps` for these tiles, for all slices at once or for one at a time."""
    columns, weights, order, k1, k2, k3, window, filters = arguments
    answer = submission.call(PROBES + "recorded_calls", submission.value("sliced_product"), "steps", *arguments)
    report = expect.mapping(answer, ("recorded", "calls"), "the calls of `steps`", given=given)
    claimed = report["calls"] if isinstance(report["calls"], list | tuple) else []
    calls = [
        [*call] for call in claimed if isinstance(call, list | tuple) and all(isinstance(x, str | float) for x in call)
    ]
    want = [order, -(-columns.shape[2] // window), -(-len(weights) // filters), -(-len(columns) // k1), k2, k3]
    hint = "for c, i, f in steps(order, input tiles, weight tiles, slices, k2, k3): one tile of y in each step"
    with expect.case(given, hint):
        expect.true(not report["recorded"] or bool(calls), "`sliced_product` does not use `steps`")
        right = not report["recorded"] or any(call in (want, [*want[:3], 1, *want[4:]]) for call in calls)
        shown = ", ".join(f"{x:g}" if isinstance(x, float) else x for x in calls[0]) if calls else ""
        what = "`sliced_product` calls `steps` with the wrong arguments"
        expect.true(right, what, expected=f"steps({', '.join(map(str, want))})", got=f"steps({shown})")


def _right_with_reference_steps(submission: Submission, arguments: tuple, want: np.ndarray) -> bool:
    """Whether the product is right once `steps` is the reference's, so that only the student's `steps` is wrong."""
    try:
        function = submission.value("sliced_product")
        expect.close(submission.call(PROBES + "with_reference", function, "steps", *arguments), want, "the product")
    except expect.CheckFailed:
        return False
    return True


@points(4)
def product_is_right(submission: Submission) -> None:
    """`sliced_product` multiplies tiles of any sizes, including smaller ones at the end."""
    hint = "tiles = ceil(size / tile); in each step, y[filters, windows] += weights[.., c, t] * columns[c, t, ..]"
    for windows, filters in ((12, 8), (13, 7), (3, 11)):
        _check_product(submission, (4, 3, windows, filters), (4, 2, 3, 4, 3), hint, through_steps=True)


@points(2)
def slices_add_up(submission: Submission) -> None:
    """`sliced_product` adds up the slices of channels, including a smaller last one."""
    hint = "each slice adds k1 channels to y, which starts at zero: y[...] += ..., and slices = ceil(C / k1)"
    for channels, k1 in ((6, 2), (7, 3)):
        _check_product(submission, (channels, 4, 12, 8), (k1, 2, 2, 4, 4), hint)


STEPS_STAND_IN = """
from mlhood.grading.projects.p4.reference import sliced_product, steps
"""


TASKS = (
    Task(
        "P4.2",
        "Two orders",
        checks=(every_step_is_there_once, input_tiles_stay, weight_tiles_stay, product_is_right, slices_add_up),
        stand_in=STEPS_STAND_IN,
        forbidden=("mlhood.dataflow.sliced",),
    ),
)
