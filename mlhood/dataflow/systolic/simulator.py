"""Cycle-accurate simulation of the array: operands move from element to element, and every move is counted.

It is the oracle of the closed forms in `mlhood.dataflow.systolic.mapping`, for small arrays: each cycle is simulated.

Weight stationary, and input stationary with the operands exchanged (Kung, "Why Systolic Architectures?", 1982): the
stationary operand enters from the top and is shifted down for R cycles, its last row first; then the streamed operand
enters row r from the left, r cycles after row 0, and moves right, while partial sums move down and leave at the bottom.

Output stationary: inputs enter from the left and weights from the top, row r and column c delayed by r and c cycles;
each element keeps its sum, which leaves through a wire of its column in the cycle that completes it. (As in SCALE-Sim;
if sums had to be shifted down to the last row instead, each fold would take R cycles more.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.systolic.array import Array, gemm_layer
from mlhood.dataflow.systolic.mapping import count
from mlhood.errors import DataflowError

MAX_STATES = 20_000_000  # cycles times elements: some hundred megabytes of history
EMPTY = -1


@dataclass(frozen=True)
class Run:
    """The product, the counts, and the state of every element in every cycle.

    Args:
        array: The array.
        product: [M, N], of the operands' dtype.
        cycles: Number of cycles.
        ifmap_reads: Inputs that entered.
        filter_reads: Weights that entered.
        ofmap_writes: Outputs and partial sums that left.
        hops: Words passed from an element to its neighbour.
        step: [cycles, R, C], int32: which of the T steps an element computes, `EMPTY` if none.
        resident: [cycles, R, C], int32: row k of the stationary operand in an element ("ws", "is"), `EMPTY` if none.
        fold: [cycles], int32: index of the fold.
    """

    array: Array
    product: np.ndarray
    cycles: int
    ifmap_reads: int
    filter_reads: int
    ofmap_writes: int
    hops: int
    step: np.ndarray
    resident: np.ndarray
    fold: np.ndarray

    @property
    def busy(self) -> np.ndarray:
        """[cycles, R, C], bool: which elements multiply."""
        return self.step != EMPTY

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates."""
        return int(self.busy.sum())


@dataclass
class _Counters:
    """Words at each edge, and between elements."""

    stationary: int = 0
    streamed: int = 0
    from_top: int = 0
    outputs: int = 0
    hops: int = 0


@dataclass(frozen=True)
class _State:
    """`Run.step` and `Run.resident` of one cycle; [R, C] each."""

    step: np.ndarray
    resident: np.ndarray


def simulate(x: np.ndarray, w: np.ndarray, array: Array) -> Run:
    """Multiply [M, K] by [K, N] on an array, cycle by cycle.

    Args:
        x: [M, K], inputs: rows are windows.
        w: [K, N], weights, of the same dtype: integers or floats.
        array: Rows, columns and dataflow; its memories are not simulated.

    Raises:
        DataflowError: The matrices cannot be multiplied, or there are too many cycles to simulate.
    """
    x, w = np.asarray(x), np.asarray(w)
    _check(x, w, array)
    counters = _Counters()
    product = np.zeros((len(x), w.shape[1]), x.dtype)
    if array.dataflow == "os":
        states = _output_stationary(x, w, product, array, counters)
    elif array.dataflow == "ws":
        states = _stationary(w, x, product, array, counters)
    else:
        # the transposed product: inputs are stationary, weights are streamed
        states = _stationary(x.T, w.T, product.T, array, counters)
    history = [(index, state) for index, fold in enumerate(states) for state in fold]
    ifmap_reads, filter_reads = {
        "ws": (counters.streamed, counters.stationary),
        "is": (counters.stationary, counters.streamed),
        "os": (counters.streamed, counters.from_top),
    }[array.dataflow]
    return Run(
        array=array,
        product=product,
        cycles=len(history),
        ifmap_reads=ifmap_reads,
        filter_reads=filter_reads,
        ofmap_writes=counters.outputs,
        hops=counters.hops,
        step=np.stack([state.step for _, state in history]),
        resident=np.stack([state.resident for _, state in history]),
        fold=np.array([index for index, _ in history], np.int32),
    )


def _check(x: np.ndarray, w: np.ndarray, array: Array) -> None:
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[0] or 0 in x.shape + w.shape or x.dtype != w.dtype:
        raise DataflowError(
            "these matrices cannot be multiplied",
            expected="[M, K] and [K, N] of one dtype, none empty",
            got=f"{list(x.shape)} {x.dtype} and {list(w.shape)} {w.dtype}",
        )
    cycles = count(gemm_layer("product", len(x), w.shape[1], len(w)), array).cycles
    if cycles * array.elements > MAX_STATES:
        raise DataflowError(
            "the product is too large to simulate every cycle",
            expected=f"at most {MAX_STATES:,} cycles x elements",
            got=f"{cycles:,} x {array.elements:,}",
            todo="use a smaller product, or mlhood.dataflow.systolic.count, which needs no simulation",
        )


def _stationary(
    stationary: np.ndarray, streamed: np.ndarray, out: np.ndarray, array: Array, counters: _Counters
) -> Iterator[Iterator[_State]]:
    """Yield the folds of `out`[T, S_C] += `streamed`[T, S_R] `stationary`[S_R, S_C], column by column of folds."""
    for left in range(0, stationary.shape[1], array.columns):
        for top in range(0, stationary.shape[0], array.rows):
            part = stationary[top : top + array.rows, left : left + array.columns]
            yield _stationary_fold(
                part, streamed[:, top : top + len(part)], out[:, left : left + part.shape[1]], top, array, counters
            )


def _stationary_fold(
    stationary: np.ndarray, streamed: np.ndarray, out: np.ndarray, top: int, array: Array, counters: _Counters
) -> Iterator[_State]:
    rows, columns = array.rows, array.columns
    (used_rows, used_columns), steps = stationary.shape, len(streamed)
    loaded, resident = np.zeros((rows, columns), out.dtype), np.full((rows, columns), EMPTY, np.int32)
    for cycle in range(rows):
        counters.hops += int((resident[:-1] != EMPTY).sum())
        loaded[1:], resident[1:] = loaded[:-1].copy(), resident[:-1].copy()
        loaded[0], resident[0] = 0, EMPTY
        row = rows - 1 - cycle
        if row < used_rows:
            loaded[0, :used_columns], resident[0, :used_columns] = stationary[row], top + row
            counters.stationary += used_columns
        yield _State(np.full((rows, columns), EMPTY, np.int32), resident.copy())

    moving, step = np.zeros((rows, columns), out.dtype), np.full((rows, columns), EMPTY, np.int32)
    sums, sum_of = np.zeros((rows, columns), out.dtype), np.full((rows, columns), EMPTY, np.int32)
    for cycle in range(rows + columns + steps - 2):
        # each element passes its operand to the right and its partial sum down
        counters.hops += int((step[:, : used_columns - 1] != EMPTY).sum() + (sum_of[:-1] != EMPTY).sum())
        moving[:, 1:], step[:, 1:] = moving[:, :-1].copy(), step[:, :-1].copy()
        sums[1:], sum_of[1:] = sums[:-1].copy(), sum_of[:-1].copy()
        moving[:, 0], step[:, 0] = 0, EMPTY
        for row in range(used_rows):
            if 0 <= cycle - row < steps:
                moving[row, 0], step[row, 0] = streamed[cycle - row, row], cycle - row
                counters.streamed += 1
        step[:, used_columns:] = EMPTY
        # row 0 starts a sum; unused rows only pass it down
        sums[0], sum_of[0] = 0, step[0]
        busy = step != EMPTY
        sums[busy] += moving[busy] * loaded[busy]
        for column in np.flatnonzero(sum_of[-1] != EMPTY):
            out[sum_of[-1, column], column] += sums[-1, column]
            counters.outputs += 1
        yield _State(step.copy(), resident.copy())


def _output_stationary(
    x: np.ndarray, w: np.ndarray, out: np.ndarray, array: Array, counters: _Counters
) -> Iterator[Iterator[_State]]:
    """Yield the folds of `out`[M, N] = `x`[M, K] `w`[K, N], column by column of folds."""
    for left in range(0, w.shape[1], array.columns):
        for top in range(0, x.shape[0], array.rows):
            part = out[top : top + array.rows, left : left + array.columns]
            yield _output_fold(x[top : top + len(part)], w[:, left : left + part.shape[1]], part, array, counters)


def _output_fold(x: np.ndarray, w: np.ndarray, out: np.ndarray, array: Array, counters: _Counters) -> Iterator[_State]:
    rows, columns = array.rows, array.columns
    (used_rows, used_columns), steps = out.shape, x.shape[1]
    inputs, weights, sums = (np.zeros((rows, columns), out.dtype) for _ in range(3))
    input_step, weight_step = (np.full((rows, columns), EMPTY, np.int32) for _ in range(2))
    empty = np.full((rows, columns), EMPTY, np.int32)
    for cycle in range(rows + columns + steps - 2):
        counters.hops += int((input_step[:, : used_columns - 1] != EMPTY).sum())
        counters.hops += int((weight_step[: used_rows - 1] != EMPTY).sum())
        inputs[:, 1:], input_step[:, 1:] = inputs[:, :-1].copy(), input_step[:, :-1].copy()
        weights[1:], weight_step[1:] = weights[:-1].copy(), weight_step[:-1].copy()
        input_step[:, 0], weight_step[0] = EMPTY, EMPTY
        for row in range(used_rows):
            if 0 <= cycle - row < steps:
                inputs[row, 0], input_step[row, 0] = x[row, cycle - row], cycle - row
                counters.streamed += 1
        for column in range(used_columns):
            if 0 <= cycle - column < steps:
                weights[0, column], weight_step[0, column] = w[cycle - column, column], cycle - column
                counters.from_top += 1
        input_step[:, used_columns:], weight_step[used_rows:] = EMPTY, EMPTY
        busy = (input_step != EMPTY) & (weight_step != EMPTY)
        sums[busy] += inputs[busy] * weights[busy]
        step = np.where(busy, input_step, EMPTY).astype(np.int32)
        for row, column in np.argwhere(step == steps - 1):
            out[row, column] = sums[row, column]
            counters.outputs += 1
        yield _State(step, empty)
