"""How a matrix product lies on an array, and all that follows from it in closed form.

After Samajdar et al., "A Systematic Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim"
(ISPASS 2020, table III and equations 3 to 5): two dimensions of the product lie along the array's rows and columns,
the third passes in time. What does not fit is cut into folds, which follow one another.

| dataflow | along rows S_R | along columns S_C | in time T |
|----------|----------------|-------------------|-----------|
| ws       | K              | N                 | M         |
| is       | K              | M                 | N         |
| os       | M              | N                 | K         |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlhood.dataflow.systolic.array import Array
from mlhood.dataflow.systolic.layer import Layer


@dataclass(frozen=True)
class Mapping:
    """The three dimensions of a product, by where they lie: S_R, S_C and T."""

    along_rows: int
    along_columns: int
    steps: int


@dataclass(frozen=True)
class Fold:
    """Folds that use equally many rows and columns of the array, and how many of them there are."""

    rows: int
    columns: int
    count: int


@dataclass(frozen=True)
class Counts:
    """What a layer costs on an array whose memories never keep it waiting.

    Args:
        cycles: From the first operand that enters to the last output that leaves.
        folds: Pieces into which the product is cut.
        macs: Multiply-accumulates.
        utilisation: Of elements and cycles, the part that multiplied.
        mapping_efficiency: Of the elements, the part to which a fold gives work; the mean over folds.
        ifmap_reads: Inputs read from their memory, in words.
        filter_reads: Weights read from their memory.
        ofmap_writes: Outputs and partial sums written to theirs.
        hops: Words that pass from an element to its neighbour.
    """

    cycles: int
    folds: int
    macs: int
    utilisation: float
    mapping_efficiency: float
    ifmap_reads: int
    filter_reads: int
    ofmap_writes: int
    hops: int


def map_layer(layer: Layer, dataflow: str) -> Mapping:
    """Return where the layer's dimensions lie: the table above."""
    if dataflow == "ws":
        return Mapping(layer.k, layer.n, layer.m)
    if dataflow == "is":
        return Mapping(layer.k, layer.m, layer.n)
    return Mapping(layer.m, layer.n, layer.k)


def folds(mapping: Mapping, rows: int, columns: int) -> list[Fold]:
    """Return the folds by the part of the array they use: at most four kinds, from full to the rest of both sides."""
    return [
        Fold(used_rows, used_columns, row_count * column_count)
        for used_rows, row_count in _pieces(mapping.along_rows, rows)
        for used_columns, column_count in _pieces(mapping.along_columns, columns)
    ]


def fold_cycles(mapping: Mapping, array: Array) -> int:
    """Return the cycles of one fold, which takes as long however much of the array it uses.

    Weights or inputs that stay are shifted in through R cycles first. Then the last of T operands enters the first row
    T - 1 cycles after the first one, the last row's R - 1 later, and reaches the last column another C - 1 later.
    """
    loading = 0 if array.dataflow == "os" else array.rows
    return loading + array.rows + array.columns + mapping.steps - 2


def count(layer: Layer, array: Array) -> Counts:
    """Return the layer's cycles and accesses in closed form.

    SCALE-Sim reports one cycle less (it numbers cycles from 0 and prints the last one's number), and for "os" more
    writes (`mlhood.dataflow.systolic.reports`).
    """
    mapping = map_layer(layer, array.dataflow)
    pieces = folds(mapping, array.rows, array.columns)
    number = sum(fold.count for fold in pieces)
    cycles = number * fold_cycles(mapping, array)
    stays = sum(fold.count * fold.rows * fold.columns for fold in pieces)
    from_left = sum(fold.count * fold.rows for fold in pieces) * mapping.steps
    through_columns = sum(fold.count * fold.columns for fold in pieces) * mapping.steps
    reads = {
        "ws": (from_left, stays, through_columns),
        "is": (stays, from_left, through_columns),
        "os": (from_left, through_columns, stays),
    }[array.dataflow]
    hops_of = _hops_os if array.dataflow == "os" else _hops_stationary
    return Counts(
        cycles=cycles,
        folds=number,
        macs=layer.macs,
        utilisation=layer.macs / (cycles * array.elements),
        mapping_efficiency=stays / (number * array.elements),
        ifmap_reads=reads[0],
        filter_reads=reads[1],
        ofmap_writes=reads[2],
        hops=_total(pieces, lambda fold: hops_of(fold, mapping.steps, array.rows)),
    )


def _pieces(length: int, size: int) -> list[tuple[int, int]]:
    """Return how much of `size` is used, and how often: full pieces, then what is left."""
    full, rest = divmod(length, size)
    return [(used, times) for used, times in ((size, full), (rest, 1)) if used and times]


def _total(pieces: list[Fold], of_one: Callable[[Fold], int]) -> int:
    return sum(fold.count * of_one(fold) for fold in pieces)


def _hops_stationary(fold: Fold, steps: int, rows: int) -> int:
    """Streamed operands move right, partial sums down to the last row, and what stays down to its own row."""
    loading = fold.columns * fold.rows * (fold.rows - 1) // 2
    return steps * (fold.rows * (fold.columns - 1) + fold.columns * (rows - 1)) + loading


def _hops_os(fold: Fold, steps: int, rows: int) -> int:
    """Inputs move right and weights down; a finished sum leaves through a wire of its column."""
    return steps * (fold.rows * (fold.columns - 1) + fold.columns * (fold.rows - 1))
