"""Checks of P4.2: the order of tiles in a sliced convolution, and the product that is computed in it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlhood.dataflow.slicing.problem import ORDERS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.projects.p4.nests import PROBES, same_items, same_order
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


def _draw_tiles(submission: Submission, order: str) -> Iterator[Arguments]:
    """Draw arguments of `steps`: full groups, partial ones, and one group larger than all tiles of a single slice."""
    k2, k3 = (int(size) for size in submission.rng.permutation([2, 3, 4])[:2])
    partial = int(submission.rng.integers(1, 2 * k3))
    yield order, 2 * k2 * k3, 3 * k2 * k3, 2, k2, k3
    yield order, 3 * k2 + 1, 2 * k2 * k3 + 1 + partial, 3, k2, k3
    yield order, 3, 2, 1, 5, 7


@compared(
    3,
    "steps",
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


@compared(
    3,
    "steps",
    compare=same_order,
    hint=f"IS: input tiles are stationary. {ORDER_HINT}",
)
def input_tiles_stay(submission: Submission) -> Iterator[Arguments]:
    """`steps` for "IS" keeps an input tile while a group of weight tiles passes."""
    return _draw_tiles(submission, "IS")


@compared(
    3,
    "steps",
    compare=same_order,
    hint=f"WS: weight tiles are stationary. {ORDER_HINT}",
)
def weight_tiles_stay(submission: Submission) -> Iterator[Arguments]:
    """`steps` for "WS" keeps a weight tile while a group of input tiles passes."""
    return _draw_tiles(submission, "WS")


def _laid_out(array: np.ndarray, given: str, wanted: str) -> np.ndarray:
    """Return an array whose dimensions are in another order, such as `FCT` as `CTF`."""
    return np.ascontiguousarray(array.transpose([given.index(name) for name in wanted]))


def _check_product(
    submission: Submission, sizes: tuple[int, ...], tiles: tuple[int, ...], hint: str, most: int = 3
) -> None:
    """Check the product in both orders, with `steps` replaced by one that names each pair of tiles several times.

    So it is computed from the steps, and those of the submission may be wrong.

    Args:
        submission: The notebook.
        sizes: Channels, kernel positions, windows and filters.
        tiles: k1, k2, k3, and the windows and filters of a tile.
        hint: How to go on.
        most: Steps for a pair of tiles and a slice. If there is one, the arguments of `steps` are not compared.
    """
    (channels, positions, windows, filters), (k1, k2, k3, window, filter_tile) = sizes, tiles
    layout, named = submission.parameters.product_layout, submission.parameters.step.split(", ")
    places, slices = [STEP.split(", ").index(name) for name in named], -(-channels // k1)
    known = {slices, 1} if submission.parameters.slice_loop == "outermost" else {slices}
    for order in ORDERS:
        columns = submission.normal(channels, positions, windows)
        weights = submission.normal(filters, channels, positions)
        times = submission.rng.integers(1, most + 1, (-(-windows // window), -(-filters // filter_tile)))
        sums = np.repeat(np.repeat(times.T, filter_tile, 0)[:filters], window, 1)[:, :windows]
        want = sums * np.einsum("fct,ctp->fp", weights.astype(np.float64), columns)
        arguments = _laid_out(columns, "CTP", layout[0]), _laid_out(weights, "FCT", layout[1]), order, *tiles
        with expect.case(f"{expect.format_call('sliced_product', arguments, {})}, and other steps", hint):
            asked = [[order, *times.shape, count, k2, k3] for count in known] if most > 1 else []
            keys = ("result", "broken")
            report = submission.probe(
                PROBES + "with_steps", "sliced_product", times, places, asked, *arguments, keys=keys
            )
            what = "what `sliced_product` computes from the steps"
            expect.close(report["result"], _laid_out(want, "FP", layout[2]), what, dtype=np.float32)


@points(4)
def product_is_right(submission: Submission) -> None:
    """`sliced_product` multiplies tiles of any sizes, including smaller ones at the end."""
    hint = (
        "count the tiles with those at the end that are smaller; each of the steps that `steps` names adds the product "
        "of two tiles to one of y, and nothing else does"
    )
    for channels, windows, filters in ((4, 12, 8), (4, 13, 7), (1, 3, 11), (3, 5, 1)):
        sizes = channels, int(submission.rng.integers(1, 5)), windows, filters
        _check_product(submission, sizes, (channels, 2, 3, 4, 3), hint)


@points(2)
def slices_add_up(submission: Submission) -> None:
    """`sliced_product` adds up the slices of channels, including a smaller last one."""
    hint = "y starts at zero, every slice adds to what is there, and the last slice may have fewer channels than k1"
    most = 3 if submission.passed(product_is_right) else 1
    for channels, k1 in ((6, 2), (7, 3)):
        _check_product(submission, (channels, 4, 12, 8), (k1, 2, 2, 4, 4), hint, most)


P4_2 = Task(
    "P4.2",
    "Two orders",
    seconds=30,
    libraries=NESTS,
    minutes=45,
    builds_on=("P4.1",),
    varies=(STEP_ORDER, SLICE_LOOP, PRODUCT_LAYOUT),
)
