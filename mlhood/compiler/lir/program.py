"""The program: weights, which live as long as it does, and instructions, which allocate and free all other memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.lir.instructions import Alloc, Buffer, Dealloc, Instruction, TensorView, Weight
from mlhood.errors import CompilerError


class Lifetime(NamedTuple):
    """When the memory of an activation is needed.

    Args:
        name: The buffer's name.
        bytes: Its size.
        first: Number of the instruction that allocates it, counted from 0.
        last: Number of the instruction that frees it. Memory of two buffers may overlap if one's last instruction comes
            before the other's first.
    """

    name: str
    bytes: int
    first: int
    last: int


class Program:
    """Weights, and the instructions that compute the outputs from the inputs and constants.

    Passes replace `instructions`; `mlhood.compiler.lir.verify` states what always holds.
    """

    def __init__(self, name: str = "program") -> None:
        self.name = name
        self.weights: dict[str, Weight] = {}  # by the buffer's name, in the order of declaration
        self.outputs: dict[str, Weight] = {}  # by the output's name, which another buffer may have too
        self.instructions: list[Instruction] = []

    def declare_input(self, name: str, type: TensorType) -> Weight:
        """Declare an input; raise CompilerError if the name is taken."""
        return self._declare(Weight(name, type, "input"))

    def declare_constant(self, name: str, data: np.ndarray, quantization: Quantization | None = None) -> Weight:
        """Declare a constant; raise CompilerError if the name is taken."""
        view = data.view()
        view.flags.writeable = False
        return self._declare(Weight(name, TensorType(data.dtype.name, data.shape, quantization), "constant", view))

    def declare_output(self, name: str, type: TensorType, output: str | None = None) -> Weight:
        """Declare an output, called like its buffer or by another name; raise CompilerError if a name is taken."""
        output = name if output is None else output
        if output in self.outputs:
            raise CompilerError("the program has two outputs of one name", got=repr(output))
        self.outputs[output] = self._declare(Weight(name, type, "output"))
        return self.outputs[output]

    def memory(self) -> dict[Buffer, Buffer]:
        """Return for each buffer the one that owns its memory: a weight or an allocated buffer, for a view another."""
        owners: dict[Buffer, Buffer] = {weight: weight for weight in self.weights.values()}
        for instruction in self.instructions:
            if isinstance(instruction, Alloc):
                owners[instruction.buffer] = instruction.buffer
            elif isinstance(instruction, TensorView):
                owners[instruction.buffer] = owners[instruction.source]
        return owners

    def lifetimes(self) -> list[Lifetime]:
        """Return the lifetimes of the buffers that the program allocates, in this order: what a memory plan needs.

        The program must be verified.

        Raises:
            CompilerError: A buffer has a dynamic axis.
        """
        numbered = list(enumerate(self.instructions))
        freed = {instruction.buffer: i for i, instruction in numbered if isinstance(instruction, Dealloc)}
        allocated = [(i, instruction.buffer) for i, instruction in numbered if isinstance(instruction, Alloc)]
        return [Lifetime(buffer.name, buffer.bytes, first, freed[buffer]) for first, buffer in allocated]

    def copy(self) -> Program:
        """Return a copy that shares the buffers and instructions, which are immutable."""
        other = Program(self.name)
        other.weights, other.outputs = dict(self.weights), dict(self.outputs)
        other.instructions = list(self.instructions)
        return other

    def _declare(self, weight: Weight) -> Weight:
        if weight.name in self.weights:
            raise CompilerError("the names of weights must be unique", got=repr(weight.name))
        self.weights[weight.name] = weight
        return weight


def with_deallocs(instructions: list[Instruction], owners: dict[Buffer, Buffer]) -> list[Instruction]:
    """Return instructions with a `dealloc` of each allocated buffer right after the last that names it, or a view.

    Args:
        instructions: Instructions without any `dealloc`.
        owners: As `Program.memory` returns them.
    """
    last = {owners[buffer]: i for i, instruction in enumerate(instructions) for buffer in instruction.buffers}
    ends: dict[int, list[Instruction]] = {}
    for instruction in instructions:
        if isinstance(instruction, Alloc):
            ends.setdefault(last[instruction.buffer], []).append(Dealloc(instruction.buffer))
    return [each for i, instruction in enumerate(instructions) for each in (instruction, *ends.get(i, ()))]
