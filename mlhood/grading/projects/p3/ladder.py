"""Checks of P3.6: three rungs of the matrix product's ladder, judged by their results and by the order of their reads.

Which number is touched when is found by running the function, as it is written, on arrays that remember. The order is
then played to a small cache: it shows whether a line that is fetched is used while it is there, whatever the loops look
like. On these sizes, loops in blocks of 8 in any order fetch 0.26 to 0.34 of what the loops i, k, j fetch, and loops
that use no block again at least as much as those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3 import refusals
from mlhood.grading.projects.p3.probes import packed
from mlhood.measure.traffic import misses

TOUCHED = "mlhood.measure.touches:touched"
PROBES = "mlhood.grading.projects.p3.probes:"
# odd ones, that no block divides; a single row; a single k
SIZES = ((7, 5, 9), (13, 17, 11), (1, 6, 10), (5, 1, 7), (6, 9, 1))
LINE = 8  # numbers
FEW_LINES = 8  # less than a column of b touches, more than rows that are walked side by side
BLOCK = 8
FOUR_BLOCKS = 4 * BLOCK * BLOCK // LINE  # one of a, b and c each, and room to go from one to the next
MOST_TOUCHES = 4_000_000
ROWS_USE = 4.0  # of 8: walking along rows uses all of a line, walking down columns one number
FEW_ROWS = 24  # of a and c
BLOCKED_SHARE = 0.5  # of the lines that the loops fetch unblocked; blocks of 8 need three eighths at most

AS_THEY_COME = (
    "work on a and b as they come in, by numbers (b[k, j]) or parts (b[k], b[k0:k1, j0:j1]): here the function runs as "
    "plain Python, on arrays that remember what is read"
)


def _matrices(submission: Submission, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    draw = submission.rng.standard_normal
    return draw((m, k)).astype(np.float32), draw((k, n)).astype(np.float32)


def _multiplies(submission: Submission, name: str, hint: str, *rest: int) -> None:
    for m, k, n in SIZES:
        a, b = _matrices(submission, m, k, n)
        given = f"a {a.shape}, b {b.shape}" + "".join(f", block {block}" for block in rest)
        with refusals.case(given, hint):
            got = submission.call(name, a.copy(), b.copy(), *rest)
        expect.close(got, a.astype(np.float64) @ b, f"what `{name}` returns", given=given, hint=hint)


@dataclass(frozen=True)
class _Touches:
    """Addresses in the order in which a function touches its arrays.

    Attributes:
        all: Of a, b and what the function has made.
        of_b: Those in b, from 0.
        of_made: Those in arrays that it has made; none where NumPy has made them in a way that is not followed.
        whole: Which of a and b a library was given all of.
    """

    all: np.ndarray
    of_b: np.ndarray
    of_made: np.ndarray
    whole: list[str]


def _touches(submission: Submission, name: str, sizes: tuple[int, int, int], *rest: int) -> _Touches:
    """Have a function run on arrays that remember; all of b at once only `gemm_packed` may hand to a library."""
    a, b = _matrices(submission, *sizes)
    with refusals.case(f"a {a.shape}, b {b.shape}", AS_THEY_COME):
        found = submission.call(TOUCHED, submission.value(name), a, b, *rest)
        report = expect.mapping(found, ("addresses", "first", "last", "whole"), "what was read")
        whole = report["whole"]
        addresses = _addresses(report["addresses"], name)
        first, last = (expect.number(report[key], "what was read") for key in ("first", "last"))
        of_b = addresses[(addresses >= first) & (addresses <= last)] - int(first)
        expect.true(of_b.size > 0, f"`{name}` never reads b")
        if not isinstance(whole, list):
            expect.fail("what was read is not readable", got=whole)
    return _Touches(addresses, of_b, addresses[addresses > last], whole)


def _ordered(submission: Submission, name: str, sizes: tuple[int, int, int], *rest: int) -> _Touches:
    """The touches of a function that chooses their order itself."""
    found = _touches(submission, name, sizes, *rest)
    what = f"`{name}` hands all of a matrix to a library, which chooses the order itself"
    given = f"a {sizes[:2]}, b {sizes[1:]}"
    hint = "work on parts: numbers (b[k, j]), rows (b[k]) or blocks (b[k0:k1, j0:j1])"
    expect.true(found.whole == [], what, got=f"all of {found.whole} at once", given=given, hint=hint)
    return found


def _used(addresses: np.ndarray) -> float:
    """Reads for each line that is fetched; to touch the same number again is no walk, and is left out."""
    moves = addresses[np.diff(addresses, prepend=-1) != 0]
    return moves.size / misses(moves, FEW_LINES, LINE)


def _addresses(found: Any, name: str) -> np.ndarray:
    sound = isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype.kind in "iu"
    expect.true(sound, "the order of reads is not readable", got=found)
    expect.true(found.size <= MOST_TOUCHES, f"`{name}` reads far too often", got=f"{found.size:,} reads")
    return found


@points(3)
def reordered_is_right(submission: Submission) -> None:
    """`gemm_reordered` multiplies matrices of any sizes."""
    _multiplies(submission, "gemm_reordered", "c starts at zero, and every k adds a[i, k] * b[k, j] to c[i, j]")


@points(3)
def reordered_walks_along_rows(submission: Submission) -> None:
    """`gemm_reordered` walks along the rows of b, as they lie in memory."""
    k, n = (int(size) for size in submission.rng.permutation([24, 40]))
    sizes = (12, k, n)
    found = _ordered(submission, "gemm_reordered", sizes)
    for walked, name in ((found.of_b, "b"), (found.of_made, "c")):
        used = _used(walked) if walked.size else ROWS_USE
        expect.true(
            used >= ROWS_USE,
            f"`gemm_reordered` jumps through {name}: a cache line is gone before its neighbours are used",
            expected=f"about {LINE} reads for each line of {LINE} numbers that is fetched",
            got=f"{used:.1f}",
            given=f"a {sizes[:2]}, b {sizes[1:]}",
            hint="the innermost loop goes over j, so that b[k, j] and c[i, j] move along their rows: i, k, j",
        )


@points(3)
def blocked_is_right(submission: Submission) -> None:
    """`gemm_blocked` multiplies matrices of any sizes, with blocks of any size."""
    hint = "a block ends at the matrix's edge, min(i0 + block, M); blocks of k add to what c already holds"
    for block in (4, 5, 32):
        _multiplies(submission, "gemm_blocked", hint, block)


@points(3)
def blocked_uses_blocks_again(submission: Submission) -> None:
    """`gemm_blocked` uses what is in the cache again before it goes on."""
    # all rows of a block of columns of a, or of c, fit into the cache; those of b do not
    m, k, n = FEW_ROWS, *(int(size) for size in submission.rng.permutation([40, 48]))
    found = {block: _ordered(submission, "gemm_blocked", (m, k, n), block) for block in (BLOCK // 2, BLOCK)}
    unblocked = (m * k * n + m * k + m * n) // LINE  # for each row of a all of b
    fetched = misses(found[BLOCK].all, FOUR_BLOCKS, LINE)
    expect.true(
        fetched <= BLOCKED_SHARE * unblocked,
        "`gemm_blocked` fetches the same lines again and again",
        expected=f"at most {3 * m * k * n // (BLOCK * LINE):,} lines, into a cache that holds four blocks of {BLOCK} x "
        f"{BLOCK}; the loops i, k, j without blocks need {unblocked:,}",
        got=f"{fetched:,} lines",
        given=f"a {(m, k)}, b {(k, n)}, block {BLOCK}",
        hint="three loops over blocks outside, three within the blocks inside: all work of a block of a with a block "
        "of b is done before the next one begins",
    )
    for block, touches in found.items():
        high, wide = _first_block(touches.of_b, n, block)
        again = touches.of_b.size > k * n  # who copies b first, row by row, has blocks of the copy
        expect.true(
            not again or (high <= block and wide <= block),
            "`gemm_blocked` takes blocks of another size than `block`",
            expected=f"the first {block * block} numbers of b: {block} rows, {block} columns",
            got=f"{high} rows, {wide} columns",
            given=f"a {(m, k)}, b {(k, n)}, block {block}",
            hint="`block` is the number of rows, and of columns, of a block: range(0, K, block), range(0, N, block)",
        )


def _first_block(of_b: np.ndarray, columns: int, block: int) -> tuple[int, int]:
    """Rows and columns among which the first block * block numbers of b lie that are read."""
    first = list(dict.fromkeys(of_b.tolist()))[: block * block]
    return len({place // columns for place in first}), len({place % columns for place in first})


@points(3)
def panels_are_packed(submission: Submission) -> None:
    """`pack` lays columns of b into panels, with zeros where the last one is not full."""
    for depth, columns, width in ((3, 8, 4), (5, 10, 4), (2, 3, 5), (4, 7, 3)):
        b = 1 + np.abs(_matrices(submission, 1, depth, columns)[1])
        given = f"b {b.shape}, width {width}"
        hint = "panel p holds columns p * width and following, row by row: panels[p, k, j] = b[k, p * width + j]"
        with refusals.case(given, hint):
            got = submission.call("pack", b.copy(), width)
        expect.close(got, packed(b, width), "what `pack` returns", given=given, hint=hint)


@points(2)
def packed_is_right(submission: Submission) -> None:
    """`gemm_packed` multiplies matrices of any sizes."""
    hint = "the last panel may be wider than what is left of c: write only N columns"
    try:
        _multiplies(submission, "gemm_packed", hint)
    except expect.CheckFailed:
        if not _right_with_right_panels(submission):
            raise


@points(1)
def packed_reads_panels(submission: Submission) -> None:
    """`gemm_packed` reads panels, and b only to pack them."""
    function = submission.value("gemm_packed")
    a, b = _matrices(submission, 5, 6, 7)
    with refusals.case(f"a {a.shape}, b {b.shape}"):
        if submission.call(PROBES + "packs", function, a, b) is True:
            return
    sizes = (6, 20, 24)
    found = _touches(submission, "gemm_packed", sizes)
    packs = found.of_b.size <= 2 * sizes[1] * sizes[2] and found.whole != ["a", "b"]
    expect.true(
        packs,
        "`gemm_packed` multiplies with b itself",
        expected="a product with the panels that `pack` makes of b",
        got="no call of `pack`",
        given=f"a {sizes[:2]}, b {sizes[1:]}",
        hint="panels = pack(b, width) first; then the loops read panels[p, k, j], and b no more",
    )


def _right_with_right_panels(submission: Submission) -> bool:
    """Whether only the student's `pack` is to blame."""
    function = submission.value("gemm_packed")
    for m, k, n in SIZES:
        a, b = _matrices(submission, m, k, n)
        try:
            got = submission.call(PROBES + "with_right_pack", function, a, b)
            expect.close(got, a.astype(np.float64) @ b, "the product")
        except expect.CheckFailed:
            return False
    return True


TASKS = (
    Task(
        "P3.6",
        "The ladder",
        checks=(
            reordered_is_right,
            reordered_walks_along_rows,
            blocked_is_right,
            blocked_uses_blocks_again,
            panels_are_packed,
            packed_is_right,
            packed_reads_panels,
        ),
        forbidden=("mlhood.kernels",),
    ),
)
