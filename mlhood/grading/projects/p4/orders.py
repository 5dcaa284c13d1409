"""Checks of P4.1 and P4.2: the order of points in a tiled nest, and of tiles in a sliced convolution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4 import reference
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p4.probes:"
# which way the tiles are visited, and the points in a tile
VISIT_ORDER = Parameter(
    "visit_order", (("rows", "rows"), ("rows", "columns"), ("columns", "rows"), ("columns", "columns"))
)
# how a point is written: tile counts the tiles in the order of the visits, i_o and j_o along its axes
POINT = Parameter("point", ("i, j", "j, i", "tile, i, j", "i_o, j_o, i_i, j_i"))
NEST_TILE = Parameter("nest_tile", ((4, 4, 4), (2, 4, 8), (8, 2, 4), (4, 8, 2)))
STEP = Parameter(
    "step",
    (
        reference.STEP,
        "slice, weight tile, input tile",
        "input tile, weight tile, slice",
        "weight tile, input tile, slice",
    ),
)
SLICE_LOOP = Parameter("slice_loop", tuple(reference.SLICE_LOOPS))
# the dimensions of columns, weights and y
PRODUCT_LAYOUT = Parameter(
    "product_layout", (reference.LAYOUT, ("TCP", "FCT", "PF"), ("PTC", "TCF", "FP"), ("CPT", "FTC", "PF"))
)
ONE_GROUP = 3, 2, 2, 5, 7  # input tiles, weight tiles, slices, k2 and k3: groups may be larger than what there is
OTHER = {"IS": "WS", "WS": "IS"}
STATIONARY = {"IS": "input", "WS": "weight"}


def integer_rows(value: object, width: int, what: str, given: str) -> list[tuple[int, ...]]:
    """Return the rows of an array of integers [N, width] as tuples, none of an empty one; fail on everything else."""
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.shape[1] != width or value.dtype.kind not in "iu":
        expect.fail(f"{what} is not a list of {width} integers each", got=value, given=given)
    return [tuple(row) for row in value.tolist()]


def listed(submission: Submission, name: str, width: int, given: str, *args: object) -> list[tuple[int, ...]]:
    """Return the list of tuples that a function of the notebook returns."""
    with expect.case(given):
        report = submission.call(PROBES + "listed", submission.value(name), width, *args)
        report = expect.mapping(report, (), f"what `{name}` returns")
        what = f"`{name}` does not return a list of tuples"
        expected = f"a list, each item a tuple of {width} integers"
        expect.true("odd" not in report, what, expected=expected, got=report.get("odd"))
    return integer_rows(report.get("rows"), width, f"what `{name}` returns", given)


def first_difference(got: list, want: list) -> dict[str, str]:
    """Return the parts of a message about the first difference between two lists."""
    for index, (got_item, want_item) in enumerate(zip(got, want, strict=False)):
        if got_item != want_item:
            return {"expected": f"{want_item} at position {index}", "got": f"{got_item}"}
    return {"expected": f"{len(want)} of them", "got": f"{len(got)}"}


def _visits(submission: Submission, m: int, n: int, tile_m: int, tile_n: int) -> tuple[list, list, str]:
    """Return the student's visits, the right ones, and a description of the case."""
    given = f"m {m}, n {n}, tile_m {tile_m}, tile_n {tile_n}"
    point = submission.parameters.point
    got = listed(submission, "visits", len(point.split(", ")), given, m, n, tile_m, tile_n)
    tiles, points = submission.parameters.visit_order

    def position(visit: tuple[int, int]) -> tuple[int, ...]:
        tile, within = (visit[0] // tile_m, visit[1] // tile_n), visit
        return (*(tile if tiles == "rows" else tile[::-1]), *(within if points == "rows" else within[::-1]))

    want = sorted(np.ndindex(m, n), key=position)
    numbers = {tile: i for i, tile in enumerate(dict.fromkeys((i // tile_m, j // tile_n) for i, j in want))}
    return got, [_written(visit, point, (tile_m, tile_n), numbers) for visit in want], given


def _written(visit: tuple[int, ...], point: str, tile: tuple[int, int], numbers: dict) -> tuple[int, ...]:
    """Return a point as this variant of the course writes it; `numbers` are those of the tiles."""
    (i, j), (tile_m, tile_n) = visit, tile
    i_o, j_o = i // tile_m, j // tile_n
    names = {"i": i, "j": j, "i_o": i_o, "j_o": j_o, "i_i": i % tile_m, "j_i": j % tile_n, "tile": numbers[i_o, j_o]}
    return tuple(names[name] for name in point.split(", "))


@points(3)
def visits_go_tile_by_tile(submission: Submission) -> None:
    """`visits` completes a tile before it moves on to the next, and goes through each tile {{ \
    visit_order[1][:-1] }} by {{ visit_order[1][:-1] }}.
    """
    rng = submission.rng
    hint = "four loops: the two over tiles outside, the two over the points of a tile inside"
    tile_m, tile_n = (int(size) for size in rng.permutation([3, 4, 5])[:2])
    full = [(7 * tile_m, 2 * tile_n, tile_m, tile_n), (7 * tile_m, 2 * tile_n, tile_m, 2 * tile_n)]  # or of whole rows
    for case in (*full, (3 * tile_m + 1, 2 * tile_n + 1, tile_m, tile_n)):
        got, want, given = _visits(submission, *case)
        if case not in full:  # whether the edge is complete is the subject of another check
            common = set(want) & set(got)
            expect.true(2 * len(common) >= len(want), "most points are missing", got=f"{len(common)}", given=given)
            got, want = [p for p in dict.fromkeys(got) if p in common], [p for p in want if p in common]
        what = "the points of `visits` are in the wrong order"
        expect.true(got == want, what, given=given, hint=hint, **first_difference(got, want))


@points(3)
def tiles_at_the_edge_are_smaller(submission: Submission) -> None:
    """`visits` yields every point once, also in partial tiles at the edges, and none outside the space."""
    hint = "the last tiles end where the space ends, at m and at n"
    rng = submission.rng
    sizes = [(int(a), int(b), int(c), int(d)) for a, b, c, d in rng.permuted([[9, 7, 4, 3]] * 2, axis=1)]
    for m, n, tile_m, tile_n in (*sizes, (5, 7, 2, 4), (5, 7, 3, 2), (3, int(rng.integers(4, 7)), 8, 8)):
        got, want, given = _visits(submission, m, n, tile_m, tile_n)
        outside = sorted(set(got) - set(want))
        missing = sorted(set(want) - set(got))
        with expect.case(given, hint):
            point = submission.parameters.point
            below = f"(i, j) below ({m}, {n})" + (f", written as ({point})" if point != "i, j" else "")
            expect.true(not outside, "there are points outside the space", expected=below, got=str(outside[:4]))
            expect.true(not missing, "points of the space are missing", got=str(missing[:4]))
            expect.equal(len(got), len(want), "points are visited more than once")


def _scheduled(submission: Submission) -> list[tuple[tuple[int, int, int], list[int], np.ndarray]]:
    """Return sizes, loop extents and visits [points, 3] of the nests that the student's `schedule` returns."""

    def ask() -> list[tuple[tuple[int, int, int], object]]:
        answers = []
        for tiles in ((2, 3, 4), (1, 5, 3)):
            counts = submission.rng.permutation(tiles)
            m, n, k = (int(count) * size for count, size in zip(counts, submission.parameters.nest_tile, strict=True))
            answers.append(((m, n, k), submission.call(PROBES + "scheduled", submission.value("schedule"), m, n, k)))
        return answers

    nests = []
    for sizes, answer in submission.once("scheduled", ask):
        given = f"gemm{sizes}"
        hint = "each step returns a new nest and leaves the previous one unchanged: return the last one"
        expect.true(answer is not None, "`schedule` does not return a nest", expected="a nest", given=given, hint=hint)
        report = expect.mapping(answer, ("extents", "visits"), "what `schedule` returns", given=given)
        rows = integer_rows(report["visits"], 3, "the nest's list of visits", given)
        nests.append((sizes, report["extents"], np.array(rows)))
    return nests


@points(2)
def every_loop_is_split(submission: Submission) -> None:
    """`schedule` splits each of the loops i, j and k in two, the inner one with {{ \
    nest_tile | unique | join(", ") }} iterations.
    """
    tile = submission.parameters.nest_tile
    hint = f"nest.split(loop, {tile[2]}) splits one loop, nest.tile(i={tile[0]}, ...) several; k is a loop as well"
    for sizes, extents, visits in _scheduled(submission):
        want = sorted([*(size // part for size, part in zip(sizes, tile, strict=True)), *tile])
        split = isinstance(extents, list) and sorted(map(str, extents)) == sorted(map(str, want))
        with expect.case(f"gemm{sizes}", hint):
            expect.true(
                split, "the nest of `schedule` has the wrong loops", expected=f"loops of {want}", got=str(extents)
            )
            count = len({*map(tuple, visits.tolist())})
            expect.equal(count, int(np.prod(sizes)), "the nest visits the wrong number of points")
            last = [int(end) for end in visits.max(0)]
            expect.equal(last, [size - 1 for size in sizes], "the nest is not that of the argument: its last point")


@points(2)
def blocks_are_taken_together(submission: Submission) -> None:
    """`schedule` puts the three inner loops innermost: every 64 consecutive visits form a block of {{ \
    nest_tile | join(" x ") }}.
    """
    tile = submission.parameters.nest_tile
    block = math.prod(tile)
    hint = "first the three loops over blocks, then the three within a block: look at print(schedule(nest))"
    for sizes, _, visits in _scheduled(submission):
        given = f"gemm{sizes}"
        divisible = len(visits) > 0 and len(visits) % block == 0
        what = "the visits of `schedule`'s nest do not divide into blocks"
        expect.true(divisible, what, got=f"{len(visits)} visits", given=given, hint=hint)
        corners = visits.reshape(-1, block, 3) // tile
        mixed = (corners != corners[:, :1]).any((1, 2))
        if mixed.any():
            run = visits.reshape(-1, block, 3)[int(np.argmax(mixed))]
            ranges = [f"{name} {low}..{high}" for name, low, high in zip("ijk", run.min(0), run.max(0), strict=True)]
            expect.fail(
                f"{block} consecutive visits of `schedule`'s nest extend beyond one block",
                expected=_block(tile),
                got=", ".join(ranges),
                given=given,
                hint=hint,
            )


def _block(tile: tuple[int, int, int]) -> str:
    """Return the values of i, j and k in a block, in words."""
    if len(set(tile)) == 1:
        return f"{tile[0]} values each of i, j and k, starting at a multiple of {tile[0]}"
    values = ", ".join(f"{size} of {name}" for name, size in zip("ijk", tile, strict=True))
    return f"{values}, each starting at a multiple of this number"


def _draw_sizes(submission: Submission) -> list[tuple[int, int, int, int, int]]:
    """Draw input tiles, weight tiles, slices, k2 and k3: full groups, partial ones, and one group larger than all."""
    k2, k3 = (int(size) for size in submission.rng.permutation([2, 3, 4])[:2])
    partial = int(submission.rng.integers(1, 2 * k3))
    full, some = (2 * k2 * k3, 3 * k2 * k3, 2, k2, k3), (3 * k2 + 1, 2 * k2 * k3 + 1 + partial, 3, k2, k3)
    return [full, some, ONE_GROUP]


def _steps(submission: Submission, order: str, sizes: tuple[int, ...]) -> tuple[list, str]:
    labelled = zip(("inputs", "weights", "slices", "k2", "k3"), sizes, strict=True)
    given = ", ".join([order, *(f"{name} {size}" for name, size in labelled)])
    return listed(submission, "steps", 3, given, order, *sizes), given


def _nest_options(submission: Submission) -> dict[str, Any]:
    """Return how this variant of the course writes a step, and which of the loops is that over the slices."""
    return {"step": submission.parameters.step, "slice_loop": submission.parameters.slice_loop}


@points(3)
def every_step_is_there_once(submission: Submission) -> None:
    """`steps` combines every input tile with every weight tile exactly once in each slice."""
    options = _nest_options(submission)
    hint = (
        f"tiles count from 0, the last group ends with the last tile, and slices are the {options['slice_loop']} loop"
    )
    for order in ("IS", "WS"):
        for sizes in _draw_sizes(submission):
            got, given = _steps(submission, order, sizes)
            want = {*reference.steps(order, *sizes, **options)}
            nonexistent, missing = sorted(set(got) - want), sorted(want - set(got))
            with expect.case(given, hint):
                what, triple = "there are steps with tiles that do not exist", f"({options['step']})"
                expect.true(not nonexistent, what, expected=triple, got=str(nonexistent[:3]))
                expect.true(not missing, "steps are missing", got=str(missing[:3]))
                expect.equal(len(got), len(want), "steps occur more than once")


def _check_order(submission: Submission, order: str) -> None:
    options = _nest_options(submission)
    for sizes in _draw_sizes(submission):
        got, given = _steps(submission, order, sizes)
        if sizes == ONE_GROUP and not got:
            continue
        # missing and surplus steps are another check's subject
        common = set(reference.steps(order, *sizes, **options)) & set(got)
        most = 2 * len(common) >= sizes[0] * sizes[1] * sizes[2]
        expect.true(most, "most steps are missing", got=f"{len(common)}", given=given)
        got = [step for step in dict.fromkeys(got) if step in common]

        def expected(order: str, *sizes: int, common: set = common, **other: Any) -> list:
            return [step for step in reference.steps(order, *sizes, **{**options, **other}) if step in common]

        want = expected(order, *sizes)
        hint = (
            f"{order}: {STATIONARY[order]} tiles are stationary. Write the five loops in their order: "
            "which of the two groups, and which of the two tiles, changes faster?"
        )
        inputs, weights, slices, k2, k3 = sizes
        if got == expected(OTHER[order], *sizes):
            hint = f"this is the order {OTHER[order]}: in {order} the {STATIONARY[order]} tiles stay"
        elif got == expected(order, inputs, weights, slices, k3, k2):
            hint = "k2 and k3 are swapped: k2 counts streamed tiles, k3 stationary tiles"
        elif got == expected(order, *sizes, slice_loop="outermost"):
            hint = f"the slices are the outermost loop here: the text wants them as the {options['slice_loop']} one"
        what = f"the steps of {order} are in the wrong order"
        expect.true(got == want, what, given=given, hint=hint, **first_difference(got, want))


@points(3)
def input_tiles_stay(submission: Submission) -> None:
    """`steps` for "IS" keeps an input tile while a group of weight tiles passes."""
    _check_order(submission, "IS")


@points(3)
def weight_tiles_stay(submission: Submission) -> None:
    """`steps` for "WS" keeps a weight tile while a group of input tiles passes."""
    _check_order(submission, "WS")


def _check_product(
    submission: Submission, sizes: tuple[int, ...], tiles: tuple[int, ...], hint: str, through_steps: bool = False
) -> None:
    """Check the product in both orders; the student's own `steps` is replaced by the right one if it is at fault.

    Args:
        submission: The submission.
        sizes: Channels, kernel positions, windows, filters.
        tiles: k1, k2, k3, windows and filters of a tile.
        hint: The hint on failure.
        through_steps: Whether to check what comes of the right `steps`, too.
    """
    channels, positions, windows, filters = sizes
    columns = submission.normal(channels, positions, windows)
    weights = submission.normal(filters, channels, positions)
    layout = submission.parameters.product_layout
    want = reference.laid_out(np.einsum("fct,ctp->fp", weights.astype(np.float64), columns), "FP", layout[2])
    columns, weights = (
        reference.laid_out(columns, "CTP", layout[0]),
        reference.laid_out(weights, "FCT", layout[1]),
    )
    k1, k2, k3, window, filter_tile = tiles
    for order in ("IS", "WS"):
        arguments = (columns.copy(), weights.copy(), order, k1, k2, k3, window, filter_tile)
        shapes = f"columns {columns.shape}, weights {weights.shape}"
        given = f"{shapes}, {order}, k1 {k1}, k2 {k2}, k3 {k3}, window {window}, filters {filter_tile}"
        try:
            with expect.case(given, hint):
                got = submission.call("sliced_product", *arguments)
                expect.close(got, want, "what `sliced_product` returns", dtype=np.float32)
        except expect.CheckFailed as failure:
            if not expect.holds(_check_with_right_steps, submission, arguments, want, given):
                raise failure
        if through_steps:
            _check_with_right_steps(submission, arguments, want, given)


def _check_with_right_steps(submission: Submission, arguments: tuple, want: np.ndarray, given: str) -> None:
    """Fail unless `sliced_product` is right once `steps` is."""
    counts = _counts(submission, *arguments)
    right = reference.steps(arguments[2], *counts, *arguments[4:6], **_nest_options(submission))
    with expect.case(given, "let `steps` say which tiles come next: pass it the order, the three numbers, and k2, k3"):
        result = _with_steps(submission, arguments, right)
        expect.close(result, want, "what `sliced_product` returns", dtype=np.float32)


def _counts(submission: Submission, columns: np.ndarray, weights: np.ndarray, *tiles: Any) -> tuple[int, int, int]:
    """Return the numbers of input tiles, of weight tiles and of slices."""
    layout, (_, k1, _, _, window, filter_tile) = submission.parameters.product_layout, tiles
    channels, windows = (columns.shape[layout[0].index(name)] for name in "CP")
    filters = weights.shape[layout[1].index("F")]
    return -(-windows // window), -(-filters // filter_tile), -(-channels // k1)


def _with_steps(submission: Submission, arguments: tuple, steps: list, repeats: int = 1) -> object:
    """Return the result of `sliced_product` if `steps` returns these for the arguments that it is to be called with.

    If slices are the outermost loop, it may be called for one slice at a time, and returns those of slice 0 then, so
    many times.
    """
    function, options, order = submission.value("sliced_product"), _nest_options(submission), arguments[2]
    *tiles, slices = _counts(submission, *arguments)
    named = [([order, *tiles, slices, *arguments[4:6]], [*map(list, steps)])]
    if options["slice_loop"] == "outermost" and slices > 1:
        place = options["step"].split(", ").index("slice")
        single = [list(step) for step in steps if step[place] == 0] * repeats
        named.append(([order, *tiles, 1, *arguments[4:6]], single))
    report = submission.call(PROBES + "with_steps", function, named, *arguments)
    report = expect.mapping(report, ("result", "others", "broken"), "the product")
    check_rules(report["broken"], "`sliced_product`")
    what = "`sliced_product` calls `steps` with the wrong arguments"
    expect.true(report["others"] == [], what, expected=f"steps{tuple(named[0][0])}", got=f"steps: {report['others']}")
    return report["result"]


def _check_that_steps_decide(submission: Submission, sizes: tuple[int, ...], tiles: tuple[int, ...]) -> None:
    """Fail unless exactly the steps are computed that `steps` names, in their order.

    It names them in random order, each up to three times. Once the columns are such that float32 sums depend on the
    order; an exact sum is right, too.
    """
    channels, positions, windows, filters = sizes
    k1, k2, k3, window, filter_tile = tiles
    columns = submission.normal(channels, positions, windows)
    weights = submission.normal(filters, channels, positions)
    slices = -(-channels // k1)
    counts = -(-windows // window), -(-filters // filter_tile), slices
    # one term in each product, of which the larger ones absorb 1 and cancel
    single_columns, single_weights = np.zeros_like(columns), np.zeros_like(weights)
    single_columns[::k1, 0] = submission.rng.permutation([2.0**25, -(2.0**25), 1.0])[:slices, None]
    single_weights[:, ::k1, 0] = 1
    for order in ("IS", "WS"):
        right = np.array(reference.steps(order, *counts, k2, k3))
        named = submission.rng.permutation(np.repeat(right, submission.rng.integers(1, 4, len(right)), axis=0))
        given = f"{order}, k1 {k1}, k2 {k2}, k3 {k3}, window {window}, filters {filter_tile}, and random steps"
        _check_named_steps(submission, (columns, weights, order, *tiles), named, given, "the steps")
        singles = single_columns, single_weights
        _check_named_steps(submission, (*singles, order, *tiles), named, given, "the steps, one after another")


def _check_named_steps(submission: Submission, arguments: tuple, named: np.ndarray, given: str, computed: str) -> None:
    """Compare the sums of these steps (slice, input tile, weight tile), in their order or exact.

    If slices are the outermost loop, `steps` may be asked for one slice at a time, and names those of slice 0 twice.
    """
    columns, weights, *tiles = arguments
    layout, options = submission.parameters.product_layout, _nest_options(submission)
    places = [reference.STEP.split(", ").index(name) for name in options["step"].split(", ")]
    laid_out = reference.laid_out(columns, "CTP", layout[0]), reference.laid_out(weights, "FCT", layout[1])
    with expect.case(given, f"compute {computed} that `steps` names, and nothing else"):
        result = _with_steps(submission, (*laid_out, *tiles), named[:, places].tolist(), repeats=2)
        what = f"what `sliced_product` computes from {computed}"
        _, k1, _, _, *sizes = tiles
        sequences = [named.tolist()]
        slices = range(-(-len(columns) // k1))
        if options["slice_loop"] == "outermost" and len(slices) > 1:
            single = [tile for first, *tile in named.tolist() if first == 0] * 2
            sequences.append([[c, *tile] for c in slices for tile in single])
        sums = [
            reference.laid_out(
                reference.sum_of_steps(columns, weights, sequence, k1, *sizes, dtype=dtype), "FP", layout[2]
            )
            for sequence in sequences
            for dtype in (np.float32, np.float64)
        ]
        if not any(expect.holds(expect.close, result, other, what, dtype=np.float32) for other in sums[1:]):
            expect.close(result, sums[0], what, dtype=np.float32)


@points(4)
def product_is_right(submission: Submission) -> None:
    """`sliced_product` multiplies tiles of any sizes, including smaller ones at the end."""
    hint = "count the tiles with those at the end that are smaller; each step adds the product of two tiles to one of y"
    for channels, windows, filters in ((4, 12, 8), (4, 13, 7), (1, 3, 11), (3, 5, 1)):
        sizes, tiles = (channels, int(submission.rng.integers(1, 5)), windows, filters), (channels, 2, 3, 4, 3)
        _check_product(submission, sizes, tiles, hint, through_steps=True)
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


TASKS = (
    Task(
        "P4.1",
        "Loops as an iteration space",
        checks=(visits_go_tile_by_tile, tiles_at_the_edge_are_smaller, every_loop_is_split, blocks_are_taken_together),
        seconds=30,
        libraries=NESTS,
        minutes=25,
        builds_on=("P3.1",),
        varies=(VISIT_ORDER, POINT, NEST_TILE),
    ),
    Task(
        "P4.2",
        "Two orders",
        checks=(every_step_is_there_once, input_tiles_stay, weight_tiles_stay, product_is_right, slices_add_up),
        seconds=30,
        libraries=NESTS,
        minutes=45,
        builds_on=("P4.1",),
        varies=(STEP, SLICE_LOOP, PRODUCT_LAYOUT),
    ),
)
