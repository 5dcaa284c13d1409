"""Dead store elimination.

1. instruction all of whose results are overwritten or freed before they are read  ->  nothing
2. tensorview that no instruction names                                            ->  nothing
3. alloc a; dealloc a, and no other instruction names a                            ->  nothing
"""

from __future__ import annotations

from mlhood.compiler.lir.instructions import Alloc, Buffer, Dealloc, Instruction, TensorView
from mlhood.compiler.lir.program import Program


def eliminate_dead_stores(program: Program) -> bool:
    """Remove instructions without an effect on the outputs; return whether anything changed."""
    instructions = _without_unused(_without_dead(program))
    changed = len(instructions) < len(program.instructions)
    program.instructions = instructions
    return changed


def _without_dead(program: Program) -> list[Instruction]:
    """Walk backwards with the set of memory that will be read; an instruction writes all of what it writes."""
    owners = program.memory()
    live = {owners[output] for output in program.outputs.values()}
    kept: list[Instruction] = []
    for instruction in reversed(program.instructions):
        written = {owners[buffer] for buffer in instruction.writes}
        if written and not written & live:  # rule 1
            continue
        live -= written
        live |= {owners[buffer] for buffer in instruction.reads}
        kept.append(instruction)
    return kept[::-1]


def _without_unused(instructions: list[Instruction]) -> list[Instruction]:
    named: set[Buffer] = set()
    kept: list[Instruction] = []
    for instruction in reversed(instructions):
        if isinstance(instruction, Alloc | TensorView) and instruction.buffer not in named:  # rules 2 and 3
            continue
        if not isinstance(instruction, Dealloc):
            named |= {*instruction.buffers}
        kept.append(instruction)
    return [each for each in kept[::-1] if not isinstance(each, Dealloc) or each.buffer in named]  # rule 3
