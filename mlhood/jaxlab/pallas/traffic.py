"""Bytes that attention moves between the chip and its memory: step by step, and fused as in the kernel's grid."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Bytes read and written by one head of attention, as if nothing stayed in a cache between steps.

    Args:
        unfused: In three steps: scores q k^T, their softmax, the product with v. Scores and weights are written by one
            step and read by the next. The softmax is counted as one read and one write: as by a good separate kernel.
        fused: By blocks: each block of queries is read once, its result written once, and keys and values are read
            again for each block of queries that sees them.
    """

    unfused: int
    fused: int

    @property
    def factor(self) -> float:
        """How many times fewer bytes the fused kernel moves."""
        return self.unfused / self.fused


def traffic(queries: int, keys: int, d: int, *, block_q: int = 64, block_k: int = 64) -> Traffic:
    """Count the bytes of one head in float32, without a mask; the fused kernel reads whole blocks.

    Args:
        queries: The number of queries.
        keys: The number of keys.
        d: The head dimension.
        block_q: Queries per block.
        block_k: Keys per block.
    """
    scores = queries * keys
    unfused = queries * d + keys * d + scores + 2 * scores + scores + keys * d + queries * d
    blocks = -(-queries // block_q)
    visits = blocks * -(-keys // block_k)
    fused = 2 * blocks * block_q * d + 2 * visits * block_k * d
    return Traffic(4 * unfused, 4 * fused)
