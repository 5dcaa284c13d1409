"""Transposing a block of numbers in vector registers: no memory is touched.

Rows are first exchanged within groups of four lanes, then whole groups: on x86 these are the cheap shuffles (`unpck`,
`vshuff32x4`, `vperm2f128`), on ARM `zip` and `trn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import FLOAT, Code

GROUP = 4


def transpose(code: Code, rows: Sequence[Any], lanes: int) -> list[Any]:
    """Return the columns of at most `lanes` rows, one a vector; what lies beyond the last row is undefined.

    Args:
        code: Where the shuffles are written.
        rows: Vectors of `lanes` float32.
        lanes: 4, 8 or 16.
    """
    missing = ir.Constant(ir.VectorType(FLOAT, lanes), ir.Undefined)
    block = [*rows, *[missing] * (lanes - len(rows))]
    labels = [[(row, lane) for lane in range(lanes)] for row in range(lanes)]
    for distance, low, high in _stages(lanes):
        block, labels = _stage(code, block, labels, distance, low, high)
    column = {label[0][1]: vector for label, vector in zip(labels, block, strict=True)}
    return [column[lane] for lane in range(lanes)]


def _stages(lanes: int) -> list[tuple[int, list[int], list[int]]]:
    """Return distance between partners and the lanes they swap: first and second result's, out of both side by side."""
    quads = range(0, lanes, GROUP)
    pairs = [[(q + j, lanes + q + j) for q in quads for j in half] for half in ((0, 1), (2, 3))]
    twos = [[(q + j, q + j + 1, lanes + q + j, lanes + q + j + 1) for q in quads] for j in (0, 2)]
    groups = [range(start, 2 * lanes, 2 * GROUP) for start in (0, GROUP)]
    whole = [[tuple(range(start, start + GROUP)) for start in group] for group in groups]
    stages = [(1, pairs), (2, twos)]
    distance = GROUP
    while distance < lanes:
        stages.append((distance, whole))
        distance *= 2
    return [(d, _flat(low), _flat(high)) for d, (low, high) in stages]


def _flat(parts: Sequence[Sequence[int]]) -> list[int]:
    return [lane for part in parts for lane in part]


def _stage(
    code: Code, block: list[Any], labels: list[list[Any]], distance: int, low: list[int], high: list[int]
) -> tuple[list[Any], list[list[Any]]]:
    block, labels = list(block), list(labels)
    for row in range(len(block)):
        partner = row + distance
        if row & distance:
            continue
        a, b, both = block[row], block[partner], labels[row] + labels[partner]
        block[row], block[partner] = code.shuffle(a, b, low), code.shuffle(a, b, high)
        labels[row], labels[partner] = [both[lane] for lane in low], [both[lane] for lane in high]
    return block, labels
