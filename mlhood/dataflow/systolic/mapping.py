"""The mapping of a matrix product to an array, and its cycles and accesses in closed form.

After Samajdar et al., "A Systematic Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim"
(ISPASS 2020, table III and equations 3 to 5): two dimensions of the product are mapped to the array's rows and columns,
the third to time. A product larger than the array is divided into folds, which run one after another.

| dataflow | along rows S_R | along columns S_C | in time T |
|----------|----------------|-------------------|-----------|
| ws       | K              | N                 | M         |
| is       | K              | M                 | N         |
| os       | M              | N                 | K         |
"""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.dataflow.systolic.array import Array, ArrayLayer


@dataclass(frozen=True)
class Mapping:
    """The sizes of the three dimensions: S_R, S_C and T."""

    along_rows: int
    along_columns: int
    steps: int


@dataclass(frozen=True)
class Fold:
    """The rows and columns of the array that a fold uses, and the number of such folds."""

    rows: int
    columns: int
    count: int


@dataclass(frozen=True)
class Counts:
    """Cycles and accesses of a layer on an array whose memories never stall it.

    Args:
        cycles: From the first operand that enters to the last output that leaves.
        folds: Number of folds.
        macs: Multiply-accumulates.
        utilisation: Fraction of elements times cycles that multiplied.
        ifmap_reads: Words of input read from their memory.
        filter_reads: Words of weights read from their memory.
        ofmap_writes: Outputs and partial sums written to their memory.
        hops: Words passed from an element to its neighbour.
    """

    cycles: int
    folds: int
    macs: int
    utilisation: float
    ifmap_reads: int
    filter_reads: int
    ofmap_writes: int
    hops: int


def map_layer(layer: ArrayLayer, dataflow: str) -> Mapping:
    """Return the mapping of a layer's dimensions, by the table above."""
    if dataflow == "ws":
        return Mapping(layer.k, layer.n, layer.m)
    if dataflow == "is":
        return Mapping(layer.k, layer.m, layer.n)
    return Mapping(layer.m, layer.n, layer.k)


def folds(mapping: Mapping, rows: int, columns: int) -> list[Fold]:
    """Return the folds by the part of the array they use: at most four kinds, as each side may have a partial one."""
    return [
        Fold(used_rows, used_columns, row_count * column_count)
        for used_rows, row_count in _partition(mapping.along_rows, rows)
        for used_columns, column_count in _partition(mapping.along_columns, columns)
    ]


def fold_cycles(mapping: Mapping, array: Array) -> int:
    """Return the cycles of one fold, which do not depend on the part of the array it uses.

    Stationary weights or inputs are shifted in through R cycles first. Then the last of T operands enters the first row
    T - 1 cycles after the first one, the last row R - 1 cycles later, and reaches the last column another C - 1 later.
    """
    loading = 0 if array.dataflow == "os" else array.rows
    return loading + array.rows + array.columns + mapping.steps - 2


def count(layer: ArrayLayer, array: Array) -> Counts:
    """Return the layer's cycles and accesses in closed form.

    SCALE-Sim reports one cycle less (the index of the last cycle, counted from 0), and for "os" adds R + C to the
    writes of each fold.
    """
    mapping = map_layer(layer, array.dataflow)
    all_folds = folds(mapping, array.rows, array.columns)
    number = sum(fold.count for fold in all_folds)
    cycles = number * fold_cycles(mapping, array)
    stationary = sum(fold.count * fold.rows * fold.columns for fold in all_folds)
    along_rows = sum(fold.count * fold.rows for fold in all_folds) * mapping.steps
    along_columns = sum(fold.count * fold.columns for fold in all_folds) * mapping.steps
    ifmap_reads, filter_reads, ofmap_writes = {
        "ws": (along_rows, stationary, along_columns),
        "is": (stationary, along_rows, along_columns),
        "os": (along_rows, along_columns, stationary),
    }[array.dataflow]
    return Counts(
        cycles=cycles,
        folds=number,
        macs=layer.macs,
        utilisation=layer.macs / (cycles * array.elements),
        ifmap_reads=ifmap_reads,
        filter_reads=filter_reads,
        ofmap_writes=ofmap_writes,
        hops=sum(fold.count * _hops(fold, mapping.steps, array) for fold in all_folds),
    )


def _partition(length: int, size: int) -> list[tuple[int, int]]:
    """Return (used part of `size`, count): full parts, then a partial one."""
    full, remainder = divmod(length, size)
    return [(used, times) for used, times in ((size, full), (remainder, 1)) if used and times]


def _hops(fold: Fold, steps: int, array: Array) -> int:
    if array.dataflow == "os":  # inputs move right and weights down; a finished sum leaves through a wire of its column
        return steps * (fold.rows * (fold.columns - 1) + fold.columns * (fold.rows - 1))
    # streamed operands move right, partial sums down to the last row, stationary operands down to their own row
    loading = fold.columns * fold.rows * (fold.rows - 1) // 2
    return steps * (fold.rows * (fold.columns - 1) + fold.columns * (array.rows - 1)) + loading
