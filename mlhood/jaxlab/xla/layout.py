"""In which order XLA lays out the data of convolutions, and where it moves data from one order to another."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.jaxlab.xla.hlo import Array, Computation, Instruction, Module

_LETTERS = {"b": "N", "f": "C", "o": "O", "i": "I", "0": "H", "1": "W", "2": "D"}


@dataclass(frozen=True)
class Layout:
    """The order of a convolution's arrays in memory, the dimension whose neighbours lie side by side last.

    Args:
        name: The convolution's name.
        x: Of the input: NCHW, NHWC and so on.
        w: Of the weights: OIHW, HWIO and so on.
        y: Of the result.
    """

    name: str
    x: str
    w: str
    y: str


@dataclass(frozen=True)
class Move:
    """Data that are copied to another place, mostly in another order.

    Args:
        name: The instruction's name.
        where: The computation that it stands in: a fusion's, or the main one.
        opcode: copy or transpose.
        array: What arrives.
    """

    name: str
    where: str
    opcode: str
    array: Array

    @property
    def bytes(self) -> int:
        """What is read and written, each once."""
        return 2 * self.array.bytes


def convolutions(module: Module) -> list[Layout]:
    """Return the layouts of all convolutions, in the order in which they run."""
    return [
        _layout(computation, one)
        for computation, one in module.running()
        if one.opcode == "convolution" and one.attribute("dim_labels")
    ]


def _layout(computation: Computation, one: Instruction) -> Layout:
    labels = (one.attribute("dim_labels") or "").replace("->", "_").split("_")
    arrays = [computation.instructions[name].arrays[0] for name in one.operands[:2]] + [one.arrays[0]]
    return Layout(one.name, *(_order(label, array) for label, array in zip(labels, arrays, strict=True)))


def _order(labels: str, array: Array) -> str:
    return "".join(_LETTERS.get(labels[dim], "?") for dim in reversed(array.layout))


def moves(module: Module) -> list[Move]:
    """Return the copies and transposes after which data lie elsewhere, in the order in which they run.

    A transpose whose layout is turned with its dimensions leaves all data where they are and is none.
    """
    return [
        Move(one.name, computation.name, one.opcode, one.arrays[0])
        for computation, one in module.running()
        if one.opcode == "copy" or (one.opcode == "transpose" and _turns(computation, one))
    ]


def _turns(computation: Computation, one: Instruction) -> bool:
    before, after = computation.instructions[one.operands[0]].arrays[0], one.arrays[0]
    source = [int(dim) for dim in (one.attribute("dimensions") or "{}").strip("{}").split(",") if dim]
    # dimensions of the operand from outermost to innermost, before and after; of size 1, a dimension lies anywhere
    old = [dim for dim in reversed(before.layout) if before.dims[dim] > 1]
    new = [source[dim] for dim in reversed(after.layout) if after.dims[dim] > 1]
    return old != new
