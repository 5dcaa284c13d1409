"""Elimination of copies.

1. alloc a; ...; copy @out a, @in b; use a     ->  use b                a: an activation
2. alloc b; write b; ...; copy @out y, @in b   ->  write y              y: an output, b: an activation
3. copy @out a, @in b                          ->  nothing              a and b are in the same memory

In rules 1 and 2, nothing uses a or y before the copy, and nothing writes a, y or b after it, so that both would always
hold the same. Where b is a view, its memory is merged with that of a or y.
"""

from __future__ import annotations

from mlhood.compiler.lir.instructions import Copy, Weight
from mlhood.compiler.lir.passes.merging import Merger
from mlhood.compiler.lir.program import Program


def eliminate_copies(program: Program) -> bool:
    """Remove copies by letting source and target share memory; return whether anything changed."""
    merger = Merger(program)
    for number, instruction in enumerate(program.instructions):
        if isinstance(instruction, Copy) and _merge(merger, number, instruction):
            merger.drop(number)
    return merger.apply()


def _merge(merger: Merger, number: int, copy: Copy) -> bool:
    target, source = copy.target, copy.source
    if merger.owner(target) is merger.owner(source):  # rule 3
        return True
    is_first = merger.is_new(target, number)
    if not is_first or merger.uses(target).last_write > number or merger.uses(source).last_write > number:
        return False
    if not isinstance(target, Weight):  # rule 1
        merger.merge(target, source)
        return True
    if merger.is_allocated(source):  # rule 2
        merger.merge(merger.owner(source), target)
        return True
    return False
