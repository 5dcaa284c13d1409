"""Checks of P4.2: the order of tiles in a sliced convolution, and the product that is computed in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.problem import ORDERS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.projects.p4.nests import PROBES, listed, same_items, same_order
from mlhood.grading.variants.parameter import Parameter

STEP = "slice, input tile, weight tile"
STEP_ORDER = Parameter(
    "step",
    (
        STEP,
        "slice, weight tile, input tile",
        "input tile, weight tile, slice",
        "weight tile, input tile, slice",
    ),
)
SLICE_LOOP = Parameter("slice_loop", ("outermost", "second", "third", "innermost"))
# the dimensions of columns, weights and y
PRODUCT_LAYOUT = Parameter(
    "product_layout", (("CTP", "FCT", "FP"), ("TCP", "FCT", "PF"), ("PTC", "TCF", "FP"), ("CPT", "FTC", "PF"))
)
OTHER = {"IS": "WS", "WS": "IS"}


def _draw_tiles(submission: Submission, order: str) -> Iterator[Arguments]:
    """Draw arguments of `steps`: full groups, partial ones, and one group larger than all tiles of a single slice."""
    k2, k3 = (int(size) for size in submission.rng.permutation([2, 3, 4])[:2])
    partial = int(submission.rng.integers(1, 2 * k3))
    yield order, 2 * k2 * k3, 3 * k2 * k3, 2, k2, k3
    yield order, 3 * k2 + 1, 2 * k2 * k3 + 1 + partial, 3, k2, k3
    yield order, 3, 2, 1, 5, 7


def _call_steps(submission: Submission, *args: Any) -> list[tuple[int, ...]]:
    return listed(submission, "steps", 3, *args)


@compared(
    3,
    "steps",
    call=_call_steps,
    compare=same_items,
    hint="tiles count from 0, the last group ends with the last tile, and slices are the {{ slice_loop }} loop",
)
def every_step_is_there_once(submission: Submission) -> Iterator[Arguments]:
    """`steps` combines every input tile with every weight tile exactly once in each slice."""
    for order in ORDERS:
        yield from _draw_tiles(submission, order)


ORDER_HINT = (
    "Write the five loops in their order, slices as the {{ slice_loop }} one: which of the two groups, and which of "
    "the two tiles, changes faster?"
)
OTHERS: dict[str, Callable[..., Arguments]] = {
    "this is the order of the other kind: which tiles are stationary?": lambda order, *sizes: (OTHER[order], *sizes),
    "k2 and k3 are swapped: k2 counts streamed tiles, k3 stationary tiles": lambda *args: (*args[:4], args[5], args[4]),
}


@compared(
    3,
    "steps",
    call=_call_steps,
    compare=same_order,
    hint=f"IS: input tiles are stationary. {ORDER_HINT}",
    others=OTHERS,
)
def input_tiles_stay(submission: Submission) -> Iterator[Arguments]:
    """`steps` for "IS" keeps an input tile while a group of weight tiles passes."""
    return _draw_tiles(submission, "IS")


@compared(
    3,
    "steps",
    call=_call_steps,
    compare=same_order,
    hint=f"WS: weight tiles are stationary. {ORDER_HINT}",
    others=OTHERS,
)
def weight_tiles_stay(submission: Submission) -> Iterator[Arguments]:
    """`steps` for "WS" keeps a weight tile while a group of input tiles passes."""
    return _draw_tiles(submission, "WS")


Sizes = tuple[int, int, int, int]  # channels, kernel positions, windows, filters
Tiles = tuple[int, int, int, int, int]  # k1, k2, k3, and the windows and filters of a tile


def _draw_operands(submission: Submission, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Draw columns [C, T, P] and weights [F, C, T]."""
    channels, positions, windows, filters = sizes
    return submission.normal(channels, positions, windows), submission.normal(filters, channels, positions)


def _laid_out(array: np.ndarray, given: str, wanted: str) -> np.ndarray:
    """Return an array whose dimensions are in another order, such as `FCT` as `CTF`."""
    return np.ascontiguousarray(array.transpose([given.index(name) for name in wanted]))


def _check_product(submission: Submission, sizes: Sizes, tiles: Tiles, hint: str) -> None:
    """Check the product in both orders; with other steps, if those of `steps` have lost points already."""
    if not submission.passed(every_step_is_there_once, input_tiles_stay, weight_tiles_stay):
        _check_that_steps_decide(submission, sizes, tiles)
        return
    columns, weights = _draw_operands(submission, sizes)
    layout = submission.parameters.product_layout
    want = _laid_out(np.einsum("fct,ctp->fp", weights.astype(np.float64), columns), "FP", layout[2])
    for order in ORDERS:
        arguments = _laid_out(columns, "CTP", layout[0]), _laid_out(weights, "FCT", layout[1]), order, *tiles
        with expect.case(expect.format_call("sliced_product", arguments, {}), hint):
            got = submission.call("sliced_product", *arguments)
            expect.close(got, want, "what `sliced_product` returns", dtype=np.float32)


def _with_steps(submission: Submission, arguments: Arguments, counts: list[int], steps: list, repeats: int) -> object:
    """Return the result of `sliced_product` if `steps` returns these for the arguments that it is to be called with.

    If slices are the outermost loop, it may be called for one slice at a time, and returns those of slice 0 then, so
    many times.
    """
    order, (*tiles, slices) = arguments[2], counts
    named = [([order, *tiles, slices, *arguments[4:6]], steps)]
    if submission.parameters.slice_loop == "outermost" and slices > 1:
        place = submission.parameters.step.split(", ").index("slice")
        single = [step for step in steps if step[place] == 0] * repeats
        named.append(([order, *tiles, 1, *arguments[4:6]], single))
    keys = ("result", "others", "broken")
    report = submission.probe(PROBES + "with_steps", "sliced_product", named, *arguments, keys=keys)
    what = "`sliced_product` calls `steps` with the wrong arguments"
    expect.true(report["others"] == [], what, expected=f"steps{tuple(named[0][0])}", got=f"steps: {report['others']}")
    return report["result"]


def _check_that_steps_decide(submission: Submission, sizes: Sizes, tiles: Tiles) -> None:
    """Fail unless exactly the steps are computed that `steps` names, in their order.

    It names them in random order, each up to three times. Once the columns are such that float32 sums depend on the
    order; an exact sum is right, too.
    """
    columns, weights = _draw_operands(submission, sizes)
    (channels, _, windows, filters), (k1, _, _, window, filter_tile) = sizes, tiles
    counts = [-(-channels // k1), -(-windows // window), -(-filters // filter_tile)]
    # one term in each product, of which the larger ones absorb 1 and cancel
    single_columns, single_weights = np.zeros_like(columns), np.zeros_like(weights)
    single_columns[::k1, 0] = submission.rng.permutation([2.0**25, -(2.0**25), 1.0])[: counts[0], None]
    single_weights[:, ::k1, 0] = 1
    for order in ORDERS:
        times = submission.rng.integers(1, 4, math.prod(counts))
        named = submission.rng.permutation(np.repeat([*np.ndindex(*counts)], times, axis=0))
        for operands, computed in (
            ((columns, weights), "the steps"),
            ((single_columns, single_weights), "the steps, one after another"),
        ):
            _check_named_steps(submission, *operands, (order, *tiles), counts, named, computed)


def _check_named_steps(
    submission: Submission,
    columns: np.ndarray,
    weights: np.ndarray,
    rest: Arguments,
    counts: list[int],
    named: np.ndarray,
    computed: str,
) -> None:
    """Compare the sums of these steps (slice, input tile, weight tile), in their order or exact.

    If slices are the outermost loop, `steps` may be called for one slice at a time, and names those of slice 0 twice.

    Args:
        submission: The submission.
        columns: [C, T, P].
        weights: [F, C, T].
        rest: The other arguments of `sliced_product`.
        counts: Slices, input tiles and weight tiles.
        named: The steps.
        computed: Names them in the message.
    """
    layout, k1, sizes = submission.parameters.product_layout, rest[1], rest[4:]
    places = [STEP.split(", ").index(name) for name in submission.parameters.step.split(", ")]
    arguments = _laid_out(columns, "CTP", layout[0]), _laid_out(weights, "FCT", layout[1]), *rest
    given = f"{expect.format_call('sliced_product', arguments, {})}, and random steps"
    with expect.case(given, f"compute {computed} that `steps` names, and nothing else"):
        steps = named[:, places].tolist()
        result = _with_steps(submission, arguments, [*counts[1:], counts[0]], steps, repeats=2)
        what = f"what `sliced_product` computes from {computed}"
        sequences = [named.tolist()]
        if submission.parameters.slice_loop == "outermost" and counts[0] > 1:
            single = [tile for first, *tile in named.tolist() if first == 0] * 2
            sequences.append([[c, *tile] for c in range(counts[0]) for tile in single])
        sums = [
            _laid_out(sum_of_steps(columns, weights, sequence, k1, *sizes, dtype=dtype), "FP", layout[2])
            for sequence in sequences
            for dtype in (np.float32, np.float64)
        ]
        if not any(expect.holds(expect.close, result, other, what, dtype=np.float32) for other in sums[1:]):
            expect.close(result, sums[0], what, dtype=np.float32)


def sum_of_steps(
    columns: np.ndarray,
    weights: np.ndarray,
    named: Iterable[Sequence[int]],
    k1: int,
    window: int,
    filters: int,
    dtype: type = np.float32,
) -> np.ndarray:
    """Return y [F, P], to which the products of these steps (slice, input tile, weight tile) are added in their order.

    Args:
        columns: float32 [C, T, P], by channels, kernel positions and windows.
        weights: float32 [F, C, T], by filters, channels and kernel positions.
        named: The steps.
        k1: Channels of a slice.
        window: Windows of an input tile.
        filters: Filters of a weight tile.
        dtype: Of the sums.
    """
    y = np.zeros((len(weights), columns.shape[2]), dtype)
    for c, i, f in named:
        depth, p, q = (slice(at * size, (at + 1) * size) for at, size in ((c, k1), (i, window), (f, filters)))
        y[q, p] += np.einsum("fct,ctp->fp", weights[q, depth], columns[depth, :, p])
    return y


@points(4)
def product_is_right(submission: Submission) -> None:
    """`sliced_product` multiplies tiles of any sizes, including smaller ones at the end."""
    hint = "count the tiles with those at the end that are smaller; each step adds the product of two tiles to one of y"
    for channels, windows, filters in ((4, 12, 8), (4, 13, 7), (1, 3, 11), (3, 5, 1)):
        sizes, tiles = (channels, int(submission.rng.integers(1, 5)), windows, filters), (channels, 2, 3, 4, 3)
        _check_product(submission, sizes, tiles, hint)
        _check_that_steps_decide(submission, sizes, tiles)


@points(2)
def slices_add_up(submission: Submission) -> None:
    """`sliced_product` adds up the slices of channels, including a smaller last one."""
    hint = "y starts at zero, every slice adds to what is there, and the last slice may have fewer channels than k1"
    cases = [((channels, 4, 12, 8), (k1, 2, 2, 4, 4)) for channels, k1 in ((6, 2), (7, 3))]
    for sizes, tiles in cases:
        _check_product(submission, sizes, tiles, hint)
    if submission.passed(product_is_right):
        for sizes, tiles in cases:
            _check_that_steps_decide(submission, sizes, tiles)


P4_2 = Task(
    "P4.2",
    "Two orders",
    seconds=30,
    libraries=NESTS,
    minutes=45,
    builds_on=("P4.1",),
    varies=(STEP_ORDER, SLICE_LOOP, PRODUCT_LAYOUT),
)
