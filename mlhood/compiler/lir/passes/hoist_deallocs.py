"""Hoisting of deallocations, so that memory is in use for a shorter time.

1. last instruction that names a, or a view of it; ...; dealloc a  ->  that instruction; dealloc a; ...
"""

from __future__ import annotations

from mlhood.compiler.lir.instructions import Dealloc
from mlhood.compiler.lir.program import Program, with_deallocs


def hoist_deallocs(program: Program) -> bool:
    """Move each `dealloc` to right after the last use; return whether anything changed."""
    others = [instruction for instruction in program.instructions if not isinstance(instruction, Dealloc)]
    instructions = with_deallocs(others, program.memory())
    changed = instructions != program.instructions
    program.instructions = instructions
    return changed
