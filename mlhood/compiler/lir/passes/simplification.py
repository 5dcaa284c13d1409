"""Simplification of programs: no dead stores, simpler instructions for single ones, and tight lifetimes."""

from __future__ import annotations

from dataclasses import replace

from mlhood.compiler.hir.names import unique_name
from mlhood.compiler.lir.instructions import Alloc, Buffer, Compute, Copy, Dealloc, Instruction, TensorView, Weight
from mlhood.compiler.lir.program import Program, with_deallocs
from mlhood.compiler.operators.movement import Concat, Transpose
from mlhood.compiler.operators.pooling import MaxPool


def eliminate_dead_stores(program: Program) -> bool:
    """Remove instructions without an effect on the outputs; return whether anything changed.

    1. instruction all of whose results are overwritten or freed before they are read  ->  nothing
    2. tensorview that no instruction names                                            ->  nothing
    3. alloc a; dealloc a, and no other instruction names a                            ->  nothing
    """
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


def simplify_instructions(program: Program) -> bool:
    """Replace single instructions by simpler ones; return whether anything changed.

    1. tensorview c = b, where tensorview b = a       ->  tensorview c = a
    2. tensorview b = a, both of one type             ->  a instead of b
    3. maxpool @out y, @out indices, never read       ->  maxpool @out y
    4. concat @out y, @in x                           ->  copy @out y, @in x
    5. transpose @out y, @in x, moves axes of 1 only  ->  tensorview x.view = x; copy @out y, @in x.view

    The pass that eliminates copies decides whether the copies of rules 4 and 5 are needed. Calls stay as they are.
    """
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


def tighten_lifetimes(program: Program) -> bool:
    """Move definitions to right before the first use, and each `dealloc` to right after the last; return if changed.

    1. alloc a; ...; first instruction that names a                    ->  ...; alloc a; that instruction
    2. tensorview a = b; ...; first instruction that names a           ->  ...; tensorview a = b; that instruction
    3. alloc a or tensorview a = b that no instruction names           ->  nothing
    4. last instruction that names a, or a view of it; ...; dealloc a  ->  that instruction; dealloc a; ...
    """
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
