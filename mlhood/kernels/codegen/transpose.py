"""Transposing a block in vector registers, without going through memory.

Rows are exchanged within groups of four lanes first, then whole groups: on x86 these are the cheap shuffles (`unpck`,
`vshuff32x4`, `vperm2f128`), on ARM `zip` and `trn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import FLOAT, FunctionBuilder

GROUP = 4


def transpose(code: FunctionBuilder, rows: Sequence[Any], lanes: int) -> list[Any]:
    """Return the columns of up to `lanes` rows, one per vector; lanes beyond the last row are undefined.

    Args:
        code: The function that gets the shuffles.
        rows: Vectors of `lanes` float32.
        lanes: 4, 8 or 16.
    """
    missing = ir.Constant(ir.VectorType(FLOAT, lanes), ir.Undefined)
    block = [*rows, *[missing] * (lanes - len(rows))]
    # the (row, lane) that each lane of the block came from
    origins = [[(row, lane) for lane in range(lanes)] for row in range(lanes)]
    for distance, low, high in _stages(lanes):
        block, origins = _exchange(code, block, origins, distance, low, high)
    columns = {origin[0][1]: vector for origin, vector in zip(origins, block, strict=True)}
    return [columns[lane] for lane in range(lanes)]


def _stages(lanes: int) -> list[tuple[int, list[int], list[int]]]:
    """Return for each stage the distance between partner rows, and the lanes that the two results take.

    Lanes index the concatenation of both partners.
    """
    quads = range(0, lanes, GROUP)
    pairs = [[(q + j, lanes + q + j) for q in quads for j in half] for half in ((0, 1), (2, 3))]
    twos = [[(q + j, q + j + 1, lanes + q + j, lanes + q + j + 1) for q in quads] for j in (0, 2)]
    groups = [range(start, 2 * lanes, 2 * GROUP) for start in (0, GROUP)]
    halves = [[tuple(range(start, start + GROUP)) for start in group] for group in groups]
    stages = [(1, pairs), (2, twos)]
    distance = GROUP
    while distance < lanes:
        stages.append((distance, halves))
        distance *= 2
    return [(distance, _flatten(low), _flatten(high)) for distance, (low, high) in stages]


def _flatten(groups: Sequence[Sequence[int]]) -> list[int]:
    return [lane for group in groups for lane in group]


def _exchange(
    code: FunctionBuilder, block: list[Any], origins: list[list[Any]], distance: int, low: list[int], high: list[int]
) -> tuple[list[Any], list[list[Any]]]:
    block, origins = list(block), list(origins)
    for row in range(len(block)):
        partner = row + distance
        if row & distance:
            continue
        a, b, both = block[row], block[partner], origins[row] + origins[partner]
        block[row], block[partner] = code.shuffle(a, b, low), code.shuffle(a, b, high)
        origins[row], origins[partner] = [both[lane] for lane in low], [both[lane] for lane in high]
    return block, origins
