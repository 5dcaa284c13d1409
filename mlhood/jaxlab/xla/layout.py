"""The memory layouts of convolutions' arrays, and the instructions by which XLA changes layouts."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.jaxlab.xla.hlo import Array, Computation, Instruction, Module

_LETTERS = {"b": "N", "f": "C", "o": "O", "i": "I", "0": "H", "1": "W", "2": "D"}


@dataclass(frozen=True)
class Layout:
    """The layouts of a convolution's arrays, the fastest-varying (contiguous) dimension last.

    Args:
        name: The convolution's name.
        x: Of the input: NCHW, NHWC and so on.
        w: Of the weights: OIHW, HWIO and so on.
        y: Of the output.
    """

    name: str
    x: str
    w: str
    y: str


@dataclass(frozen=True)
class LayoutChange:
    """A copy of an array, usually into another layout.

    Args:
        name: The instruction's name.
        computation: The name of its computation: a fusion's, or the entry computation.
        opcode: copy or transpose.
        array: The result.
    """

    name: str
    computation: str
    opcode: str
    array: Array

    @property
    def bytes(self) -> int:
        """Bytes that are read and written."""
        return 2 * self.array.bytes


def convolutions(module: Module) -> list[Layout]:
    """Return the layouts of all convolutions, in the order of execution."""
    return [
        _layout(computation, instruction)
        for computation, instruction in module.walk()
        if instruction.opcode == "convolution" and instruction.attribute("dim_labels")
    ]


def _layout(computation: Computation, convolution: Instruction) -> Layout:
    labels = (convolution.attribute("dim_labels") or "").replace("->", "_").split("_")
    operands = [computation.instructions[name].arrays[0] for name in convolution.operands[:2]]
    orders = [
        "".join(_LETTERS.get(label[dim], "?") for dim in reversed(array.layout))
        for label, array in zip(labels, [*operands, convolution.arrays[0]], strict=True)
    ]
    return Layout(convolution.name, *orders)


def layout_changes(module: Module) -> list[LayoutChange]:
    """Return the copies and transposes that move data, in the order of execution.

    A transpose whose layout is permuted along with its dimensions is a bitcast: it moves nothing and is left out.
    """
    return [
        LayoutChange(instruction.name, computation.name, instruction.opcode, instruction.arrays[0])
        for computation, instruction in module.walk()
        if instruction.opcode == "copy" or (instruction.opcode == "transpose" and _moves(computation, instruction))
    ]


def _moves(computation: Computation, transpose: Instruction) -> bool:
    before, after = computation.instructions[transpose.operands[0]].arrays[0], transpose.arrays[0]
    source = [int(dim) for dim in (transpose.attribute("dimensions") or "{}").strip("{}").split(",") if dim]
    # the operand's dimensions from outermost to innermost, before and after; one of size 1 has no place in that order
    old = [dim for dim in reversed(before.layout) if before.dims[dim] > 1]
    new = [source[dim] for dim in reversed(after.layout) if after.dims[dim] > 1]
    return old != new
