"""Checks of P4.1: the points of a space in the order of a tiled nest, and a nest that is tiled by its schedule."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p4.probes:"
TILE = 4
BLOCK = TILE**3


def rows_of(found: object, width: int, what: str, given: str) -> list[tuple[int, ...]]:
    """Rows of whole numbers, as tuples."""
    sound = isinstance(found, np.ndarray) and found.ndim == 2 and found.shape[1] == width and found.dtype.kind in "biuf"
    if not sound or not np.isfinite(found).all() or (found != np.floor(found)).any():  # type: ignore[union-attr]
        expect.fail(f"{what} is no list of {width} whole numbers each", got=found, given=given)
    return [tuple(row) for row in found.astype(np.int64).tolist()]  # type: ignore[union-attr]


def first_difference(found: list, want: list) -> dict[str, str]:
    """Where two lists part, for a message."""
    for place, (one, other) in enumerate(zip(found, want, strict=False)):
        if one != other:
            return {"expected": f"{other} at place {place}", "got": f"{one}"}
    return {"expected": f"{len(want)} of them", "got": f"{len(found)}"}


def _visits(submission: Submission, m: int, n: int, tile_m: int, tile_n: int) -> tuple[list, list, str]:
    """What `visits` returns, what it should, and of what."""
    given = f"m {m}, n {n}, tile_m {tile_m}, tile_n {tile_n}"
    with expect.case(given):
        found = submission.call(PROBES + "listed", submission.value("visits"), m, n, tile_m, tile_n)
    tiles = [(i0, j0) for i0 in range(0, m, tile_m) for j0 in range(0, n, tile_n)]
    want = [(i, j) for i0, j0 in tiles for i in range(i0, min(i0 + tile_m, m)) for j in range(j0, min(j0 + tile_n, n))]
    return rows_of(found, 2, "what `visits` returns", given), want, given


@points(4)
def visits_go_tile_by_tile(submission: Submission) -> None:
    """`visits` finishes a tile before it goes on to the next one, and goes along its rows."""
    rng = submission.rng
    hint = "for i0 in steps of tile_m, for j0 in steps of tile_n, for i in the tile, for j in the tile"
    for over in (0, 1):
        tile_m, tile_n = (int(size) for size in rng.permutation([3, 4, 5])[:2])
        found, want, given = _visits(submission, 3 * tile_m + over, 2 * tile_n + over, tile_m, tile_n)
        if over:  # whether the edge is complete is another check's question
            there = set(want) & set(found)
            expect.true(2 * len(there) >= len(want), "most points are missing", got=f"{len(there)}", given=given)
            found, want = [one for one in dict.fromkeys(found) if one in there], [one for one in want if one in there]
        expect.true(
            found == want, "points come in another order", given=given, hint=hint, **first_difference(found, want)
        )


@points(3)
def tiles_at_the_edge_are_smaller(submission: Submission) -> None:
    """`visits` comes to every point once, also where no tile fits, and to none beyond."""
    hint = "the last tiles end with the space: min(i0 + tile_m, m) and min(j0 + tile_n, n)"
    for m, n, tile_m, tile_n in ((9, 10, 4, 3), (5, 7, 2, 4), (3, 4, 8, 8)):
        found, want, given = _visits(submission, m, n, tile_m, tile_n)
        beyond = sorted(set(found) - set(want))
        missing = sorted(set(want) - set(found))
        expect.true(not beyond, "there are points outside the space", expected=f"(i, j) below ({m}, {n})",
                    got=str(beyond[:4]), given=given, hint=hint)  # fmt: skip
        expect.true(not missing, "points of the space are missing", got=str(missing[:4]), given=given, hint=hint)
        expect.equal(len(found), len(want), "points are visited more than once", given=given, hint=hint)


def _scheduled(submission: Submission) -> list[tuple[tuple[int, int, int], list[int], np.ndarray]]:
    """Sizes, the loops' extents, and the visits [points, 3] of nests that `schedule` returns."""

    def ask() -> list[tuple[tuple[int, int, int], object]]:
        asked = []
        for _ in range(2):
            m, n, k = (int(size) for size in submission.rng.permutation([8, 12, 16]))
            asked.append(((m, n, k), submission.call(PROBES + "scheduled", submission.value("schedule"), m, n, k)))
        return asked

    found = []
    for sizes, told in submission.once("scheduled", ask):
        given = f"gemm{sizes}"
        hint = "every step returns a new nest and leaves the one before as it is: return the last one"
        expect.true(told is not None, "`schedule` returns no nest", expected="a nest", given=given, hint=hint)
        report = expect.mapping(told, ("extents", "visits"), "what `schedule` returns", given=given)
        visits = report["visits"]
        rows = rows_of(visits, 3, "the nest's list of visits", given)
        found.append((sizes, report["extents"], np.array(rows)))
    return found


@points(3)
def every_loop_is_split(submission: Submission) -> None:
    """`schedule` makes two loops of each of i, j and k, the inner one of 4 rounds."""
    for sizes, extents, visits in _scheduled(submission):
        want = sorted([*(size // TILE for size in sizes), *[TILE] * 3])
        hint = "nest.split(loop, 4) makes two loops of one, nest.tile(i=4, ...) of several; k is a loop as well"
        given = f"gemm{sizes}"
        shown = isinstance(extents, list) and sorted(map(str, extents)) == sorted(map(str, want))
        expect.true(shown, "the nest has other loops", expected=f"loops of {want}", got=str(extents), given=given,
                    hint=hint)  # fmt: skip
        expect.equal(
            len({*map(tuple, visits.tolist())}), np.prod(sizes), "the nest has other points", given=given, hint=hint
        )


@points(4)
def blocks_are_taken_together(submission: Submission) -> None:
    """`schedule` has the three inner loops innermost: 64 visits in a row make a block of 4 x 4 x 4."""
    for sizes, _, visits in _scheduled(submission):
        hint = "the three loops over blocks come first, then the three within a block: look at print(schedule(nest))"
        given = f"gemm{sizes}"
        whole = len(visits) > 0 and len(visits) % BLOCK == 0
        expect.true(whole, "the visits do not make whole blocks", got=f"{len(visits)} visits", given=given, hint=hint)
        corners = visits.reshape(-1, BLOCK, 3) // TILE
        mixed = (corners != corners[:, :1]).any((1, 2))
        if mixed.any():
            run = visits.reshape(-1, BLOCK, 3)[int(np.argmax(mixed))]
            spans = [f"{name} {low}..{high}" for name, low, high in zip("ijk", run.min(0), run.max(0), strict=True)]
            expect.fail(
                "64 visits in a row reach beyond one block",
                expected="4 values of i, of j and of k, from a multiple of 4 on",
                got=", ".join(spans),
                given=given,
                hint=hint,
            )


TASKS = (
    Task(
        "P4.1",
        "Loops as a space",
        checks=(
            visits_go_tile_by_tile,
            tiles_at_the_edge_are_smaller,
            every_loop_is_split,
            blocks_are_taken_together,
        ),
    ),
)
