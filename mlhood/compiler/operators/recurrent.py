"""Recurrent layers: RNN, GRU and LSTM, as ONNX defines them.

NumPy and JAX compute them by the same code: `Recurrent.compute` takes the module of array functions, and the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mlhood.compiler.hir.lengths import may_be_equal
from mlhood.compiler.hir.operator import Operator, common_element, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.recurrent_activations import (
    Activation,
    activations_from_onnx,
    activations_to_onnx,
    check_activations,
    function_of,
)

Array = Any  # of NumPy, or of JAX
State = tuple[Array, ...]
Functions = Sequence[Callable[[Array], Array]]
# (step, state, inputs [T, ...] of each step) -> the last state, and the steps' results [T, ...]
Scan = Callable[[Callable[[State, tuple[Array, ...]], tuple[State, Array]], State, tuple[Array, ...]], Any]

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Parameters:
    """The arrays of one direction of a layer of H units with G gates.

    Args:
        r: Recurrence weights, transposed: [H, G H].
        bias: Recurrence bias [G H] or a number.
        peepholes: [3 H] or none.
    """

    r: Array
    bias: Array
    peepholes: Array | None


@dataclass(frozen=True)
class Recurrent(Operator):
    """Base: a layer that steps through a sequence, with one state, or two, of H numbers.

    Inputs, with D directions (1 or 2), G gates, T steps, a batch of B, and I features: x [T, B, I], w [D, G H, I],
    r [D, G H, H], and, each of which may be left out, bias [D, 2 G H] (of w, then of r), lengths of the sequences int32
    [B], and the first state h [D, B, H]. Outputs: the states after all steps y [T, D, B, H], 0 after a sequence's end,
    and the last ones [D, B, H], 0 for a sequence of no steps.

    Attributes:
        activations: The functions of each direction in turn, with their parameters: ("Tanh",), ("LeakyRelu", 0.1).
        direction: "forward", "reverse" or "bidirectional".
        clip: The arguments of the activations are clipped to [-clip, clip]; None for no limit.

    Class attributes:
        gates: Number of gates G.
        defaults: The activations of one direction, if a model names none.
        states: Number of states.
    """

    activations: tuple[Activation, ...]
    direction: str = "forward"
    clip: float | None = None

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
        check_activations(self.activations, len(self.defaults) * len(_DIRECTIONS[self.direction]))
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
        for i, backward in enumerate(_DIRECTIONS[self.direction]):
            of_w, of_r = (0, 0) if bias is None else (bias[i][: w.shape[1]], bias[i][w.shape[1] :])
            extra = peepholes[0][i] if peepholes and peepholes[0] is not None else None
            parameters = Parameters(r[i].T, of_r, extra)
            sums = x @ w[i].T + of_w  # the part of the gates that needs no state: one product for all steps
            first = tuple(state[i] for state in states)
            outputs.append(self._direction(xp, scan, i, sums, parameters, lengths, backward, first))
        y, *last = zip(*outputs, strict=True)
        return (xp.stack(y, axis=1), *(xp.stack(state) for state in last))

    def _direction(
        self,
        xp: Any,
        scan: Scan,
        index: int,
        sums: Array,
        parameters: Parameters,
        lengths: Array | None,
        backward: bool,
        first: State,
    ) -> State:
        count = len(self.defaults)
        functions = [function_of(xp, self.activations[index * count + i]) for i in range(count)]
        order = _mirrored(xp, lengths, len(sums))[:, :, None] if backward and lengths is not None else None
        if backward:
            sums = sums[::-1] if order is None else xp.take_along_axis(sums, order, axis=0)

        def step(state: State, inputs: tuple[Array, ...]) -> tuple[State, Array]:
            new = self.step(xp, functions, inputs[0], state, parameters)
            if lengths is None:
                return new, new[0]
            within = inputs[1][:, None]
            kept = tuple(xp.where(within, after, before) for after, before in zip(new, state, strict=True))
            return kept, xp.where(within, new[0], xp.zeros_like(new[0]))

        within = () if lengths is None else (xp.arange(len(sums))[:, None] < lengths,)
        last, y = scan(step, first, (sums, *within))
        if lengths is not None:  # as ONNX Runtime, which the specification leaves free
            last = tuple(xp.where(lengths[:, None] > 0, state, xp.zeros_like(state)) for state in last)
        if backward:
            y = y[::-1] if order is None else xp.take_along_axis(y, order, axis=0)
        return (y, *last)

    def step(self, xp: Any, functions: Sequence[Callable], sums: Array, state: State, parameters: Parameters) -> State:
        """Return the state after a step.

        Args:
            xp: The module of array functions.
            functions: The activations of this direction.
            sums: What the gates get from the input and its bias: [B, G H].
            state: The state before: h [B, H], and what else there is.
            parameters: The direction's parameters.
        """
        raise NotImplementedError

    def clipped(self, xp: Any, x: Array) -> Array:
        """Return the argument of an activation within its limits."""
        return x if self.clip is None else xp.clip(x, -self.clip, self.clip)

    def workspace(self, *types: TensorType | None) -> int:
        x, w = types[:2]
        return 0 if x is None or w is None else math.prod(map(int, x.shape[:2])) * int(w.shape[1])

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(inputs[0][:2]) * (math.prod(inputs[1]) + math.prod(inputs[2]))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        names = [name, *map(writer.name, writer.node.outputs[1:])]
        hidden = writer.node.outputs[0].type.shape[3]
        common = {"direction": self.direction, "clip": self.clip, "hidden_size": hidden}
        options = {**common, **activations_to_onnx(self.activations), **self.onnx_options()}
        return writer.emit_all(self.onnx[0], *inputs, names=names, **options)[0]

    def onnx_options(self) -> dict[str, int]:
        """Return the attributes of ONNX's operator that only this one has."""
        return {}

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> tuple[Value, ...]:
        """Import the layer; with layout 1, where the batch comes first, Transposes are added around it."""
        direction, clip = source.attribute("direction", "forward"), source.attribute("clip", None)
        require(direction in _DIRECTIONS, "unknown direction", expected=list(_DIRECTIONS), got=direction)
        activations = activations_from_onnx(source, cls.defaults, len(_DIRECTIONS[direction]))
        operator = cls(activations, direction, clip or None, *cls.options(source))
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

    @classmethod
    def options(cls, source: OnnxNode) -> tuple[bool, ...]:
        """Return the attributes that only this operator has, from an ONNX node."""
        return ()


def _require_shape(what: str, type: TensorType | None, shape: tuple[Dim, ...]) -> None:
    """Check the shape of an input that may be left out; a dynamic axis may have any length."""
    if type is not None:
        fits = type.rank == len(shape) and all(map(may_be_equal, type.shape, shape))
        require(
            fits, f"the shape of {what} does not match the other inputs", expected=list(shape), got=list(type.shape)
        )


def _mirrored(xp: Any, lengths: Array, steps: int) -> Array:
    """Return which step [T, B] stands where when each sequence, not what follows its end, is reversed."""
    index = xp.arange(steps)[:, None]
    return xp.where(index < lengths, lengths - 1 - index, index)


def _loop(step: Callable, state: State, inputs: tuple[np.ndarray, ...]) -> tuple[State, np.ndarray]:
    results = np.empty((len(inputs[0]), *state[0].shape), state[0].dtype)
    for i, arrays in enumerate(zip(*inputs, strict=True)):
        state, results[i] = step(state, arrays)
    return state, results


@dataclass(frozen=True)
class RNN(Recurrent):
    """h = f(x w^T + h r^T + bias) at each step; see `Recurrent`."""

    onnx = ("RNN",)
    gates = 1
    defaults = ("Tanh",)

    def step(self, xp: Any, functions: Sequence[Callable], sums: Array, state: State, parameters: Parameters) -> State:
        return (functions[0](self.clipped(xp, sums + state[0] @ parameters.r + parameters.bias)),)


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

    def step(self, xp: Any, functions: Sequence[Callable], sums: Array, state: State, parameters: Parameters) -> State:
        (f, g), (h,), r, size = functions, state, parameters.r, 2 * state[0].shape[-1]
        bias = np.zeros(r.shape[1], h.dtype) if isinstance(parameters.bias, int) else parameters.bias
        gates = f(self.clipped(xp, sums[:, :size] + h @ r[:, :size] + bias[:size]))
        update, reset = gates[:, : size // 2], gates[:, size // 2 :]
        if self.linear_before_reset:
            product = reset * (h @ r[:, size:] + bias[size:])
        else:
            product = (reset * h) @ r[:, size:] + bias[size:]
        return ((1 - update) * g(self.clipped(xp, sums[:, size:] + product)) + update * h,)

    def onnx_options(self) -> dict[str, int]:
        return {"linear_before_reset": int(self.linear_before_reset)}

    @classmethod
    def options(cls, source: OnnxNode) -> tuple[bool, ...]:
        return (bool(source.attribute("linear_before_reset", 0)),)


@dataclass(frozen=True)
class LSTM(Recurrent):
    """c = forget c + input g(...), h = output k(c) at each step; gates in the order i, o, f, c; see `Recurrent`.

    Further inputs, which may be left out: the first c [D, B, H], and peepholes [D, 3 H], by which c adds to the gates
    i, o and f. Further output: the last c.

    Attributes:
        input_forget: Whether the forget gate is 1 - i.
    """

    input_forget: bool = False

    arity = (3, 8)
    onnx = ("LSTM",)
    gates = 4
    defaults = ("Sigmoid", "Tanh", "Tanh")
    states = 2

    def step(self, xp: Any, functions: Sequence[Callable], sums: Array, state: State, parameters: Parameters) -> State:
        (f, g, k), (h, c), size = functions, state, state[0].shape[-1]
        gates = sums + h @ parameters.r + parameters.bias
        i, o, forget, new = (gates[:, j * size : (j + 1) * size] for j in range(4))
        peepholes = parameters.peepholes
        if peepholes is not None:
            i, forget = i + peepholes[:size] * c, forget + peepholes[2 * size :] * c
        i = f(self.clipped(xp, i))
        forget = 1 - i if self.input_forget else f(self.clipped(xp, forget))
        c = forget * c + i * g(self.clipped(xp, new))
        if peepholes is not None:
            o = o + peepholes[size : 2 * size] * c
        return f(self.clipped(xp, o)) * k(c), c

    def onnx_options(self) -> dict[str, int]:
        return {"input_forget": int(self.input_forget)}

    @classmethod
    def options(cls, source: OnnxNode) -> tuple[bool, ...]:
        return (bool(source.attribute("input_forget", 0)),)


OPERATORS = (RNN, GRU, LSTM)
