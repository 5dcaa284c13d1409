"""The ladder of matrix products on a GPU, c = a b: kernels for `launch` or a GPU.

a is [M, K], b [K, N] and c [M, N], float32, of any sizes. Each rung has a name, and says how it is launched.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false, reportOptionalSubscript=false
# (Numba gives `cuda` and `float32` a meaning in a kernel that their declarations do not tell)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from numba import cuda, float32

TILE = 16  # threads of a block along x and y
PER_THREAD = 4  # rows, and columns, of c that a thread of `registers` computes
WIDE = TILE * PER_THREAD  # rows, and columns, of c that a block of `registers` computes
PADDED = WIDE + TILE  # so that two rows, which a warp writes at once, are in different banks


@cuda.jit
def naive(a, b, c):
    """One thread per element, and x counts rows: neighbours in a warp are in different rows of a and of c."""
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


@cuda.jit
def coalesced(a, b, c):
    """One thread per element, and x counts columns: neighbours in a warp read neighbours of b and write those of c."""
    j, i = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total


@cuda.jit
def tiled(a, b, c):
    """Tiles of a and b in shared memory: a block reads each number from global memory once for `TILE` uses."""
    part_of_a = cuda.shared.array((TILE, TILE), float32)
    part_of_b = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    j, i = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1], TILE):
        inside = i < a.shape[0] and first + x < a.shape[1]
        part_of_a[y, x] = a[i, first + x] if inside else float32(0)
        inside = first + y < b.shape[0] and j < b.shape[1]
        part_of_b[y, x] = b[first + y, j] if inside else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += part_of_a[y, k] * part_of_b[k, x]
        cuda.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


@cuda.jit
def registers(a, b, c):
    """A thread keeps a tile of c in registers: each number it reads from shared memory serves `PER_THREAD` products."""
    part_of_a = cuda.shared.array((WIDE, TILE), float32)
    part_of_b = cuda.shared.array((TILE, PADDED), float32)
    totals = cuda.local.array((PER_THREAD, PER_THREAD), float32)
    column = cuda.local.array(PER_THREAD, float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    left, top = WIDE * cuda.blockIdx.x, WIDE * cuda.blockIdx.y
    for p in range(PER_THREAD):
        for q in range(PER_THREAD):
            totals[p, q] = 0
    for first in range(0, a.shape[1], TILE):
        for p in range(PER_THREAD):
            at = TILE * p
            inside = top + at + y < a.shape[0] and first + x < a.shape[1]
            part_of_a[at + y, x] = a[top + at + y, first + x] if inside else float32(0)
            inside = first + y < b.shape[0] and left + at + x < b.shape[1]
            part_of_b[y, at + x] = b[first + y, left + at + x] if inside else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            for p in range(PER_THREAD):
                column[p] = part_of_a[TILE * p + y, k]
            for q in range(PER_THREAD):
                factor = part_of_b[k, TILE * q + x]
                for p in range(PER_THREAD):
                    totals[p, q] += column[p] * factor
        cuda.syncthreads()
    for p in range(PER_THREAD):
        for q in range(PER_THREAD):
            i, j = top + TILE * p + y, left + TILE * q + x
            if i < c.shape[0] and j < c.shape[1]:
                c[i, j] = totals[p, q]


@dataclass(frozen=True)
class Rung:
    """A kernel of the ladder.

    Args:
        kernel: Of (a, b, c).
        tile: Rows, and columns, of c that a block computes.
        rows_along_x: Whether x counts the rows of c, not its columns.
    """

    kernel: Callable
    tile: int = TILE
    rows_along_x: bool = False

    def grid(self, m: int, n: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the blocks of the grid, and the threads of a block, for c [m, n]."""
        down, across = -(-m // self.tile), -(-n // self.tile)
        return ((down, across) if self.rows_along_x else (across, down)), (TILE, TILE)


RUNGS = {
    "naive": Rung(naive, rows_along_x=True),
    "coalesced": Rung(coalesced),
    "tiled": Rung(tiled),
    "registers": Rung(registers, tile=WIDE),
}
"""The rungs of the ladder by name, each faster than the one before."""
