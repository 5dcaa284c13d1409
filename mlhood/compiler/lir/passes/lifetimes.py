"""Tight lifetimes: memory is in use from its first to its last use.

1. alloc a; ...; first instruction that names a                    ->  ...; alloc a; that instruction
2. tensorview a = b; ...; first instruction that names a           ->  ...; tensorview a = b; that instruction
3. alloc a or tensorview a = b that no instruction names           ->  nothing
4. last instruction that names a, or a view of it; ...; dealloc a  ->  that instruction; dealloc a; ...
"""

from __future__ import annotations

from mlhood.compiler.lir.instructions import Alloc, Buffer, Dealloc, Instruction, TensorView
from mlhood.compiler.lir.program import Program, with_deallocs


def tighten_lifetimes(program: Program) -> bool:
    """Move definitions to right before the first use, and each `dealloc` to right after the last; return if changed."""
    pending: dict[Buffer, Alloc | TensorView] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if isinstance(instruction, Alloc | TensorView):
            pending[instruction.buffer] = instruction
        elif not isinstance(instruction, Dealloc):
            for buffer in instruction.buffers:
                instructions += _definitions(pending, buffer)
            instructions.append(instruction)
    instructions = with_deallocs(instructions, program.memory())
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
