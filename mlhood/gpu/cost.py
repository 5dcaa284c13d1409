"""What a kernel of the ladder takes on a GPU at least, by a roofline with two slopes: global and shared memory.

Global memory is charged for every sector that the kernel requests, as if there were no cache. A real GPU has two levels
of cache, which serve much of what a kernel requests more than once: the prediction is too slow for the lower rungs, and
close for those that request nothing twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.gpu.ladder import PER_THREAD, TILE, WIDE
from mlhood.gpu.report import BANKS, SECTOR, WARP, WORD

NUMBERS = SECTOR // WORD  # float32 of a sector


@dataclass(frozen=True)
class GPU:
    """A GPU as its vendor describes it.

    Args:
        name: Its name.
        multiprocessors: Number of streaming multiprocessors.
        lanes: Float32 multiply-adds that each of them does in a cycle.
        clock: Cycles per second, at most.
        bandwidth: Of global memory, in bytes per second.
        source: Where these numbers are from.
    """

    name: str
    multiprocessors: int
    lanes: int
    clock: float
    bandwidth: float
    source: str

    @property
    def peak(self) -> float:
        """Float32 operations per second, without tensor cores."""
        return 2.0 * self.lanes * self.multiprocessors * self.clock

    @property
    def passes(self) -> float:
        """Passes through shared memory per second: one per cycle and multiprocessor."""
        return self.multiprocessors * self.clock


GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("T4", 40, 64, 1.59e9, 320e9, "NVIDIA, T4 Tensor Core GPU Product Brief, PB-09256, 2020"),
        GPU("A100", 108, 64, 1.41e9, 1555e9, "NVIDIA, A100 Tensor Core GPU Architecture, 2020 (SXM4, 40 GB)"),
        GPU("H100", 132, 128, 1.98e9, 3352e9, "NVIDIA, H100 Tensor Core GPU Architecture, 2022 (SXM5)"),
        GPU("RTX A6000", 84, 128, 1.80e9, 768e9, "NVIDIA, RTX A6000 data sheet, 2021"),
        GPU("RTX 4060 Laptop", 24, 128, 2.37e9, 256e9, "NVIDIA, GeForce Laptops, Compare, 2023 (highest clock)"),
    )
}
"""What the makers say of some GPUs, by name."""
PUBLISHED = {"naive": 309.0, "coalesced": 1986.5, "tiled": 2980.3, "registers": 15971.7, "cuBLAS": 23249.6}
"""GFLOP/s for n = 4092 on an RTX A6000, with `PUBLISHED_TILES`, from S. Boehm, "How to Optimize a CUDA Matmul Kernel
for cuBLAS-like Performance: a Worklog", 2022, https://siboehm.com/articles/22/CUDA-MMM."""
PUBLISHED_TILES = {"naive": (32, 1), "coalesced": (32, 1), "tiled": (32, 1), "registers": (128, 8)}
"""Rows, and columns, of c that a block computes, and those that a thread computes, by the rung, of that article."""
TILES = {"naive": (TILE, 1), "coalesced": (TILE, 1), "tiled": (TILE, 1), "registers": (WIDE, PER_THREAD)}
"""Rows, and columns, of c that a block computes, and those that a thread computes, by the rung."""


@dataclass(frozen=True)
class Work:
    """What a product of two n x n matrices asks of a GPU.

    Args:
        flops: Operations.
        bytes: Of sectors of global memory that are requested.
        passes: Through shared memory.
    """

    flops: float
    bytes: float
    passes: float

    def seconds(self, gpu: GPU) -> dict[str, float]:
        """Return the seconds that each part of a GPU takes for it; they overlap, so the longest counts."""
        return {
            "arithmetic": self.flops / gpu.peak,
            "global memory": self.bytes / gpu.bandwidth,
            "shared memory": self.passes / gpu.passes,
        }


def work(rung: str, n: int, tile: int = 0, per_thread: int = 0) -> Work:
    """Return the work of a rung of the ladder for n x n matrices, where n is a multiple of the tile.

    Args:
        rung: A key of `ladder.RUNGS`.
        n: Rows and columns.
        tile: Rows and columns of c that a block computes, a multiple of 8; by default those of the course's kernel.
        per_thread: Rows and columns of c that a thread computes; by default those of the course's kernel.
    """
    tile, per_thread = (tile or TILES[rung][0]), (per_thread or TILES[rung][1])
    across = min(WARP, tile // per_thread)  # threads of a warp along x
    down = WARP // across
    written = WORD  # bytes per element of c
    if rung == "naive":  # for each k, a warp reads a row of a per thread along x, and neighbours of b along y
        read, written = (across + -(-down // NUMBERS)) * SECTOR / WARP, across * SECTOR / WARP
    elif rung == "coalesced":
        read = (down + across / NUMBERS) * SECTOR / WARP
    else:
        read = 2 * WORD / tile
    passes = 0.0
    if rung in ("tiled", "registers"):
        passes = (2 / per_thread + 2 / tile) / BANKS
    return Work(2.0 * n**3, read * n**3 + written * n**2, passes * n**3)


def predicted(rung: str, n: int, gpu: GPU, *tiles: int) -> tuple[float, str]:
    """Return the operations per second that a rung attains at most, and what limits it.

    Args:
        rung: A key of `ladder.RUNGS`.
        n: Rows and columns of the matrices.
        gpu: The GPU.
        tiles: As of `work`.
    """
    asked = work(rung, n, *tiles)
    limit, seconds = max(asked.seconds(gpu).items(), key=lambda item: item[1])
    return asked.flops / seconds, limit
