"""Checks of P4.2: which tiles meet in which order, and a product that is made in that order."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4 import reference
from mlhood.grading.projects.p4.spaces import PROBES, first_difference, rows_of

OTHER = {"IS": "WS", "WS": "IS"}
STAYS = {"IS": "input", "WS": "weight"}


def _sizes(submission: Submission) -> list[tuple[int, int, int, int, int]]:
    """Input tiles, weight tiles, slices, k2 and k3: groups that are all full, and others that are not."""
    k2, k3 = (int(size) for size in submission.rng.permutation([2, 3, 4])[:2])
    rest = int(submission.rng.integers(1, 2 * k3))
    return [(2 * k2 * k3, 3 * k2 * k3, 2, k2, k3), (3 * k2 + 1, 2 * k2 * k3 + 1 + rest, 3, k2, k3)]


def _steps(submission: Submission, order: str, sizes: tuple[int, ...]) -> tuple[list, str]:
    named = zip(("inputs", "weights", "slices", "k2", "k3"), sizes, strict=True)
    given = ", ".join([order, *(f"{name} {size}" for name, size in named)])
    with expect.case(given):
        found = submission.call(PROBES + "listed", submission.value("steps"), order, *sizes)
    return rows_of(found, 3, "what `steps` returns", given), given


@points(4)
def every_step_is_there_once(submission: Submission) -> None:
    """`steps` lets every input tile meet every weight tile once in every slice."""
    hint = "tiles count from 0, and the last group ends with them: min(group + k, tiles); slices are the outermost loop"
    for order in ("IS", "WS"):
        for sizes in _sizes(submission):
            found, given = _steps(submission, order, sizes)
            want = {*np.ndindex(sizes[2], sizes[0], sizes[1])}
            beyond, missing = sorted(set(found) - want), sorted(want - set(found))
            expect.true(not beyond, "there are steps with tiles that are not there", got=str(beyond[:3]), given=given,
                        expected="(slice, input tile, weight tile)", hint=hint)  # fmt: skip
            expect.true(not missing, "steps are missing", got=str(missing[:3]), given=given, hint=hint)
            expect.equal(len(found), len(want), "steps come more than once", given=given, hint=hint)


def _in_order(submission: Submission, order: str) -> None:
    for sizes in _sizes(submission):
        found, given = _steps(submission, order, sizes)
        want = reference.steps(order, *sizes)
        there = set(want) & set(found)  # what is missing or too much costs the points of the check above
        expect.true(2 * len(there) >= len(want), "most steps are missing", got=f"{len(there)}", given=given)
        found = [one for one in dict.fromkeys(found) if one in there]
        kept = [one for one in want if one in there]
        hint = (
            f"{order}: {STAYS[order]} tiles stay. For each slice, group of k3 staying tiles, group of k2 passing "
            "tiles, staying tile, passing tile"
        )
        inputs, weights, slices, k2, k3 = sizes
        if found == [one for one in reference.steps(OTHER[order], *sizes) if one in there]:
            hint = f"this is the order {OTHER[order]}: in {order} the {STAYS[order]} tiles stay"
        elif found == [one for one in reference.steps(order, inputs, weights, slices, k3, k2) if one in there]:
            hint = "k2 and k3 have changed places: k2 counts passing tiles, k3 staying ones"
        expect.true(found == kept, f"steps of {order} come in another order", given=given, hint=hint,
                    **first_difference(found, kept))  # fmt: skip


@points(4)
def input_tiles_stay(submission: Submission) -> None:
    """`steps` of "IS" keeps an input tile while the weight tiles of a group pass by."""
    _in_order(submission, "IS")


@points(4)
def weight_tiles_stay(submission: Submission) -> None:
    """`steps` of "WS" keeps a weight tile while the input tiles of a group pass by."""
    _in_order(submission, "WS")


def _multiplies(
    submission: Submission, sizes: tuple[int, ...], tiles: tuple[int, ...], hint: str, through_steps: bool = False
) -> None:
    """Compare a product of both orders, with a right `steps` where the student's own does not lead to it.

    Args:
        submission: Whose.
        sizes: Channels, places, windows, filters.
        tiles: k1, k2, k3, windows and filters of a tile.
        hint: What to say.
        through_steps: Whether to look at how `steps` is called, too.
    """
    channels, places, windows, filters = sizes
    columns = submission.rng.standard_normal((channels, places, windows)).astype(np.float32)
    weights = submission.rng.standard_normal((filters, channels, places)).astype(np.float32)
    want = np.einsum("fct,ctp->fp", weights.astype(np.float64), columns)
    k1, k2, k3, window, some = tiles
    for order in ("IS", "WS"):
        arguments = (columns.copy(), weights.copy(), order, k1, k2, k3, window, some)
        given = (f"columns {columns.shape}, weights {weights.shape}, {order}, k1 {k1}, k2 {k2}, k3 {k3}, "
                 f"window {window}, filters {some}")  # fmt: skip
        try:
            with expect.case(given, hint):
                got = submission.call("sliced_product", *arguments)
            expect.close(got, want, "what `sliced_product` returns", given=given, hint=hint)
        except expect.CheckFailed as failure:
            if not _right_with_right_steps(submission, arguments, want):
                raise failure
        if through_steps:
            _asks_for_steps(submission, arguments, given)


def _asks_for_steps(submission: Submission, arguments: tuple, given: str) -> None:
    """Fail if `sliced_product` goes through no `steps` of these tiles; one call for each slice is as good as one."""
    columns, weights, order, k1, k2, k3, window, filters = arguments
    told = submission.call(PROBES + "asked", submission.value("sliced_product"), "steps", *arguments)
    report = expect.mapping(told, ("seen", "calls"), "how `steps` is called", given=given)
    claimed = report["calls"] if isinstance(report["calls"], list | tuple) else []
    calls = [
        [*one] for one in claimed if isinstance(one, list | tuple) and all(isinstance(x, str | float) for x in one)
    ]
    want = [order, -(-columns.shape[2] // window), -(-len(weights) // filters), -(-len(columns) // k1), k2, k3]
    hint = "for c, i, f in steps(order, input tiles, weight tiles, slices, k2, k3): one tile of y in each step"
    expect.true(not report["seen"] or bool(calls), "`sliced_product` does not go through `steps`", given=given,
                hint=hint)  # fmt: skip
    shown = ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in calls[0]) if calls else ""
    right = not report["seen"] or any(call in (want, [*want[:3], 1, *want[4:]]) for call in calls)
    expect.true(right, "`sliced_product` asks for other steps", expected=f"steps({', '.join(map(str, want))})",
                got=f"steps({shown})", given=given, hint=hint)  # fmt: skip


def _right_with_right_steps(submission: Submission, arguments: tuple, want: np.ndarray) -> bool:
    """Whether only the student's `steps` is to blame."""
    try:
        function = submission.value("sliced_product")
        expect.close(submission.call(PROBES + "with_right", function, "steps", *arguments), want, "the product")
    except expect.CheckFailed:
        return False
    return True


@points(4)
def product_is_right(submission: Submission) -> None:
    """`sliced_product` multiplies tiles of any sizes, also where the last ones are smaller."""
    hint = (
        "tiles = ceil(size / tile); y of a step's filters and windows gets weights [.., c, t] times columns [c, t, ..]"
    )
    for windows, filters in ((12, 8), (13, 7), (3, 11)):
        _multiplies(submission, (4, 3, windows, filters), (4, 2, 3, 4, 3), hint, through_steps=True)


@points(2)
def slices_add_up(submission: Submission) -> None:
    """`sliced_product` adds up what the slices of channels make, the last of which may have fewer."""
    hint = "every slice adds k1 channels to y, which starts at zero: y[...] += ..., and slices = ceil(C / k1)"
    for channels, k1 in ((6, 2), (7, 3)):
        _multiplies(submission, (channels, 4, 12, 8), (k1, 2, 2, 4, 4), hint)


STEPS_STAND_IN = """
from mlhood.grading.projects.p4.reference import sliced_product, steps
"""


TASKS = (
    Task(
        "P4.2",
        "Two orders",
        checks=(
            every_step_is_there_once,
            input_tiles_stay,
            weight_tiles_stay,
            product_is_right,
            slices_add_up,
        ),
        stand_in=STEPS_STAND_IN,
        forbidden=("mlhood.dataflow.sliced",),
    ),
)
