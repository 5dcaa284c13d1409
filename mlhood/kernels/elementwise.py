"""Chains of element-wise operations on float32 as native calls: one loop, whatever the number of operations.

    prepare((("Add", (), (0, 1)), ("Relu", (), (2,))), shapes=[(8, 64, 56, 56), (64, 1, 1)], out_shape=(8, 64, 56, 56))

computes max(x0 + x1, 0). Every operand is read once, and only the last result is written.

The columns of the loop nest are vectorised; an operand is contiguous or broadcast along them. Where the last axis is
just one vector long, as in the blocked layout, the columns are those vectors, and an operand that is broadcast along
them stays in a register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlhood.errors import KernelError
from mlhood.kernels import loop_nest
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import Int, Pointer
from mlhood.kernels.codegen.remainder import load_first, store_first
from mlhood.kernels.codegen.steps import BINARY, OPERATIONS, Step, evaluate
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.loop_nest import broadcast_strides, collapsed, loop_values
from mlhood.kernels.native import NativeCall, native_call

_CHEAP = {"Abs", "Clip", "Constant", "LeakyRelu", "Neg", "Relu", *BINARY}
_UNROLL = 4


def prepare(
    steps: Sequence[Step], shapes: Sequence[Sequence[int]], out_shape: Sequence[int], target: Target | None = None
) -> NativeCall:
    """Return a call that evaluates a chain of operations at each element of contiguous float32 arrays.

    Its operands are "x0", "x1", ... and "out"; "out" may be the memory of an input of the same shape.

    Args:
        steps: (operation, attributes, operands): a name in `OPERATIONS`, the values of its attributes in ONNX's order,
            and the indices of its operands, where i < len(shapes) is input i and others are results of earlier steps.
            The last one's result is stored. A `Constant` has its value as attribute and no operand.
        shapes: Shapes of the inputs, which are broadcast to that of the result by NumPy's rules.
        out_shape: Shape of the result.
        target: The processor; this machine's by default.

    Raises:
        KernelError: If there is no code for an operation, or a shape does not fit.
    """
    target = target or host()
    plan = checked_steps(steps)
    dimensions = collapsed(out_shape, [broadcast_strides(shape, out_shape) for shape in (out_shape, *shapes)])
    names = operand_names(len(shapes))
    last = dimensions[-1]
    one_vector = last.size == target.lanes and len(dimensions) > 1
    if one_vector:
        dimensions = dimensions[:-1]
    columns = dimensions[-1]
    kinds = tuple(Operand(bool(v), bool(c)) for v, c in zip(last.strides, columns.strides, strict=True))[1:]
    values = loop_values(dimensions, names, target.lanes if one_vector else 1)
    kernel = jit.load(build, target, plan, kinds, one_vector)
    label = "+".join(name for name, _, _ in plan)
    return native_call(kernel, loop_nest.fields(names), values, names, name=label)


def checked_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return steps, see `prepare`, with plain attributes, as the key of the object code contains them.

    Raises:
        KernelError: If there is no code for an operation.
    """
    return tuple(map(_checked, steps))


def _checked(step: Step) -> Step:
    name, attributes, operands = step
    plain = tuple(value if isinstance(value, str | None) else float(value) for value in attributes)
    if name not in OPERATIONS:
        raise KernelError("there is no code for this operation", expected=", ".join(OPERATIONS), got=name)
    return name, plain, tuple(int(index) for index in operands)


# -- the generated code


@dataclass(frozen=True)
class Operand:
    """How an operand is read along the columns.

    Args:
        vector: Whether it is loaded as a vector; else one element goes to all lanes.
        moves: Whether it differs from column to column.
    """

    vector: bool
    moves: bool


def operand_names(inputs: int) -> tuple[str, ...]:
    """Return the names of the operands: "out", "x0", "x1", ..."""
    return "out", *(f"x{i}" for i in range(inputs))


def build(target: Target, steps: tuple[Step, ...], operands: tuple[Operand, ...], one_vector: bool) -> str:
    """Return the LLVM IR of a kernel that evaluates the steps at each element.

    Args:
        target: The processor.
        steps: (operation, attributes, indices of its operands): the inputs come first, then the results of steps.
        operands: How each input is read.
        one_vector: Whether each column is one full vector, at a distance of `_step` elements to the next.
    """
    arguments = Arguments(loop_nest.fields(operand_names(len(operands))))
    return _LoopNest(arguments, target, steps, operands, one_vector).build()


class _LoopNest:
    def __init__(
        self,
        arguments: Arguments,
        target: Target,
        steps: tuple[Step, ...],
        operands: tuple[Operand, ...],
        one_vector: bool,
    ) -> None:
        self.code, self.arguments, self.target, self.steps = arguments.code, arguments, target, steps
        self.one_vector = one_vector
        self.operands = (Operand(vector=True, moves=True), *operands)  # the result is the first
        self.names = operand_names(len(operands))
        self.rows = [arguments.integer(f"{name}_row") for name in self.names]
        self.distances = [arguments.integer(f"{name}_step") for name in self.names]
        self.lanes = target.lanes
        self.unroll = _UNROLL if all(name in _CHEAP for name, _, _ in steps) else 1

    def build(self) -> str:
        with loop_nest.blocks(self.arguments, self.names) as block, self.code.loop(*block.rows) as row:
            starts = [start.at(row * step) for start, step in zip(block.starts, self.rows, strict=True)]
            self._columns(starts, *block.columns)
        return self.arguments.finished()

    def _columns(self, starts: list[Pointer], column: Int, stop: Int) -> None:
        """Evaluate the columns of a row: several vectors at a time, single ones, and the last elements."""
        fixed = [
            None if operand.moves else self._load(start, operand)
            for start, operand in zip(starts, self.operands, strict=True)
        ]
        width = 1 if self.one_vector else self.lanes
        for vectors in sorted({self.unroll, 1}, reverse=True):
            end = column + (stop - column) // (width * vectors) * (width * vectors)
            with self.code.loop(column, end, width * vectors) as i:
                groups = [self._addresses(starts, i + v * width) for v in range(vectors)]
                inputs = [self._inputs(addresses, fixed) for addresses in groups]
                for addresses, values in zip(groups, inputs, strict=True):
                    addresses[0].store(evaluate(self.code, self.steps, values, self.lanes))
            column = end
        if not self.one_vector:
            with self.code.builder.if_then(column < stop):
                addresses, count = self._addresses(starts, column), stop - column
                values = self._inputs(addresses, fixed, count)
                store_first(
                    self.code, addresses[0], evaluate(self.code, self.steps, values, self.lanes), count, self.target
                )

    def _addresses(self, starts: list[Pointer], column: Int) -> list[Pointer]:
        if self.one_vector:
            return [start.at(column * step) for start, step in zip(starts, self.distances, strict=True)]
        return [start.at(column) for start in starts]

    def _inputs(self, addresses: list[Pointer], fixed: list[Any], count: Int | None = None) -> list[Any]:
        pairs = list(zip(addresses, self.operands, fixed, strict=True))[1:]
        return [self._load(address, operand, count) if value is None else value for address, operand, value in pairs]

    def _load(self, address: Pointer, operand: Operand, count: Int | None = None) -> Any:
        if not operand.vector:
            return self.code.splat(address.load(), self.lanes)
        if count is None:
            return address.load(self.lanes)
        return load_first(self.code, address, count, self.lanes)
