"""Checks of P4.1: the order of points in a tiled nest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
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
FEW = 12  # steps of a single group, which may be all missing without losing more points


def _tuples(got: object, want: list, what: str) -> list[tuple[int, ...]]:
    """Return a list of tuples of integers, as many as those of another list; fail on everything else."""
    rows = [expect.sequence(row, tuple, f"the list {what}") for row in expect.sequence(got, list, what)]
    rows = [tuple(expect.integer(number, f"the list {what}") for number in row) for row in rows]
    expected = f"a list, each item a tuple of {len(want[0])} integers"
    right = all(len(row) == len(want[0]) for row in rows)
    expect.true(right, f"other tuples in {what}", expected=expected, got=rows)
    return rows


def same_items(got: Any, want: list, what: str) -> None:
    """Fail unless both lists have the same items, each once, in any order."""
    got = _tuples(got, want, what)
    surplus, missing = sorted(set(got) - set(want)), sorted(set(want) - set(got))
    expect.true(not surplus, f"there are items that do not exist in {what}", got=str(surplus[:4]))
    expect.true(not missing, f"items are missing in {what}", got=str(missing[:4]))
    expect.equal(len(got), len(want), f"items occur more than once in {what}")


def same_order(got: Any, want: list, what: str) -> None:
    """Fail unless the items that both lists have are in the same order, and these are most of them or all are few."""
    got = _tuples(got, want, what)
    common = set(want) & set(got)
    most = 2 * len(common) >= len(want) or len(want) <= FEW
    expect.true(most, f"most items are missing in {what}", got=f"{len(common)}")
    got, want = [item for item in dict.fromkeys(got) if item in common], [item for item in want if item in common]
    for index, (item, right) in enumerate(zip(got, want, strict=True)):
        expected = f"{right} at position {index}"
        expect.true(item == right, f"the items are in the wrong order in {what}", expected=expected, got=f"{item}")


@compared(
    3,
    "visits",
    compare=same_order,
    hint="four loops: the two over tiles outside, the two over the points of a tile inside",
)
def visits_go_tile_by_tile(submission: Submission) -> Iterator[Arguments]:
    """`visits` completes a tile before it moves on to the next, and goes through each tile {{ \
    visit_order[1][:-1] }} by {{ visit_order[1][:-1] }}.
    """
    tile_m, tile_n = (int(size) for size in submission.rng.permutation([3, 4, 5])[:2])
    yield 7 * tile_m, 2 * tile_n, tile_m, tile_n
    yield 7 * tile_m, 2 * tile_n, tile_m, 2 * tile_n  # of whole rows
    yield 3 * tile_m + 1, 2 * tile_n + 1, tile_m, tile_n


@compared(
    3,
    "visits",
    compare=same_items,
    hint="the last tiles end where the space ends, at m and at n",
)
def tiles_at_the_edge_are_smaller(submission: Submission) -> Iterator[Arguments]:
    """`visits` yields every point once, also in partial tiles at the edges, and none outside the space."""
    rng = submission.rng
    for sizes in rng.permuted([[9, 7, 4, 3]] * 2, axis=1).tolist():
        yield tuple(sizes)
    yield 5, 7, 2, 4
    yield 5, 7, 3, 2
    yield 3, int(rng.integers(4, 7)), 8, 8


def _scheduled(submission: Submission) -> list[tuple[tuple[int, int, int], list[int], np.ndarray]]:
    """Return sizes, loop extents and visits [points, 3] of the nests that the student's `schedule` returns."""

    def ask() -> list[tuple[tuple[int, int, int], list[int], np.ndarray]]:
        nests = []
        for tiles in ((2, 3, 4), (1, 5, 3)):
            counts = submission.rng.permutation(tiles)
            m, n, k = (int(count) * size for count, size in zip(counts, submission.parameters.nest_tile, strict=True))
            hint = "each step returns a new nest and leaves the previous one unchanged: return the last one"
            with expect.case(f"gemm{m, n, k}", hint):
                report = submission.probe(PROBES + "scheduled", "schedule", m, n, k, keys=("extents", "visits"))
                visits = np.array(_tuples(report["visits"], [(0, 0, 0)], "the nest's list of visits"))
            nests.append(((m, n, k), report["extents"], visits))
        return nests

    return submission.once("scheduled", ask)


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
        blocks = visits.reshape(-1, block, 3)
        mixed = (blocks // tile != blocks[:, :1] // tile).any((1, 2))
        run = blocks[int(np.argmax(mixed))]
        ranges = [f"{name} {low}..{high}" for name, low, high in zip("ijk", run.min(0), run.max(0), strict=True)]
        what = f"{block} consecutive visits of `schedule`'s nest extend beyond one block"
        values = ", ".join(f"{size} of {name}" for name, size in zip("ijk", tile, strict=True))
        expected = f"{values}, each starting at a multiple of this number"
        expect.true(not mixed.any(), what, expected=expected, got=", ".join(ranges), given=given, hint=hint)


P4_1 = Task(
    "P4.1",
    "Loops as an iteration space",
    seconds=30,
    libraries=NESTS,
    minutes=25,
    builds_on=("P3.1",),
    varies=(VISIT_ORDER, POINT, NEST_TILE),
)
