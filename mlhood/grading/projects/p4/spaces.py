"""Checks of P4.1: the points of a space in the order of a tiled nest, and a loop nest tiled by its schedule."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p4.probes:"
TILE = 4
BLOCK = TILE**3


def integer_rows(value: object, width: int, what: str, given: str) -> list[tuple[int, ...]]:
    """Return the rows of an array of integers [N, width] as tuples; fail on everything else."""
    array = isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] == width and value.dtype.kind in "biuf"
    if not array or not np.isfinite(value).all() or (value != np.floor(value)).any():  # type: ignore[union-attr]
        expect.fail(f"{what} is not a list of {width} integers each", got=value, given=given)
    return [tuple(row) for row in value.astype(np.int64).tolist()]  # type: ignore[union-attr]


def first_difference(got: list, want: list) -> dict[str, str]:
    """Return the parts of a message about the first difference between two lists."""
    for index, (got_item, want_item) in enumerate(zip(got, want, strict=False)):
        if got_item != want_item:
            return {"expected": f"{want_item} at position {index}", "got": f"{got_item}"}
    return {"expected": f"{len(want)} of them", "got": f"{len(got)}"}


def _visits(submission: Submission, m: int, n: int, tile_m: int, tile_n: int) -> tuple[list, list, str]:
    """Return the student's visits, the right ones, and a description of the case."""
    given = f"m {m}, n {n}, tile_m {tile_m}, tile_n {tile_n}"
    with expect.case(given):
        got = submission.call(PROBES + "listed", submission.value("visits"), m, n, tile_m, tile_n)
    tiles = [(i0, j0) for i0 in range(0, m, tile_m) for j0 in range(0, n, tile_n)]
    want = [(i, j) for i0, j0 in tiles for i in range(i0, min(i0 + tile_m, m)) for j in range(j0, min(j0 + tile_n, n))]
    return integer_rows(got, 2, "what `visits` returns", given), want, given


@points(4)
def visits_go_tile_by_tile(submission: Submission) -> None:
    """`visits` completes a tile before it moves on to the next, and goes through each tile row by row."""
    rng = submission.rng
    hint = "for i0 in steps of tile_m, for j0 in steps of tile_n, for i in the tile, for j in the tile"
    for partial in (0, 1):
        tile_m, tile_n = (int(size) for size in rng.permutation([3, 4, 5])[:2])
        got, want, given = _visits(submission, 3 * tile_m + partial, 2 * tile_n + partial, tile_m, tile_n)
        if partial:  # whether the edge is complete is the subject of another check
            common = set(want) & set(got)
            expect.true(2 * len(common) >= len(want), "most points are missing", got=f"{len(common)}", given=given)
            got, want = [p for p in dict.fromkeys(got) if p in common], [p for p in want if p in common]
        what = "the points are in the wrong order"
        expect.true(got == want, what, given=given, hint=hint, **first_difference(got, want))


@points(3)
def tiles_at_the_edge_are_smaller(submission: Submission) -> None:
    """`visits` yields every point once, also in partial tiles at the edges, and none outside the space."""
    hint = "the last tiles end at the edge of the space: min(i0 + tile_m, m) and min(j0 + tile_n, n)"
    for m, n, tile_m, tile_n in ((9, 10, 4, 3), (5, 7, 2, 4), (3, 4, 8, 8)):
        got, want, given = _visits(submission, m, n, tile_m, tile_n)
        outside = sorted(set(got) - set(want))
        missing = sorted(set(want) - set(got))
        with expect.case(given, hint):
            below = f"(i, j) below ({m}, {n})"
            expect.true(not outside, "there are points outside the space", expected=below, got=str(outside[:4]))
            expect.true(not missing, "points of the space are missing", got=str(missing[:4]))
            expect.equal(len(got), len(want), "points are visited more than once")


def _scheduled(submission: Submission) -> list[tuple[tuple[int, int, int], list[int], np.ndarray]]:
    """Return sizes, loop extents and visits [points, 3] of the nests that the student's `schedule` returns."""

    def ask() -> list[tuple[tuple[int, int, int], object]]:
        answers = []
        for _ in range(2):
            m, n, k = (int(size) for size in submission.rng.permutation([8, 12, 16]))
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


@points(3)
def every_loop_is_split(submission: Submission) -> None:
    """`schedule` splits each of the loops i, j and k in two, the inner one with 4 iterations."""
    hint = "nest.split(loop, 4) splits one loop, nest.tile(i=4, ...) several; k is a loop as well"
    for sizes, extents, visits in _scheduled(submission):
        want = sorted([*(size // TILE for size in sizes), *[TILE] * 3])
        split = isinstance(extents, list) and sorted(map(str, extents)) == sorted(map(str, want))
        with expect.case(f"gemm{sizes}", hint):
            expect.true(split, "the nest has the wrong loops", expected=f"loops of {want}", got=str(extents))
            count = len({*map(tuple, visits.tolist())})
            expect.equal(count, np.prod(sizes), "the nest visits the wrong number of points")


@points(4)
def blocks_are_taken_together(submission: Submission) -> None:
    """`schedule` puts the three inner loops innermost: every 64 consecutive visits form a block of 4 x 4 x 4."""
    hint = "first the three loops over blocks, then the three within a block: look at print(schedule(nest))"
    for sizes, _, visits in _scheduled(submission):
        given = f"gemm{sizes}"
        divisible = len(visits) > 0 and len(visits) % BLOCK == 0
        what = "the visits do not divide into blocks"
        expect.true(divisible, what, got=f"{len(visits)} visits", given=given, hint=hint)
        corners = visits.reshape(-1, BLOCK, 3) // TILE
        mixed = (corners != corners[:, :1]).any((1, 2))
        if mixed.any():
            run = visits.reshape(-1, BLOCK, 3)[int(np.argmax(mixed))]
            ranges = [f"{name} {low}..{high}" for name, low, high in zip("ijk", run.min(0), run.max(0), strict=True)]
            expect.fail(
                "64 consecutive visits extend beyond one block",
                expected="4 values each of i, j and k, starting at a multiple of 4",
                got=", ".join(ranges),
                given=given,
                hint=hint,
            )


TASKS = (
    Task(
        "P4.1",
        "Loops as an iteration space",
        checks=(visits_go_tile_by_tile, tiles_at_the_edge_are_smaller, every_loop_is_split, blocks_are_taken_together),
    ),
)
