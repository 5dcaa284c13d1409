"""Caches that grow: inputs to which a program only appends rows, so that both can share memory with room for more."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mlhood.compiler.lir.instructions import Buffer, Compute, Instruction, TensorView, Weight
from mlhood.compiler.lir.program import Program
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.creation import Shape
from mlhood.compiler.operators.movement import Concat

_STEP = 64  # rows: room is a multiple of it


def growing(program: Program) -> dict[Weight, Weight]:
    """Return the outputs that are an input with rows appended, [..., rows, width], and these inputs.

    What reads the output must be attention to it, which can step over room; nothing may read the input's elements.
    """
    pairs: dict[Weight, Weight] = {}
    for instruction in program.instructions:
        if isinstance(instruction, Compute) and isinstance(instruction.operator, Concat):
            past, present = instruction.inputs[0], instruction.results[0]
            appends = instruction.operator.axis % present.type.rank == present.type.rank - 2
            if isinstance(past, Weight) and past.kind == "input" and isinstance(present, Weight) and appends:
                pairs |= {present: past} if len(instruction.inputs) == 2 else {}
    owners = program.memory()
    for instruction in program.instructions:
        if isinstance(instruction, TensorView):
            continue
        for buffer in instruction.buffers:
            for present, past in list(pairs.items()):
                if owners[buffer] in (present, past) and not _allows_room(instruction, buffer, past):
                    del pairs[present]
    return pairs


def _allows_room(instruction: Instruction, buffer: Buffer, past: Weight) -> bool:
    """Return whether an instruction can use a buffer with room: the past, or a view of the past with new rows."""
    if not isinstance(instruction, Compute):
        return False
    if isinstance(instruction.operator, Attention):
        return buffer is not past and buffer in instruction.inputs[1:3] and buffer not in instruction.inputs[::3]
    return isinstance(instruction.operator, Concat) or (buffer is past and isinstance(instruction.operator, Shape))


class GrowingCaches:
    """The memory of growing caches, by the name of the output."""

    def __init__(self) -> None:
        self.buffers: dict[str, np.ndarray] = {}
        self.used = 0

    def outputs(self, past: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
        """Return the outputs, which hold the past: that of the last run as it is, or a copy of another one.

        Args:
            past: The inputs, by the names of the outputs.
            rows: Of the outputs.
        """
        if not all(self._continues(name, array, rows) for name, array in past.items()):
            room = -(-(rows + rows // 8 + 1) // _STEP) * _STEP
            self.buffers = {name: np.empty((*x.shape[:-2], room, x.shape[-1]), x.dtype) for name, x in past.items()}
            for name, array in past.items():
                self.buffers[name][..., : array.shape[-2], :] = array
        self.used = rows
        return {name: self.buffers[name][..., :rows, :] for name in past}

    @property
    def room(self) -> int:
        """Rows that there is room for."""
        return next(iter(self.buffers.values())).shape[-2]

    def _continues(self, name: str, past: np.ndarray, rows: int) -> bool:
        buffer = self.buffers.get(name)
        if buffer is None or past.shape[-2] != self.used or rows > buffer.shape[-2]:
            return False
        whole = buffer[..., : self.used, :]
        return past.ctypes.data == whole.ctypes.data and past.shape == whole.shape and past.strides == whole.strides
