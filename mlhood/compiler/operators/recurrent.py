"""Recurrent layers: RNN, GRU and LSTM, as ONNX defines them.

NumPy and JAX compute them by the same code: `Recurrent.compute` takes the module of array functions, and the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mlhood.compiler.hir.lengths import may_be_equal
from mlhood.compiler.hir.operator import Operator, common_element, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter

Array = Any  # of NumPy, or of JAX
State = tuple[Array, ...]
# (step, state, inputs [T, ...] of each step) -> the last state, and the steps' results [T, ...]
Scan = Callable[[Callable[[State, tuple[Array, ...]], tuple[State, Array]], State, tuple[Array, ...]], Any]

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_FUNCTIONS: dict[str, Callable[[Any, Array], Array]] = {
    "Relu": lambda xp, x: xp.maximum(x, 0),
    "Tanh": lambda xp, x: xp.tanh(x),
    "Sigmoid": lambda xp, x: 0.5 * xp.tanh(0.5 * x) + 0.5,
}


@dataclass(frozen=True)
class Recurrent(Operator):
    """Base: a layer that steps through a sequence, with one state, or two, of H numbers.

    Inputs, with D directions (1 or 2), G gates, T steps, a batch of B, and I features: x [T, B, I], w [D, G H, I],
    r [D, G H, H], and, each of which may be left out, bias [D, 2 G H] (of w, then of r), lengths of the sequences int32
    [B], and the first state h [D, B, H]. Outputs: the states after all steps y [T, D, B, H], 0 after a sequence's end,
    and the last ones [D, B, H], 0 for a sequence of no steps.

    Attributes:
        activations: The functions of each direction in turn: Relu, Tanh or Sigmoid.
        direction: "forward", "reverse" or "bidirectional".

    Class attributes:
        gates: Number of gates G.
        defaults: The activations of one direction, if a model names none.
        states: Number of states.
    """

    activations: tuple[str, ...]
    direction: str = "forward"

    arity = (3, 6)
    family = "product"
    gates: ClassVar[int]
    defaults: ClassVar[tuple[str, ...]]
    states: ClassVar[int] = 1

    def infer(
        self,
        x: TensorType,
        w: TensorType,
        r: TensorType,
        bias: TensorType | None = None,
        lengths: TensorType | None = None,
        *rest: TensorType | None,
    ) -> tuple[TensorType, ...]:
        require_unquantized(x, w, r, bias, lengths, *rest)
        require(self.direction in _DIRECTIONS, "unknown direction", expected=list(_DIRECTIONS), got=self.direction)
        count = len(self.defaults) * len(_DIRECTIONS[self.direction])
        require(len(self.activations) == count, "wrong number of activations", expected=count, got=self.activations)
        known, names = set(self.activations) <= _FUNCTIONS.keys(), ", ".join(_FUNCTIONS)
        require(known, "unknown activation", expected=names, got=self.activations)
        element = common_element(x, w, r, bias, *rest)
        require(x.is_float, "the operator requires floating-point elements", got=element)
        require(x.rank == 3, "the input must be steps by batch by features", got=list(x.shape))
        require(r.rank == 3, "the recurrence weights must be directions by gates by units", got=list(r.shape))
        (steps, batch, features), hidden = x.shape, r.shape[2]
        require(isinstance(hidden, int), "the number of units must be known at compile time", got=hidden)
        directions, rows = len(_DIRECTIONS[self.direction]), self.gates * int(hidden)
        _require_shape("the weights", w, (directions, rows, features))
        _require_shape("the recurrence weights", r, (directions, rows, hidden))
        _require_shape("the bias", bias, (directions, 2 * rows))
        _require_shape("the lengths of the sequences", lengths, (batch,))
        for state in rest[: self.states]:
            _require_shape("the first state", state, (directions, batch, hidden))
        for peepholes in rest[self.states :]:
            _require_shape("the peepholes", peepholes, (directions, 3 * int(hidden)))
        last = TensorType(element, (directions, batch, hidden))
        return (TensorType(element, (steps, directions, batch, hidden)), *(last,) * self.states)

    def evaluate(self, *inputs: np.ndarray | None) -> tuple[np.ndarray, ...]:
        x, lengths = inputs[0], inputs[4] if len(inputs) > 4 else None
        if x is not None and lengths is not None:
            valid = bool(((lengths >= 0) & (lengths <= len(x))).all())
            require(
                valid, "a sequence cannot be longer than the input", expected=f"0 to {len(x)}", got=lengths.tolist()
            )
        return self.compute(np, _loop, *inputs)

    def compute(
        self, xp: Any, scan: Scan, x: Array, w: Array, r: Array, bias: Array = None, lengths: Array = None, *rest: Array
    ) -> State:
        """Return the outputs for arrays of a module of array functions: NumPy, or jax.numpy.

        Args:
            xp: The module.
            scan: The loop over time.
            x: The inputs, and so on, as above.
        """
        (given, peepholes), outputs = (rest[: self.states], rest[self.states :]), []
        zeros = xp.zeros((len(w), x.shape[1], r.shape[2]), x.dtype)
        states = [zeros if state is None else state for state in (*given, *(None,) * (self.states - len(given)))]
        bias = xp.zeros((len(w), 2 * w.shape[1]), x.dtype) if bias is None else bias
        for i, backward in enumerate(_DIRECTIONS[self.direction]):
            of_w, of_r = bias[i][: w.shape[1]], bias[i][w.shape[1] :]
            extra = peepholes[0][i] if peepholes and peepholes[0] is not None else None
            sums = x @ w[i].T + of_w  # the part of the gates that needs no state: one product for all steps
            count = len(self.defaults)
            functions = [partial(_FUNCTIONS[name], xp) for name in self.activations[i * count : (i + 1) * count]]
            step = partial(self.step, functions, r[i].T, of_r, extra)
            outputs.append(_direction(xp, scan, step, sums, lengths, backward, tuple(state[i] for state in states)))
        y, *last = zip(*outputs, strict=True)
        return (xp.stack(y, axis=1), *(xp.stack(state) for state in last))

    def step(
        self, functions: Sequence[Callable], r: Array, bias: Array, peepholes: Array | None, sums: Array, state: State
    ) -> State:
        """Return the state after a step of a layer of H units with G gates.

        Args:
            functions: The activations of this direction.
            r: Recurrence weights, transposed: [H, G H].
            bias: Recurrence bias [G H].
            peepholes: [3 H] or none.
            sums: What the gates get from the input and its bias: [B, G H].
            state: The state before: h [B, H], and what else there is.
        """
        raise NotImplementedError

    def workspace(self, *types: TensorType | None) -> int:
        x, w = types[:2]
        return 0 if x is None or w is None else math.prod(map(int, x.shape[:2])) * int(w.shape[1])

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(inputs[0][:2]) * (math.prod(inputs[1]) + math.prod(inputs[2]))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        names = [name, *map(writer.name, writer.node.outputs[1:])]
        hidden = writer.node.outputs[0].type.shape[3]
        return writer.emit_all(self.onnx[0], *inputs, names=names, hidden_size=hidden, **self.attributes)[0]

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> tuple[Value, ...]:
        """Import the layer; with layout 1, where the batch comes first, Transposes are added around it."""
        direction = source.attribute("direction", "forward")
        if source.attribute("clip", 0) or source.attribute("input_forget", 0):
            raise source.unsupported("limits of the activations' arguments and coupled gates are not supported")
        require(direction in _DIRECTIONS, "unknown direction", expected=list(_DIRECTIONS), got=direction)
        activations = source.attribute("activations", ()) or cls.defaults * len(_DIRECTIONS[direction])
        if cls is RNN and len(activations) > len(_DIRECTIONS[direction]):
            activations = activations[: len(_DIRECTIONS[direction])]  # ONNX's default has two for each
        linear = (bool(source.attribute("linear_before_reset", 0)),) if cls is GRU else ()
        operator = cls(activations, direction, *linear)
        inputs = list(source.inputs)
        hidden, shape = source.attribute("hidden_size", None), source.input(2).type.shape
        same = not shape or hidden in (None, shape[-1])
        require(same, "hidden_size differs from the recurrence weights", expected=list(shape), got=hidden)
        if not source.attribute("layout", 0):
            return source.add_all(operator, *inputs)
        for i in (0, *range(5, 5 + cls.states)):
            if source.has(i):
                inputs[i] = source.add(Transpose((1, 0, 2)), inputs[i])
        y, *last = source.add_all(operator, *inputs)
        return source.add(Transpose((2, 0, 1, 3)), y), *(source.add(Transpose((1, 0, 2)), state) for state in last)


def _require_shape(what: str, type: TensorType | None, shape: tuple[Dim, ...]) -> None:
    """Check the shape of an input that may be left out; a dynamic axis may have any length."""
    if type is not None:
        fits = type.rank == len(shape) and all(map(may_be_equal, type.shape, shape))
        require(
            fits, f"the shape of {what} does not match the other inputs", expected=list(shape), got=list(type.shape)
        )


def _direction(
    xp: Any, scan: Scan, step: Callable, sums: Array, lengths: Array | None, backward: bool, first: State
) -> State:
    """Return the results of all steps of one direction, and the last state."""
    order = _mirrored(xp, lengths, len(sums))[:, :, None] if backward and lengths is not None else None
    if backward:
        sums = sums[::-1] if order is None else xp.take_along_axis(sums, order, axis=0)

    def masked_step(state: State, inputs: tuple[Array, ...]) -> tuple[State, Array]:
        new = step(inputs[0], state)
        if lengths is None:
            return new, new[0]
        within = inputs[1][:, None]
        kept = tuple(xp.where(within, after, before) for after, before in zip(new, state, strict=True))
        return kept, xp.where(within, new[0], xp.zeros_like(new[0]))

    within = () if lengths is None else (xp.arange(len(sums))[:, None] < lengths,)
    last, y = scan(masked_step, first, (sums, *within))
    if lengths is not None:  # as ONNX Runtime, which the specification leaves free
        last = tuple(xp.where(lengths[:, None] > 0, state, xp.zeros_like(state)) for state in last)
    if backward:
        y = y[::-1] if order is None else xp.take_along_axis(y, order, axis=0)
    return (y, *last)


def _mirrored(xp: Any, lengths: Array, steps: int) -> Array:
    """Return which step [T, B] stands where when each sequence, not what follows its end, is reversed."""
    index = xp.arange(steps)[:, None]
    return xp.where(index < lengths, lengths - 1 - index, index)


def _loop(step: Callable, state: State, inputs: tuple[np.ndarray, ...]) -> tuple[State, np.ndarray]:
    results = np.empty((len(inputs[0]), *state[0].shape), state[0].dtype)
    for i, arrays in enumerate(zip(*inputs, strict=True)):
        state, results[i] = step(state, arrays)
    return state, results


class RNN(Recurrent):
    """h = f(x w^T + h r^T + bias) at each step; see `Recurrent`."""

    onnx = ("RNN",)
    gates = 1
    defaults = ("Tanh",)

    def step(
        self, functions: Sequence[Callable], r: Array, bias: Array, peepholes: Array | None, sums: Array, state: State
    ) -> State:
        return (functions[0](sums + state[0] @ r + bias),)


@dataclass(frozen=True)
class GRU(Recurrent):
    """h = (1 - z) g(...) + z h at each step, with gates in the order z, r, h; see `Recurrent`.

    Attributes:
        linear_before_reset: Whether the reset gate r multiplies the product with h instead of h itself.
    """

    linear_before_reset: bool = False

    onnx = ("GRU",)
    gates = 3
    defaults = ("Sigmoid", "Tanh")

    def step(
        self, functions: Sequence[Callable], r: Array, bias: Array, peepholes: Array | None, sums: Array, state: State
    ) -> State:
        (f, g), (h,), size = functions, state, 2 * state[0].shape[-1]
        gates = f(sums[:, :size] + h @ r[:, :size] + bias[:size])
        update, reset = gates[:, : size // 2], gates[:, size // 2 :]
        if self.linear_before_reset:
            product = reset * (h @ r[:, size:] + bias[size:])
        else:
            product = (reset * h) @ r[:, size:] + bias[size:]
        return ((1 - update) * g(sums[:, size:] + product) + update * h,)


class LSTM(Recurrent):
    """c = forget c + input g(...), h = output k(c) at each step; gates in the order i, o, f, c; see `Recurrent`.

    Further inputs, which may be left out: the first c [D, B, H], and peepholes [D, 3 H], by which c adds to the gates
    i, o and f. Further output: the last c.
    """

    arity = (3, 8)
    onnx = ("LSTM",)
    gates = 4
    defaults = ("Sigmoid", "Tanh", "Tanh")
    states = 2

    def step(
        self, functions: Sequence[Callable], r: Array, bias: Array, peepholes: Array | None, sums: Array, state: State
    ) -> State:
        (f, g, k), (h, c), size = functions, state, state[0].shape[-1]
        gates = sums + h @ r + bias
        i, o, forget, new = (gates[:, j * size : (j + 1) * size] for j in range(4))
        if peepholes is not None:
            i, forget = i + peepholes[:size] * c, forget + peepholes[2 * size :] * c
        c = f(forget) * c + f(i) * g(new)
        o = o if peepholes is None else o + peepholes[size : 2 * size] * c
        return f(o) * k(c), c


OPERATORS = (RNN, GRU, LSTM)
