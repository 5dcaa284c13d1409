"""Peephole optimisation: simpler instructions for single ones.

1. tensorview c = b, where tensorview b = a       ->  tensorview c = a
2. tensorview b = a, both of one type             ->  a instead of b
3. maxpool @out y, @out indices, never read       ->  maxpool @out y
4. concat @out y, @in x                           ->  copy @out y, @in x
5. transpose @out y, @in x, moves axes of 1 only  ->  tensorview x.view = x; copy @out y, @in x.view

The pass that eliminates copies decides whether the copies of rules 4 and 5 are needed. Calls stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from mlhood.compiler.hir.names import unique_name
from mlhood.compiler.lir.instructions import Buffer, Compute, Copy, Instruction, TensorView, Weight
from mlhood.compiler.lir.program import Program
from mlhood.compiler.operators.movement import Concat, Transpose
from mlhood.compiler.operators.pooling import MaxPool


def simplify_instructions(program: Program) -> bool:
    """Replace single instructions by simpler ones; return whether anything changed."""
    peephole = _Peephole(program)
    instructions = [new for old in program.instructions for new in peephole.simplified(old)]
    changed = instructions != program.instructions
    program.instructions = instructions
    return changed


class _Peephole:
    """One run over a program."""

    def __init__(self, program: Program) -> None:
        owners = program.memory()
        self.owners = owners
        self.read = {owners[buffer] for instruction in program.instructions for buffer in instruction.reads}
        self.taken = {buffer.name for buffer in owners}
        self.sources: dict[Buffer, Buffer] = {}  # what a view is a view of
        self.names: dict[Buffer, Buffer] = {}  # a view to its source, where they have one type

    def simplified(self, instruction: Instruction) -> list[Instruction]:
        """Return what an instruction is replaced by."""
        instruction = instruction.renamed(lambda buffer: self.names.get(buffer, buffer))
        if isinstance(instruction, TensorView):
            return self._view(instruction)
        if not isinstance(instruction, Compute) or instruction.call:
            return [instruction]
        match instruction.operator:
            case MaxPool(indices=True) if self._is_unread(instruction.results[1]):  # rule 3
                operator = replace(instruction.operator, indices=False, column_major=False)
                return [replace(instruction, operator=operator, results=instruction.results[:1])]
            case Concat() if len(instruction.reads) == 1:  # rule 4
                return [Copy(instruction.results[0], instruction.reads[0])]
            case Transpose() as transpose:
                return self._transpose(instruction, transpose)
        return [instruction]

    def _view(self, view: TensorView) -> list[Instruction]:
        source = self.sources.get(view.source, view.source)
        if view.buffer.type == source.type:  # rule 2
            self.names[view.buffer] = source
            return []
        self.sources[view.buffer] = source
        return [TensorView(view.buffer, source)]  # rule 1

    def _transpose(self, instruction: Compute, transpose: Transpose) -> list[Instruction]:
        (x,), (y,) = instruction.reads, instruction.results
        moved = [axis for axis in transpose.permutation if x.type.shape[axis] != 1]
        if moved != sorted(moved):
            return [instruction]
        view = Buffer(unique_name(f"{x.name}.view", self.taken), y.type)  # rule 5
        return [TensorView(view, x), Copy(y, view)]

    def _is_unread(self, buffer: Buffer) -> bool:
        owner = self.owners[buffer]
        return owner not in self.read and not isinstance(owner, Weight)
