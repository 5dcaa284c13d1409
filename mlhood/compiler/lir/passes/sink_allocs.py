"""Sinking of allocations, so that memory is in use for a shorter time.

1. alloc a; ...; first instruction that names a           ->  ...; alloc a; that instruction
2. tensorview a = b; ...; first instruction that names a  ->  ...; tensorview a = b; that instruction
3. tensorview a = b that no instruction names             ->  nothing
"""

from __future__ import annotations

from mlhood.compiler.lir.instructions import Alloc, Buffer, Instruction, TensorView
from mlhood.compiler.lir.program import Program


def sink_allocs(program: Program) -> bool:
    """Move each `alloc` and `tensorview` to right before the first use; return whether anything changed."""
    pending: dict[Buffer, Alloc | TensorView] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if isinstance(instruction, Alloc | TensorView):
            pending[instruction.buffer] = instruction
            continue
        for buffer in instruction.buffers:
            instructions += _definitions(pending, buffer)
        instructions.append(instruction)
    changed = instructions != program.instructions
    program.instructions = instructions
    return changed


def _definitions(pending: dict[Buffer, Alloc | TensorView], buffer: Buffer) -> list[Instruction]:
    """Return what defines a buffer and is still to be inserted: views, after what they are views of."""
    definitions: list[Instruction] = []
    while buffer in pending:
        definition = pending.pop(buffer)
        definitions.insert(0, definition)
        buffer = definition.source if isinstance(definition, TensorView) else buffer
    return definitions
