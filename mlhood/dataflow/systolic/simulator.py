"""The array itself, cycle by cycle: operands really move from element to element, and every move is counted.

The oracle of the closed forms in `mlhood.dataflow.systolic.mapping`; for small arrays, as each cycle is a step here.

Weight stationary, and input stationary with the operands' parts exchanged (Kung, "Why Systolic Architectures?", 1982):
what stays enters from the top and is shifted down for R cycles, the last row's part first; then the streamed operand
enters row r from the left, r cycles after row 0, and moves right, while partial sums move down and leave at the bottom.

Output stationary: inputs enter from the left and weights from the top, row r and column c as many cycles late; each
element keeps its sum, which leaves through a wire of its column in the cycle that completes it. (As SCALE-Sim has it;
where sums have to shift down to the last row instead, each fold takes R cycles more.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.systolic.array import Array
from mlhood.dataflow.systolic.layer import gemm_layer
from mlhood.dataflow.systolic.mapping import count
from mlhood.errors import DataflowError

MOST_STATES = 20_000_000  # cycles times elements: some hundred megabytes of history
EMPTY = -1


@dataclass(frozen=True)
class Run:
    """What happened: the product, the counts, and the state of every element in every cycle.

    Args:
        array: On which.
        product: [M, N], the sum of the operands' products, of their dtype.
        cycles: How many.
        ifmap_reads: Inputs that entered.
        filter_reads: Weights that entered.
        ofmap_writes: Outputs and partial sums that left.
        hops: Words that passed from an element to its neighbour.
        step: [cycles, R, C], int32: which of the T steps an element works on, `EMPTY` where it does not.
        held: [cycles, R, C], int32: which term of K lies in an element ("ws", "is"), `EMPTY` where none does.
        fold: [cycles], int32: the number of the fold.
    """

    array: Array
    product: np.ndarray
    cycles: int
    ifmap_reads: int
    filter_reads: int
    ofmap_writes: int
    hops: int
    step: np.ndarray
    held: np.ndarray
    fold: np.ndarray

    @property
    def busy(self) -> np.ndarray:
        """[cycles, R, C], bool: which elements multiply."""
        return self.step != EMPTY

    @property
    def macs(self) -> int:
        """Multiply-accumulates that were done."""
        return int(self.busy.sum())


@dataclass
class _Tally:
    """Words at each edge, and between elements."""

    stays: int = 0
    streams: int = 0
    from_top: int = 0
    leaves: int = 0
    hops: int = 0


@dataclass(frozen=True)
class _State:
    """One cycle: what each element works on, and what lies in it; [R, C] each."""

    step: np.ndarray
    held: np.ndarray


def simulate(x: np.ndarray, w: np.ndarray, array: Array) -> Run:
    """Multiply [M, K] by [K, N] on an array, cycle by cycle.

    Args:
        x: [M, K], inputs: rows are windows.
        w: [K, N], weights, of the same dtype: integers or floats.
        array: Rows, columns and dataflow; its memories do not matter here.

    Raises:
        DataflowError: The matrices do not fit each other, or there are too many cycles to look at each.
    """
    x, w = np.asarray(x), np.asarray(w)
    _check(x, w, array)
    tally = _Tally()
    product = np.zeros((len(x), w.shape[1]), x.dtype)
    if array.dataflow == "os":
        states = _output_stationary(x, w, product, array, tally)
    elif array.dataflow == "ws":
        states = _stationary(w, x, product, array, tally)
    else:
        # the transposed product: the inputs stay, the weights stream
        states = _stationary(x.T, w.T, product.T, array, tally)
    history = [(number, state) for number, fold in enumerate(states) for state in fold]
    first, second = {
        "ws": (tally.streams, tally.stays),
        "is": (tally.stays, tally.streams),
        "os": (tally.streams, tally.from_top),
    }[array.dataflow]
    return Run(
        array=array,
        product=product,
        cycles=len(history),
        ifmap_reads=first,
        filter_reads=second,
        ofmap_writes=tally.leaves,
        hops=tally.hops,
        step=np.stack([state.step for _, state in history]),
        held=np.stack([state.held for _, state in history]),
        fold=np.array([number for number, _ in history], np.int32),
    )


def _check(x: np.ndarray, w: np.ndarray, array: Array) -> None:
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[0] or 0 in x.shape + w.shape or x.dtype != w.dtype:
        raise DataflowError(
            "these matrices have no product",
            expected="[M, K] and [K, N] of one dtype, none empty",
            got=f"{list(x.shape)} {x.dtype} and {list(w.shape)} {w.dtype}",
        )
    cycles = count(gemm_layer("product", len(x), w.shape[1], len(w)), array).cycles
    if cycles * array.elements > MOST_STATES:
        raise DataflowError(
            "this is too much to look at every cycle",
            expected=f"at most {MOST_STATES:,} cycles x elements",
            got=f"{cycles:,} x {array.elements:,}",
            todo="use a smaller product, or mlhood.dataflow.systolic.count, which needs no simulation",
        )


def _stationary(
    stays: np.ndarray, streams: np.ndarray, out: np.ndarray, array: Array, tally: _Tally
) -> Iterator[Iterator[_State]]:
    """Yield the folds of `out`[T, S_C] += `streams`[T, S_R] `stays`[S_R, S_C], column by column of folds."""
    for left in range(0, stays.shape[1], array.columns):
        for top in range(0, stays.shape[0], array.rows):
            part = stays[top : top + array.rows, left : left + array.columns]
            yield _stationary_fold(
                part, streams[:, top : top + len(part)], out[:, left : left + part.shape[1]], top, array, tally
            )


def _stationary_fold(
    stays: np.ndarray, streams: np.ndarray, out: np.ndarray, top: int, array: Array, tally: _Tally
) -> Iterator[_State]:
    rows, columns = array.rows, array.columns
    (used_rows, used_columns), steps = stays.shape, len(streams)
    kept, held = np.zeros((rows, columns), out.dtype), np.full((rows, columns), EMPTY, np.int32)
    for cycle in range(rows):
        tally.hops += int((held[:-1] != EMPTY).sum())
        kept[1:], held[1:] = kept[:-1].copy(), held[:-1].copy()
        kept[0], held[0] = 0, EMPTY
        row = rows - 1 - cycle
        if row < used_rows:
            kept[0, :used_columns], held[0, :used_columns] = stays[row], top + row
            tally.stays += used_columns
        yield _State(np.full((rows, columns), EMPTY, np.int32), held.copy())

    passing, step = np.zeros((rows, columns), out.dtype), np.full((rows, columns), EMPTY, np.int32)
    sums, sum_of = np.zeros((rows, columns), out.dtype), np.full((rows, columns), EMPTY, np.int32)
    for cycle in range(rows + columns + steps - 2):
        # what was in an element goes to its right neighbour, and its partial sum to the one below
        tally.hops += int((step[:, : used_columns - 1] != EMPTY).sum() + (sum_of[:-1] != EMPTY).sum())
        passing[:, 1:], step[:, 1:] = passing[:, :-1].copy(), step[:, :-1].copy()
        sums[1:], sum_of[1:] = sums[:-1].copy(), sum_of[:-1].copy()
        passing[:, 0], step[:, 0] = 0, EMPTY
        for row in range(used_rows):
            if 0 <= cycle - row < steps:
                passing[row, 0], step[row, 0] = streams[cycle - row, row], cycle - row
                tally.streams += 1
        step[:, used_columns:] = EMPTY
        # row 0 starts a sum; below the rows in use sums only pass
        sums[0], sum_of[0] = 0, step[0]
        busy = step != EMPTY
        sums[busy] += passing[busy] * kept[busy]
        for column in np.flatnonzero(sum_of[-1] != EMPTY):
            out[sum_of[-1, column], column] += sums[-1, column]
            tally.leaves += 1
        yield _State(step.copy(), held.copy())


def _output_stationary(
    x: np.ndarray, w: np.ndarray, out: np.ndarray, array: Array, tally: _Tally
) -> Iterator[Iterator[_State]]:
    """Yield the folds of `out`[M, N] = `x`[M, K] `w`[K, N], column by column of folds."""
    for left in range(0, w.shape[1], array.columns):
        for top in range(0, x.shape[0], array.rows):
            part = out[top : top + array.rows, left : left + array.columns]
            yield _output_fold(x[top : top + len(part)], w[:, left : left + part.shape[1]], part, array, tally)


def _output_fold(x: np.ndarray, w: np.ndarray, out: np.ndarray, array: Array, tally: _Tally) -> Iterator[_State]:
    rows, columns = array.rows, array.columns
    (used_rows, used_columns), steps = out.shape, x.shape[1]
    inputs, weights, sums = (np.zeros((rows, columns), out.dtype) for _ in range(3))
    input_step, weight_step = (np.full((rows, columns), EMPTY, np.int32) for _ in range(2))
    nothing = np.full((rows, columns), EMPTY, np.int32)
    for cycle in range(rows + columns + steps - 2):
        tally.hops += int((input_step[:, : used_columns - 1] != EMPTY).sum())
        tally.hops += int((weight_step[: used_rows - 1] != EMPTY).sum())
        inputs[:, 1:], input_step[:, 1:] = inputs[:, :-1].copy(), input_step[:, :-1].copy()
        weights[1:], weight_step[1:] = weights[:-1].copy(), weight_step[:-1].copy()
        input_step[:, 0], weight_step[0] = EMPTY, EMPTY
        for row in range(used_rows):
            if 0 <= cycle - row < steps:
                inputs[row, 0], input_step[row, 0] = x[row, cycle - row], cycle - row
                tally.streams += 1
        for column in range(used_columns):
            if 0 <= cycle - column < steps:
                weights[0, column], weight_step[0, column] = w[cycle - column, column], cycle - column
                tally.from_top += 1
        input_step[:, used_columns:], weight_step[used_rows:] = EMPTY, EMPTY
        busy = (input_step != EMPTY) & (weight_step != EMPTY)
        sums[busy] += inputs[busy] * weights[busy]
        step = np.where(busy, input_step, EMPTY).astype(np.int32)
        for row, column in np.argwhere(step == steps - 1):
            out[row, column] = sums[row, column]
            tally.leaves += 1
        yield _State(step, nothing)
