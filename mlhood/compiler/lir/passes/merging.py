"""Merging of buffers, so that they share memory: elementwise instructions work in place, and copies disappear."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from mlhood.compiler.lir.instructions import (
    Alloc,
    Buffer,
    Compute,
    Copy,
    Dealloc,
    Instruction,
    TensorView,
    Weight,
    may_overwrite,
)
from mlhood.compiler.lir.program import Program


@dataclass
class Uses:
    """When memory is used, by numbers of instructions; `alloc` and `dealloc` are no uses.

    Args:
        first: The first instruction that names it, or a view of it; beyond the last instruction if there is none.
        last: The last one; -1 if there is none.
        last_write: The last one that writes it; -1 if there is none.
    """

    first: int
    last: int = -1
    last_write: int = -1

    def add(self, other: Uses) -> None:
        """Add the uses of memory that is merged into this one."""
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self.last_write = max(self.last_write, other.last_write)


class Merger:
    """Collects merges, then rewrites the program once, so that any number of merges takes linear time.

    While merges are collected, the numbers of instructions are those of the program as it is.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._owners = program.memory()
        self._merged: dict[Buffer, Buffer] = {}  # an owner to another owner, whose memory it shares
        self._names: dict[Buffer, Buffer] = {}  # a merged buffer to one of the same type in that memory
        self._views: dict[int, list[TensorView]] = defaultdict(list)  # to insert before an instruction
        self._dropped: set[int] = set()
        self._allocs: dict[Buffer, int] = {}
        self._uses: dict[Buffer, Uses] = defaultdict(lambda: Uses(len(program.instructions)))
        for number, instruction in enumerate(program.instructions):
            self._count(number, instruction)

    def owner(self, buffer: Buffer) -> Buffer:
        """Return the buffer that owns a buffer's memory, after the merges so far."""
        owner = self._owners[buffer]
        while owner in self._merged:
            owner = self._merged[owner]
        return owner

    def uses(self, buffer: Buffer) -> Uses:
        """Return the uses of a buffer's memory, after the merges so far."""
        return self._uses[self.owner(buffer)]

    def is_allocated(self, buffer: Buffer) -> bool:
        """Return whether a buffer's memory is that of an activation, after the merges so far."""
        return not isinstance(self.owner(buffer), Weight)

    def is_new(self, buffer: Buffer, number: int) -> bool:
        """Return whether an instruction is the first to use a buffer's memory, and the buffer owns it."""
        return self.owner(buffer) is buffer and self.uses(buffer).first == number

    def merge(self, old: Buffer, new: Buffer, before: int | None = None) -> None:
        """Let an allocated buffer share the memory of another buffer, of as many bytes.

        Args:
            old: It owns its memory; not merged yet.
            new: The buffer in whose memory it is from now on.
            before: The instruction before which `new` is defined and `old` is not used; by default that which allocates
                `old`.
        """
        owner = self.owner(new)
        if old.type == new.type:
            self._names[old] = self._resolve(new)
        else:
            self._views[self._allocs[old] if before is None else before].append(TensorView(old, new))
        self._merged[old] = owner
        self._uses[owner].add(self._uses[old])

    def drop(self, number: int) -> None:
        """Remove an instruction."""
        self._dropped.add(number)

    def apply(self) -> bool:
        """Rewrite the program; return whether it changed."""
        ends: dict[Buffer, int] = {}
        for number, instruction in enumerate(self.program.instructions):
            if isinstance(instruction, Dealloc):
                ends[self.owner(instruction.buffer)] = number
        instructions: list[Instruction] = []
        for number, instruction in enumerate(self.program.instructions):
            instructions += [view.renamed(self._resolve) for view in self._views.get(number, ())]
            instructions += self._rewritten(number, instruction, ends)
        self.program.instructions = instructions
        return bool(self._merged or self._dropped)

    def _rewritten(self, number: int, instruction: Instruction, ends: dict[Buffer, int]) -> list[Instruction]:
        if number in self._dropped or (isinstance(instruction, Alloc) and instruction.buffer in self._merged):
            return []
        if not isinstance(instruction, Dealloc):
            return [instruction.renamed(self._resolve)]
        owner = self.owner(instruction.buffer)  # freed where the last of the merged buffers was
        return [] if isinstance(owner, Weight) or ends[owner] != number else [Dealloc(owner)]

    def _resolve(self, buffer: Buffer) -> Buffer:
        while buffer in self._names:
            buffer = self._names[buffer]
        return buffer

    def _count(self, number: int, instruction: Instruction) -> None:
        if isinstance(instruction, Alloc):
            self._allocs[instruction.buffer] = number
        elif not isinstance(instruction, Dealloc):
            for buffer in instruction.buffers:
                self._uses[self._owners[buffer]].add(Uses(number, number))
            for buffer in instruction.writes:
                self._uses[self._owners[buffer]].last_write = number


def share_buffers(program: Program) -> bool:
    """Let results overwrite inputs that are used for the last time; return whether anything changed.

    1. alloc y; elementwise @out y, @in a, ...; dealloc a  ->  elementwise @inout a, ...; use a instead of y
    2. alloc a; ...; elementwise @out y, @in a; dealloc a  ->  write y instead of a; elementwise @inout y   y: an output

    a is an activation that nothing uses afterwards, y is not used before, and a has the shape of y and elements of the
    same size; if their types differ, one becomes a tensorview of the other.
    """
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


def eliminate_copies(program: Program) -> bool:
    """Remove copies by letting source and target share memory; return whether anything changed.

    1. alloc a; ...; copy @out a, @in b; use a     ->  use b                a: an activation
    2. alloc b; write b; ...; copy @out y, @in b   ->  write y              y: an output, b: an activation
    3. copy @out a, @in b                          ->  nothing              a and b are in the same memory

    Nothing uses a or y before the copy, and nothing writes a, y or b after it, so that both would always hold the same;
    where b is a view, its memory is merged with that of a or y.
    """
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
