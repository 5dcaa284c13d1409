"""Cycle-accurate simulation of the array: operands move from element to element.

It is the oracle of the closed form, for small arrays: each cycle is simulated.

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

from mlhood.dataflow.systolic.array import Array, Product, count
from mlhood.errors import DataflowError

MAX_STATES = 20_000_000  # cycles times elements: some hundred megabytes of history
EMPTY = -1
State = tuple[np.ndarray, np.ndarray]
"""`Run.step` and `Run.resident` of one cycle; [R, C] each."""


@dataclass(frozen=True)
class Run:
    """The product, and the state of every element in every cycle.

    Args:
        array: The array.
        product: [M, N], of the operands' dtype.
        step: [cycles, R, C], int32: which of the T steps an element computes, `EMPTY` if none.
        resident: [cycles, R, C], int32: row k of the stationary operand in an element ("ws", "is"), `EMPTY` if none.
        fold: [cycles], int32: index of the fold.
    """

    array: Array
    product: np.ndarray
    step: np.ndarray
    resident: np.ndarray
    fold: np.ndarray

    @property
    def cycles(self) -> int:
        """Number of cycles."""
        return len(self.fold)

    @property
    def busy(self) -> np.ndarray:
        """[cycles, R, C], bool: which elements multiply."""
        return self.step != EMPTY


def simulate(x: np.ndarray, w: np.ndarray, array: Array) -> Run:
    """Multiply [M, K] by [K, N] on an array, cycle by cycle.

    Args:
        x: [M, K], inputs: rows are windows.
        w: [K, N], weights, of the same dtype: integers or floats.
        array: The array.

    Raises:
        DataflowError: The matrices cannot be multiplied, or there are too many cycles to simulate.
    """
    x, w = np.asarray(x), np.asarray(w)
    _check(x, w, array)
    product = np.zeros((len(x), w.shape[1]), x.dtype)
    # "is" computes the transposed product: inputs are stationary, weights are streamed
    operands = (w.T, x.T, product.T) if array.dataflow == "is" else (x, w, product)
    history = [(index, *state) for index, fold in enumerate(_folds(*operands, array)) for state in fold]
    fold, step, resident = zip(*history, strict=True)
    return Run(array, product, np.stack(step), np.stack(resident), np.array(fold, np.int32))


def _check(x: np.ndarray, w: np.ndarray, array: Array) -> None:
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[0] or 0 in x.shape + w.shape or x.dtype != w.dtype:
        raise DataflowError(
            "these matrices cannot be multiplied",
            expected="[M, K] and [K, N] of one dtype, none empty",
            got=f"{list(x.shape)} {x.dtype} and {list(w.shape)} {w.dtype}",
        )
    cycles = count(Product("product", len(x), w.shape[1], len(w)), array).cycles
    if cycles * array.rows * array.columns > MAX_STATES:
        raise DataflowError(
            "the product is too large to simulate every cycle",
            expected=f"at most {MAX_STATES:,} cycles x elements",
            got=f"{cycles:,} x {array.rows * array.columns:,}",
            todo="use a smaller product, or mlhood.dataflow.systolic.count, which needs no simulation",
        )


def _folds(x: np.ndarray, w: np.ndarray, out: np.ndarray, array: Array) -> Iterator[Iterator[State]]:
    """Yield the folds of `out`[M, N] = `x`[M, K] `w`[K, N], with `w` or the sums stationary, column by column."""
    output_stationary = array.dataflow == "os"
    for left in range(0, w.shape[1], array.columns):
        across = slice(left, left + array.columns)
        for top in range(0, len(x if output_stationary else w), array.rows):
            down = slice(top, top + array.rows)
            if output_stationary:
                yield _output_fold(x[down], w[:, across], out[down, across], array)
            else:
                yield _stationary_fold(w[down, across], x[:, down], out[:, across], top, array)


def _stationary_fold(
    stationary: np.ndarray, streamed: np.ndarray, out: np.ndarray, top: int, array: Array
) -> Iterator[State]:
    (used_rows, used_columns), steps = stationary.shape, len(streamed)
    (loaded, resident), (moving, step), (sums, sum_of) = (_empty(array, out.dtype) for _ in range(3))
    for row in reversed(range(array.rows)):
        loaded[1:], resident[1:] = loaded[:-1].copy(), resident[:-1].copy()
        resident[0] = EMPTY
        if row < used_rows:
            loaded[0, :used_columns], resident[0, :used_columns] = stationary[row], top + row
        yield step.copy(), resident.copy()
    for cycle in range(array.rows + array.columns + steps - 2):
        # each element passes its operand to the right and its partial sum down
        moving[:, 1:], step[:, 1:] = moving[:, :-1].copy(), step[:, :-1].copy()
        sums[1:], sum_of[1:] = sums[:-1].copy(), sum_of[:-1].copy()
        _enter(moving[:used_rows, 0], step[:, 0], streamed.T, cycle)
        step[:, used_columns:] = EMPTY
        # row 0 starts a sum; unused rows only pass it down
        sums[0], sum_of[0] = 0, step[0]
        busy = step != EMPTY
        sums[busy] += moving[busy] * loaded[busy]
        for column in np.flatnonzero(sum_of[-1] != EMPTY):
            out[sum_of[-1, column], column] += sums[-1, column]
        yield step.copy(), resident.copy()


def _output_fold(x: np.ndarray, w: np.ndarray, out: np.ndarray, array: Array) -> Iterator[State]:
    (used_rows, used_columns), steps = out.shape, x.shape[1]
    (inputs, input_step), (weights, weight_step), (sums, resident) = (_empty(array, out.dtype) for _ in range(3))
    for cycle in range(array.rows + array.columns + steps - 2):
        inputs[:, 1:], input_step[:, 1:] = inputs[:, :-1].copy(), input_step[:, :-1].copy()
        weights[1:], weight_step[1:] = weights[:-1].copy(), weight_step[:-1].copy()
        _enter(inputs[:used_rows, 0], input_step[:, 0], x, cycle)
        _enter(weights[0, :used_columns], weight_step[0], w.T, cycle)
        step = np.where(weight_step != EMPTY, input_step, EMPTY)
        busy = step != EMPTY
        sums[busy] += inputs[busy] * weights[busy]
        complete = step[:used_rows, :used_columns] == steps - 1
        out[complete] = sums[:used_rows, :used_columns][complete]
        yield step, resident


def _empty(array: Array, dtype: np.dtype) -> State:
    """Return zeros, and which step or row they belong to: none."""
    shape = array.rows, array.columns
    return np.zeros(shape, dtype), np.full(shape, EMPTY, np.int32)


def _enter(edge: np.ndarray, step: np.ndarray, operand: np.ndarray, cycle: int) -> None:
    """Let one element of each row of an operand enter at an edge of the array, row r delayed by r cycles."""
    step[:] = EMPTY
    for row in range(len(operand)):
        if 0 <= cycle - row < operand.shape[1]:
            edge[row], step[row] = operand[row, cycle - row], cycle - row
