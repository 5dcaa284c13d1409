"""Attention without a Softmax: a state that each step updates takes the place of the keys and values of the past."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator, common_element, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, POSITIONAL, STAYS_FLOAT
from mlhood.compiler.operators.indexing import require_equal
from mlhood.compiler.operators.linear_attention_scan import scan_to_onnx
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter

# By the rule: whether the state decays, and whether it is corrected by what it holds already.
RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}


@dataclass(frozen=True)
class LinearAttention(Operator):
    """y = scale q^T state at each step, after state = exp(decay) state + k v^T (arXiv 2006.16236, 2412.06464).

    In a delta rule, beta (v - state^T k) takes the place of v; the state is that after the decay.

    Inputs, of T steps with the heads in the last axis: q [B, T, heads D], k [B, T, kv_heads D], v [B, T, kv_heads E],
    the state of the past [B, kv_heads, D, E] or none for zeros, decay [B, T, kv_heads] or [B, T, kv_heads D], beta [B,
    T, kv_heads] or [B, T, 1]. Outputs: y [B, T, heads E], and the state after all steps. It computes in float32.

    Attributes:
        heads: Number of heads of the queries; heads / kv_heads of them share a state.
        kv_heads: Number of heads of the keys and values.
        scale: Factor of the results.
        rule: "linear", "gated" (with decay), "delta" (with beta) or "gated_delta" (with both).
    """

    heads: int
    kv_heads: int
    scale: float
    rule: str = "gated_delta"

    arity = (3, 6)
    onnx = ("LinearAttention",)
    family = "product"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS

    def infer(
        self,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        past: TensorType | None = None,
        decay: TensorType | None = None,
        beta: TensorType | None = None,
    ) -> tuple[TensorType, TensorType]:
        require_unquantized(q, k, v, past, decay, beta)
        element = common_element(q, k, v, decay, beta)
        narrow = all(x is None or (x.is_float and x.dtype.itemsize <= 4) for x in (q, past))
        require(narrow, "the operator requires float16 or float32", got=element if past is None else past.element)
        self._check_attributes(decay is not None, beta is not None)
        ranks = [x.rank for x in (q, k, v)]
        require(ranks == [3, 3, 3], "queries, keys and values must be batch by steps by features", got=ranks)
        size, depth = _part(q.shape[2], self.heads), _part(v.shape[2], self.kv_heads)
        batch, steps = q.shape[:2]
        require_equal("the keys do not match the queries", (batch, steps, self.kv_heads * size), k.shape)
        require_equal("the values do not match the queries", (batch, steps), v.shape[:2])
        state = (batch, self.kv_heads, size, depth)
        if past is not None:
            require_equal("the state does not match the other inputs", state, past.shape)
        for gate, what, lengths in ((decay, "decay", (1, size)), (beta, "beta", (1,))):
            if gate is not None:
                allowed = {self.kv_heads * length for length in lengths} | ({1} if what == "beta" else set())
                fits = gate.rank == 3 and gate.shape[2] in allowed
                require(fits, f"the shape of {what} is wrong", expected=sorted(allowed), got=list(gate.shape))
                require_equal(f"the steps of {what} differ", (batch, steps), gate.shape[:2])
        y = TensorType(element, (batch, steps, self.heads * depth))
        return y, TensorType(element if past is None else past.element, state)

    def _check_attributes(self, decays: bool, corrects: bool) -> None:
        require(self.rule in RULES, "unknown rule of the update", expected=", ".join(RULES), got=self.rule)
        given, wanted = (decays, corrects), RULES[self.rule]
        require(given == wanted, f"rule {self.rule!r}: decay and beta must be given", expected=wanted, got=given)
        even = min(self.heads, self.kv_heads) > 0 and self.heads % self.kv_heads == 0
        require(even, "the heads cannot be shared evenly", expected=self.kv_heads, got=self.heads)

    def evaluate(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        past: np.ndarray | None = None,
        decay: np.ndarray | None = None,
        beta: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        wide, group = np.float32, self.heads // self.kv_heads
        batch, steps = q.shape[:2]
        size, depth = q.shape[2] // self.heads, v.shape[2] // self.kv_heads
        shape = (batch, self.kv_heads, size, depth)
        state = np.zeros(shape, wide) if past is None else past.astype(wide)
        queries = q.astype(wide).reshape(batch, steps, self.kv_heads, group, size)
        y = np.empty((batch, steps, self.kv_heads, group, depth), wide)
        for i in range(steps):
            column = k[:, i].astype(wide).reshape(batch, self.kv_heads, size, 1)
            row = v[:, i].astype(wide).reshape(batch, self.kv_heads, 1, depth)
            if decay is not None:
                factors = (batch, self.kv_heads, decay.shape[2] // self.kv_heads, 1)
                state = state * np.exp(decay[:, i].astype(wide)).reshape(factors)
            if beta is not None:
                row = beta[:, i].astype(wide)[:, :, None, None] * (row - column.swapaxes(2, 3) @ state)
            state = state + column * row
            y[:, i] = wide(self.scale) * (queries[:, i] @ state)
        result = np.asarray(y.reshape(batch, steps, self.heads * depth), q.dtype)
        return result, state.astype(q.dtype if past is None else past.dtype)

    def workspace(self, *types: TensorType | None) -> int:
        given = [type for type in types if type is not None]
        shapes = [type.shape for type in (*given, *self.infer(*types))]  # type: ignore[arg-type]
        factor = 2 if all(type.dtype.itemsize == 2 for type in given) else 1  # the arrays are float32
        return factor * max(math.prod(map(int, shape)) for shape in shapes)

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        size, products = inputs[0][2] // self.heads, 2 if RULES[self.rule][1] else 1
        return inputs[0][1] * size * (math.prod(inputs[2]) // max(inputs[2][1], 1) * products + output[0] * output[2])

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        """Export a Scan, since the opsets that are written do not have the operator yet."""
        return scan_to_onnx(writer, self.heads, self.kv_heads, self.scale, inputs, name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> tuple[Value, ...]:
        heads, kv_heads = source.attribute("q_num_heads", 0), source.attribute("kv_num_heads", 0)
        scale, width = source.attribute("scale", 0.0), source.input(0).type.shape[-1]
        require(heads > 0, "the number of heads must be positive", got=heads)
        if not scale:
            scale = 1 / math.sqrt(max(_part(width, heads), 1))
        operator = cls(heads, kv_heads, scale, source.attribute("update_rule", "gated_delta"))
        return source.add_all(operator, *source.inputs)


def _part(width: Dim, heads: int) -> int:
    """Return the features of one of the heads in an axis."""
    fits = isinstance(width, int) and width % heads == 0
    require(fits, "the features cannot be split into heads", expected=f"{heads} heads", got=width)
    return int(width) // heads


OPERATORS = (LinearAttention,)
