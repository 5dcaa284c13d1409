"""Checks of P3.7: three rungs of the matrix product's ladder, by their results and by the order of their accesses.

The order of accesses is recorded by running the function as plain Python on arrays that log each access, and replayed
in a model of a small cache. That shows whether a fetched line is used while it is cached, however the loops are
written. For the sizes used here, blocks of 8 fetch 0.26 to 0.34 of the lines that the loops i, k, j fetch, in any order
of loops; loops that do not reuse blocks fetch at least as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mlhood.grading.bare.libraries import LOOPS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.variants.parameter import Parameter
from mlhood.measure.traffic import misses

TOUCHED = "mlhood.measure.touches:touched"
PROBES = "mlhood.grading.projects.p3.probes:"
# (M, K, N): odd sizes that no block divides, a single row, a single k, a single column
SIZES = ((7, 5, 9), (13, 37, 11), (1, 6, 10), (5, 1, 7), (6, 9, 1))
WIDE = (3, 5, 307)  # no width divides 307: at least two panels, the last of which is not full, for all widths below
MANY_SUMS = 20  # so many products added in float32 are rounded so often that not every sum is the nearest float32
LINE = 8  # elements
FEW_LINES = 8  # fewer than a column of b touches, more than the rows in use at one time
BLOCK = 8
FOUR_BLOCKS = 4 * BLOCK * BLOCK // LINE  # lines: one block each of a, b and c, and one to spare
MAX_ACCESSES = 4_000_000
ROW_REUSE = 4.0  # accesses per fetched line of 8: along a row all elements are used, down a column only one
FEW_ROWS = 24  # of a and c
# the last argument of the three products, which has a default
GEMM_ARGUMENT = Parameter("gemm_argument", ("none", "alpha"))
BLOCKED_SHARE = 0.5  # of the lines fetched without blocks; blocks of 8 need three eighths at most

RECORDED_HINT = (
    "index a and b as they are passed, by element (b[k, j]) or by part (b[k], b[k0:k1, j0:j1]): this check runs the "
    "function as plain Python, on arrays that record each access"
)


def _draw_matrices(submission: Submission, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    return submission.normal(m, k), submission.normal(k, n)


def _check_products(
    submission: Submission, name: str, hint: str, *block: int, sizes: tuple[tuple[int, int, int], ...] = SIZES
) -> None:
    for m, k, n in sizes:
        for last in _last_arguments(submission):
            a, b = _draw_matrices(submission, m, k, n)
            given = f"a {a.shape}, b {b.shape}" + "".join(f", block {size}" for size in block)
            given += "".join(f", alpha {value}" for value in last)
            with expect.case(given, hint):
                got = submission.call(name, a.copy(), b.copy(), *block, *last)
                exact = _product(a, b, *last)
                expect.close(got, exact, f"what `{name}` returns", dtype=np.float32)
                rounds = k < MANY_SUMS or not np.array_equal(got, exact.astype(np.float32))  # type: ignore[arg-type]
                what = f"`{name}` adds up in float64: every sum is exact to the last digit of float32"
                expect.true(rounds, what, expected="sums in float32: half the bytes, twice as many in a vector")


def _last_arguments(submission: Submission) -> list[tuple[float, ...]]:
    """Return what the products get as their last argument: values, and nothing, so that it has its default."""
    varied = submission.parameters.gemm_argument == "alpha"
    return [(float(submission.rng.uniform(2, 4)),), ()] if varied else [()]


def _neutral(submission: Submission) -> tuple[float, ...]:
    """Return the last argument with which the products compute no more and no less than a b."""
    return (1.0,) if submission.parameters.gemm_argument == "alpha" else ()


def _product(a: np.ndarray, b: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    """Return alpha a b, in float64."""
    return alpha * (a.astype(np.float64) @ b)


class _Accesses(NamedTuple):
    """Addresses in the order in which a function accesses its arrays.

    Those to `b` are counted from 0; `runs_of_b` are the same in pieces, between which a or an allocated array is
    accessed. `of_result` are those to allocated arrays; it is empty if NumPy allocated them in an untracked way.
    """

    all: np.ndarray
    of_b: np.ndarray
    runs_of_b: list[np.ndarray]
    of_result: np.ndarray
    passed_whole: list[str]  # to a library


def _record(submission: Submission, name: str, sizes: tuple[int, int, int], *block: int) -> _Accesses:
    """Run a function on arrays that record each access."""
    a, b = _draw_matrices(submission, *sizes)
    with expect.case(f"a {a.shape}, b {b.shape}", RECORDED_HINT):
        keys = ("addresses", "first", "last", "whole")
        report = submission.probe(TOUCHED, name, a, b, *block, *_neutral(submission), keys=keys)
        passed_whole, addresses = expect.sequence(report["whole"], list, "the record"), report["addresses"]
        if not isinstance(addresses, np.ndarray) or addresses.ndim != 1 or addresses.dtype.kind not in "iu":
            expect.fail("the record of accesses cannot be read", got=addresses)
        few = addresses.size <= MAX_ACCESSES
        expect.true(few, f"`{name}` makes far too many accesses", got=f"{addresses.size:,}")
        first, last = (expect.number(report[key], "the record of accesses") for key in ("first", "last"))
        in_b = (addresses >= first) & (addresses <= last)
        pieces = np.split(addresses - int(first), np.flatnonzero(np.diff(in_b)) + 1)
        runs_of_b = pieces[0 if in_b[:1].all() else 1 :: 2]
        expect.true(bool(in_b.any()), f"`{name}` never reads b")
    return _Accesses(addresses, np.concatenate(runs_of_b), runs_of_b, addresses[addresses > last], list(passed_whole))


def _record_own_loops(submission: Submission, name: str, sizes: tuple[int, int, int], *block: int) -> _Accesses:
    """Record a function that must determine the order itself, and may not leave it to a library."""
    accesses = _record(submission, name, sizes, *block)
    what = f"`{name}` passes a whole matrix to a library, which then determines the order"
    hint = "work on parts: elements (b[k, j]), rows (b[k]) or blocks (b[k0:k1, j0:j1])"
    expect.true(accesses.passed_whole == [], what, got=accesses.passed_whole, hint=hint)
    return accesses


def _reuse(addresses: np.ndarray) -> float:
    """Accesses per fetched line; immediate repetitions of an address are not counted."""
    moves = addresses[np.diff(addresses, prepend=-1) != 0]
    return moves.size / misses(moves, FEW_LINES, LINE)


@points(2)
def reordered_is_right(submission: Submission) -> None:
    """`gemm_reordered` multiplies matrices of any sizes."""
    _check_products(
        submission, "gemm_reordered", "what is in c[i, j] after the first k, and what has to be there after the last?"
    )


@points(2)
def reordered_walks_along_rows(submission: Submission) -> None:
    """`gemm_reordered` walks along the rows of b, as they are stored in memory."""
    k, n = submission.rng.permutation([24, 40]).tolist()
    with expect.case(f"a {(12, k)}, b {(k, n)}", "three loops without blocks; the innermost one goes along a row of b"):
        accesses = _record_own_loops(submission, "gemm_reordered", (12, k, n))
        for addresses, name in ((accesses.of_b, "b"), (accesses.of_result, "c")):
            reuse = _reuse(addresses) if addresses.size else ROW_REUSE
            what = f"`gemm_reordered` jumps through {name}: a cache line is evicted before its other elements are used"
            hint = "look at the innermost loop: through which of a, b and c does it walk, and in which direction?"
            expected, got = f"about {LINE} accesses for each fetched line of {LINE} elements", f"{reuse:.1f}"
            expect.true(reuse >= ROW_REUSE, what, expected=expected, got=got, hint=hint)
        copied = accesses.of_b.size <= k * n == len(set(max(accesses.runs_of_b, key=len).tolist()))
        what = "`gemm_reordered` copies b and multiplies with the copy"
        expect.true(not copied, what, hint="the order of the loops alone decides how b, as it is passed, is traversed")
        rows = (accesses.of_b[accesses.of_b // n == row] % n for row in range(k))
        partial = [row for row, columns in enumerate(rows) if not _whole_sweeps(columns, n)]
        what = "`gemm_reordered` does not read all of a row of b before it begins again with its first element"
        expect.true(not partial, what, got=f"parts of the rows {partial}")


def _whole_sweeps(columns: np.ndarray, n: int) -> bool:
    """Whether these columns of a row are read all before one of them is read again, but for immediate repetitions."""
    moves = columns[np.diff(columns, prepend=-1) != 0]
    return moves.size % n == 0 and bool((np.sort(moves.reshape(-1, n)) == np.arange(n)).all())


@points(2)
def blocked_is_right(submission: Submission) -> None:
    """`gemm_blocked` multiplies matrices of any sizes, with blocks of any size."""
    hint = "the last block of each axis ends where the matrix ends, and several blocks of k contribute to one c[i, j]"
    for block in (4, 5, 32):
        _check_products(submission, "gemm_blocked", hint, block)


@points(2)
def blocked_uses_blocks_again(submission: Submission) -> None:
    """`gemm_blocked` reuses what is in the cache before it moves on."""
    # all rows of a block of columns of a, or of c, fit into the cache; those of b do not
    m, k, n = FEW_ROWS, *(int(size) for size in submission.rng.permutation([40, 48]))
    hint = (
        "three outer loops over blocks of `block` rows and `block` columns of b, three inner loops within them: finish "
    )
    hint += (
        "all work on a block of a and a block of b before you go on to the next; several contribute to one block of c"
    )
    unblocked = (m * k * n + m * k + m * n) // LINE  # all of b for each row of a
    for block in (BLOCK, BLOCK // 2):
        with expect.case(f"a {(m, k)}, b {(k, n)}, block {block}", hint):
            recorded = _record_own_loops(submission, "gemm_blocked", (m, k, n), block)
            fetched = misses(recorded.all, FOUR_BLOCKS, LINE) if block == BLOCK else 0
            what = (
                f"`gemm_blocked` fetches the same lines again and again, into a cache of four {BLOCK} x {BLOCK} blocks"
            )
            expected = f"at most {3 * m * k * n // (BLOCK * LINE):,} lines; without blocks, it takes {unblocked:,}"
            expect.true(fetched <= BLOCKED_SHARE * unblocked, what, expected=expected, got=f"{fetched:,} lines")
            if recorded.of_b.size <= k * n:  # b was copied first, and the blocks are those of the copy
                continue
            high, wide = _first_block(recorded.of_b, n, block)
            what, got = "`gemm_blocked` uses blocks of a different size than `block`", f"{high} rows, {wide} columns"
            expect.true(max(high, wide) <= block, what, expected=f"{block} rows, {block} columns of b", got=got)
            most, what = max(len(set(run.tolist())) for run in recorded.runs_of_b), "more of b at once than a block"
            expected, got = f"{block * block} elements before a or c is read again", f"{most}"
            expect.true(most <= block * block, f"`gemm_blocked` multiplies with {what}", expected=expected, got=got)


def _first_block(of_b: np.ndarray, columns: int, block: int) -> tuple[int, int]:
    """Number of rows and of columns among the first block * block distinct elements read from b."""
    first = list(dict.fromkeys(of_b.tolist()))[: block * block]
    return len({address // columns for address in first}), len({address % columns for address in first})


@compared(
    2,
    "pack",
    typed=True,
    hint="take b with 5 columns and width 2, and write down all three panels; the axes are panel, row of b, column",
)
def panels_are_packed(submission: Submission) -> Iterator[Arguments]:
    """`pack` copies the columns of b into panels, padded with zeros if the last one is not full."""
    # (5, 9, 4) has panels of the same shape as (5, 10, 4), in which a number would be left over
    for depth, columns, width in ((3, 8, 4), (5, 10, 4), (5, 9, 4), (2, 3, 5), (4, 7, 3), (1, 5, 1)):
        yield 1 + np.abs(submission.normal(depth, columns)), width


@points(1)
def packed_is_right(submission: Submission) -> None:
    """`gemm_packed` multiplies matrices of any sizes."""
    try:
        hint = "the last panel may have more columns than c has left"
        _check_products(submission, "gemm_packed", hint, sizes=(*SIZES, WIDE))
    except expect.CheckFailed:
        if not _right_with_reference_pack(submission):
            raise


@points(1)
def packed_reads_panels(submission: Submission) -> None:
    """`gemm_packed` reads the panels that `pack` makes of b, and b only to pack them."""
    factor, (first, second) = float(submission.rng.uniform(2, 4)), (submission.normal(6, 7) for _ in range(2))
    # a product of the panels, which are known here alone: it does not depend on b, and their sum gives the sum
    results = []
    for panels in (first, second, first + np.float32(factor) * second):
        a, b = np.ones((5, 6), np.float32), submission.normal(6, 7)
        results.append(_with_panels_of(submission, panels, a, b, *_neutral(submission)))
    once, more, both = results
    right = bool(once.any() and more.any()) and np.allclose(both, once + factor * more, rtol=1e-3, atol=1e-3)
    what = "`gemm_packed` does not multiply with the panels that `pack` returns: its result does not follow them"
    expect.true(right, what, hint="pack all of b first; after that, every factor from b is read from a panel")


def _with_panels_of(
    submission: Submission, panels: np.ndarray, a: np.ndarray, b: np.ndarray, *last: object
) -> np.ndarray:
    """Return what `gemm_packed` returns if `pack` returns the panels of another matrix, whatever it gets."""
    with expect.case(f"a {a.shape}, b {b.shape}"):
        got = submission.probe(PROBES + "with_panels", "gemm_packed", a, b, panels, *last)
    return expect.array(got, (len(a), b.shape[1]), "what `gemm_packed` returns")


def _right_with_reference_pack(submission: Submission) -> bool:
    """Whether the product is right once `pack` is the reference's, so that only the student's `pack` is wrong."""
    for m, k, n in (*SIZES, WIDE):
        for last in _last_arguments(submission):
            a, b = _draw_matrices(submission, m, k, n)
            try:
                expect.close(_with_panels_of(submission, b, a, b, *last), _product(a, b, *last), "the product")
            except expect.CheckFailed:
                return False
    return True


P3_7 = Task(
    "P3.7",
    "The ladder",
    libraries=LOOPS,
    solution_is_fallback=True,
    varies=(GEMM_ARGUMENT,),
    minutes=50,
    builds_on=("P3.4",),
)
