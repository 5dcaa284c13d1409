"""Sharing of buffers: elementwise instructions work in place.

1. alloc y; elementwise @out y, @in a, ...; dealloc a  ->  elementwise @inout a, ...; use a instead of y
2. alloc a; ...; elementwise @out y, @in a; dealloc a  ->  write y instead of a; elementwise @inout y    y: an output

a is an activation that nothing uses afterwards, and y is not used before; a has the shape of y and elements of the same
size. If their types differ, one becomes a tensorview of the other.
"""

from __future__ import annotations

from mlhood.compiler.lir.instructions import Buffer, Compute, Weight
from mlhood.compiler.lir.opcodes import may_overwrite
from mlhood.compiler.lir.passes.merging import Merger
from mlhood.compiler.lir.program import Program


def share_buffers(program: Program) -> bool:
    """Let results overwrite inputs that are used for the last time; return whether anything changed."""
    merger = Merger(program)
    for number, instruction in enumerate(program.instructions):
        if isinstance(instruction, Compute) and len(instruction.results) == 1:
            _share(merger, number, instruction, instruction.results[0])
    return merger.apply()


def _share(merger: Merger, number: int, instruction: Compute, result: Buffer) -> None:
    if not merger.is_new(result, number):
        return
    free = [buffer for buffer in instruction.reads if _is_free(merger, number, instruction, result, buffer)]
    if not free:
        return
    if isinstance(result, Weight):  # rule 2
        merger.merge(merger.owner(free[0]), result)
    else:  # rule 1
        merger.merge(result, free[0], before=number)


def _is_free(merger: Merger, number: int, instruction: Compute, result: Buffer, buffer: Buffer) -> bool:
    """Return whether a result may take over the memory of an input, which the instruction may read twice."""
    if not merger.is_allocated(buffer) or merger.uses(buffer).last != number:
        return False
    in_same_memory = [other for other in instruction.reads if merger.owner(other) is merger.owner(buffer)]
    return all(may_overwrite(instruction.operator, result.type, other.type) for other in in_same_memory)
