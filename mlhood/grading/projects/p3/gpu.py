"""Checks of P3.12 to P3.14: the matrix product on a GPU, by its results and by what it asks of memory.

Kernels run in Numba's simulator, on arrays that record each access (`mlhood.gpu`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mlhood.grading.bare.libraries import ARRAYS, LOOPS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

LAUNCHED = "mlhood.grading.projects.p3.probes:launched"
BLOCK = 16  # threads along x and y
WARP, SECTOR = 32, 8  # threads, float32
# sectors of a request, if neighbours along x are neighbours in memory: a warp is two rows of 16 threads
BEST = {"a": 2, "b": 2, "c": 4}
BARRIERS = "a barrier when both tiles are loaded, another one before they are overwritten, and none within an `if`"
EDGES = "the last blocks extend beyond c (and tiles beyond a and b): which threads may read and write what?"


class _Launch(NamedTuple):
    """What a kernel did.

    `asked` holds by array its requests to global memory, the numbers in them, and the sectors; `shared` is shared
    memory. `conflicts` are passes through that beyond the fewest, and `problems` races and the like.
    """

    given: str
    c: np.ndarray
    product: np.ndarray
    depth: int  # columns of a
    asked: dict[str, list[int]]
    conflicts: int
    problems: list[str]

    def compare(self, hint: str) -> None:
        """Fail unless the result is right."""
        with expect.case(self.given, self.problems[0] if self.problems else hint):
            missing, what = np.argwhere(np.isnan(self.c)), "elements of c are not written, or are not a number"
            expect.true(not len(missing), what, got=f"{len(missing):,}, the first of them c{missing[:1].tolist()}")
            expect.close(self.c, self.product, "c", rtol=1e-3, atol=1e-4)


def _launch(submission: Submission, name: str, m: int, k: int, n: int, *, rows_along_x: bool = False) -> _Launch:
    """Run a kernel for a [M, K] and b [K, N]."""
    a, b = submission.normal(m, k), submission.normal(k, n)
    blocks = [-(-m // BLOCK), -(-n // BLOCK)] if rows_along_x else [-(-n // BLOCK), -(-m // BLOCK)]
    given = f"a {a.shape}, b {b.shape}, {blocks[0]} x {blocks[1]} blocks of {BLOCK} x {BLOCK} threads"
    with expect.case(given, EDGES):
        what, keys = "the report of the launch", ("c", "asked", "conflicts", "problems")
        report = submission.probe(LAUNCHED, name, blocks, BLOCK, a, b, keys=keys)
        asked = expect.mapping(report["asked"], (*BEST, "shared"), what)
        lists = {key: expect.sequence(asked[key], list, what) for key in (*BEST, "shared")}
        counts = {key: [expect.integer(count, what) for count in counts] for key, counts in lists.items()}
        problems = expect.sequence(report["problems"], list, what)
        c = expect.is_array(report["c"], np.float32, "c")
        expect.equal(c.shape, (m, n), "c has another shape")
        conflicts = expect.integer(report["conflicts"], what)
    return _Launch(given, c, a @ b, k, counts, conflicts, list(problems))


def _check_values(submission: Submission, name: str, hint: str, *, rows_along_x: bool = False) -> None:
    """Check the product for sizes that are multiples of a block, and for others."""
    more, less = (int(size) for size in submission.rng.integers(1, BLOCK, 2))
    for sizes in ((BLOCK, BLOCK, BLOCK), (BLOCK + more, 2 * BLOCK + less, less), (less, 5, BLOCK + more), (1, 1, 1)):
        _launch(submission, name, *sizes, rows_along_x=rows_along_x).compare(hint)


def _launch_whole(submission: Submission, name: str) -> _Launch:
    """Run a kernel once for sizes that are multiples of a block: a mistake at the edges costs no points here.

    Nor does a wrong value, but the kernel has to do the work: to touch each element of a, b and c. K is three tiles:
    with a single one, no tile could be overwritten too early.
    """

    def launch() -> _Launch:
        m, n = (BLOCK * int(count) for count in submission.rng.permutation((1, 2)))
        return _launch(submission, name, m, 3 * BLOCK, n)

    done = submission.once(name, launch)
    (m, n), k = done.c.shape, done.depth
    touched, hint = {key: done.asked[key][1] for key in BEST}, "each thread reads a row of a and a column of b"
    whole = touched["a"] >= m * k and touched["b"] >= k * n and touched["c"] >= m * n
    expect.true(whole, f"`{name}` does not touch all elements of a, b and c", got=touched, given=done.given, hint=hint)
    return done


def _within(launch: _Launch, count: int, most: int, what: str, hint: str) -> None:
    """Fail if a kernel asks memory for more than it has to."""
    expect.true(count <= most, what, expected=f"{most:,} at most", got=f"{count:,}", given=launch.given, hint=hint)


@points(1)
def one_thread_computes_an_element(submission: Submission) -> None:
    """`gpu_naive` multiplies matrices of any sizes, one thread per element."""
    _check_values(submission, "gpu_naive", f"x counts the rows of c, y its columns; {EDGES}", rows_along_x=True)
    launch = _launch(submission, "gpu_naive", BLOCK, BLOCK, BLOCK, rows_along_x=True)
    what = "the threads of `gpu_naive` do not write one element of c each, once: [requests of a warp, accesses]"
    hint = "a thread adds up in a variable, and writes the sum to its own element: `cuda.grid(2)` says which"
    want = [launch.c.size // WARP, launch.c.size]
    expect.equal(launch.asked["c"][:2], want, what, given=launch.given, hint=hint)


@points(1)
def coalesced_is_right(submission: Submission) -> None:
    """`gpu_coalesced` multiplies matrices of any sizes."""
    _check_values(submission, "gpu_coalesced", f"x counts the columns of c, y its rows; {EDGES}")


@points(2)
def neighbours_touch_neighbours(submission: Submission) -> None:
    """`gpu_coalesced` needs as few sectors for each request as possible."""
    launch = _launch_whole(submission, "gpu_coalesced")
    for name, best in BEST.items():
        requests, _, sectors = launch.asked[name]
        what = f"the requests of `gpu_coalesced` to {name} need too many sectors of 32 bytes"
        hint = "the threads of a warp differ in x first: which of i and j does x have to be?"
        _within(launch, sectors, best * requests, what, hint)
    hint = "add up in a variable, which is a register of the thread, and write the sum once"
    what = "`gpu_coalesced` touches elements of c more than once"
    _within(launch, launch.asked["c"][1], launch.c.size, what, hint)


P3_12 = Task(
    "P3.12",
    "One thread per element",
    solution_is_fallback=True,
    libraries=LOOPS,
    minutes=15,
    builds_on=("P3.7",),
)


@points(2)
def tiled_is_right(submission: Submission) -> None:
    """`gpu_tiled` multiplies matrices of any sizes."""
    _check_values(submission, "gpu_tiled", EDGES)


def _launch_tiled(submission: Submission) -> _Launch:
    launch, hint = (
        _launch_whole(submission, "gpu_tiled"),
        "cuda.shared.array((TILE, TILE), float32) is a tile of a block",
    )
    uses = launch.asked["shared"][0] > 0
    expect.true(uses, "`gpu_tiled` uses no shared memory", given=launch.given, hint=hint)
    return launch


@points(1)
def tiles_are_loaded_once(submission: Submission) -> None:
    """Each block of `gpu_tiled` reads what it needs of a and b once, and in whole sectors."""
    launch = _launch_tiled(submission)
    numbers = 2 * launch.c.size * launch.depth // BLOCK  # of each block, 2 * BLOCK times K
    read, sectors = (launch.asked["a"][i] + launch.asked["b"][i] for i in (1, 2))
    what = "`gpu_tiled` reads the same numbers from global memory again and again"
    hint = "each thread loads one number of each tile; what it multiplies with comes from shared memory"
    _within(launch, read, numbers, what, hint)
    hint = "which element a thread loads is yours to choose: let neighbours along x load neighbours in memory"
    _within(launch, sectors, numbers // SECTOR, "`gpu_tiled` loads its tiles in too many sectors", hint)


@points(1)
def banks_do_not_conflict(submission: Submission) -> None:
    """`gpu_tiled` reads and writes shared memory without bank conflicts."""
    launch = _launch_tiled(submission)
    hint = "neighbours along x should touch neighbours in a row of a tile, or all the same element"
    _within(launch, launch.conflicts, 0, "`gpu_tiled` has bank conflicts, and makes more passes than needed", hint)


@points(1)
def barriers_hold(submission: Submission) -> None:
    """No thread of `gpu_tiled` touches what another one still reads or writes, and all reach the same barriers."""
    launches = [_launch_tiled(submission)]
    if submission.passed(tiled_is_right):
        launches.append(_launch(submission, "gpu_tiled", BLOCK + 3, BLOCK + 2, BLOCK + 1))
    for launch in launches:
        for problem in launch.problems:
            expect.fail(f"`gpu_tiled`: {problem}", given=launch.given, hint=BARRIERS)


P3_13 = Task(
    "P3.13",
    "Tiles in shared memory",
    solution_is_fallback=True,
    libraries=LOOPS,
    minutes=30,
    builds_on=("P3.12",),
)


@compared(
    1,
    "tiled_bytes",
    hint="each of (n / tile)² blocks reads n / tile tiles of a and as many of b, and writes its tile of c once",
    mistakes={
        "c is written, too": lambda want, n, tile: want - 4 * n * n,
        "bytes, of which a float32 has four": lambda want, n, tile: want // 4,
        "tiles of a and of b": lambda want, n, tile: (want + 4 * n * n) // 2,
    },
)
def traffic_is_counted(submission: Submission) -> Iterator[Arguments]:
    """`tiled_bytes` counts the bytes of global memory that the tiled product moves."""
    for tile in (1, 8, 16, 32):
        yield tile * int(submission.rng.integers(2, 300)), tile
    yield 64, 64


@compared(
    1,
    "gpu_seconds",
    hint="arithmetic and memory work at the same time: the slower one decides",
    mistakes={
        "they overlap, so their times are not added": lambda want, flops, moved, peak, bandwidth: (
            flops / peak + moved / bandwidth
        )
    },
)
def the_slower_one_decides(submission: Submission) -> Iterator[Arguments]:
    """`gpu_seconds` is the time of arithmetic or of memory, whichever is longer."""
    for factor in (0.1, 0.9, 1.1, 10.0):
        flops, peak, bandwidth = (
            float(value) for value in submission.rng.uniform((1e9, 1e12, 1e11), (1e12, 1e14, 1e13))
        )
        yield flops, factor * flops / peak * bandwidth, peak, bandwidth


@compared(
    1,
    "tile_needed",
    hint="for large n, how many FLOP are there for each byte with tiles of this width? Compare with the GPU's ridge",
    mistakes={
        "a power of two": lambda want, peak, bandwidth: int(np.ceil(4 * peak / bandwidth)),
        "the smallest that suffices": lambda want, peak, bandwidth: 2 * want,
        "at that one, memory is still the slower one": lambda want, peak, bandwidth: want // 2,
    },
)
def tiles_are_large_enough(submission: Submission) -> Iterator[Arguments]:
    """`tile_needed` is the smallest tile with which memory does not limit the product."""
    for ridge in (0.1, 2.0, 25.4, 12.5, 20.0, 50.4):
        bandwidth = float(submission.rng.integers(1, 40)) * 2.0**36
        yield ridge * bandwidth, bandwidth
    yield 8 * 2.0**40, 2.0**40  # 32 is just enough


P3_14 = Task(
    "P3.14",
    "What a GPU would need",
    solution_is_fallback=True,
    libraries=ARRAYS,
    minutes=15,
    builds_on=("P3.9", "P3.13"),
)
