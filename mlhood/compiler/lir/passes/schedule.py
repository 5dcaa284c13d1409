"""Scheduling: another order of the instructions, in which less memory is live at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mlhood.compiler.lir.instructions import Alloc, Buffer, Dealloc, Instruction, TensorView, Weight
from mlhood.compiler.lir.passes.simplification import tighten_lifetimes
from mlhood.compiler.lir.program import Program

MAX_INSTRUCTIONS = 10_000  # the time grows with their number times how many are ready at once


def schedule_instructions(program: Program) -> bool:
    """Reorder the instructions if that lowers the maximum of the live bytes; return whether anything changed.

    1. a; b  ->  b; a    where b does not depend on a, and the maximum of the live bytes falls

    The next instruction is always the one, of those whose inputs are ready, after which the least is live: it frees
    more than it allocates. The order is only changed if that lowers the maximum over the whole program. (To find the
    best order is NP-complete: Sethi, Complete Register Allocation Problems, SIAM Journal on Computing 4(3), 1975.) A
    dynamic axis counts as one element.
    """
    work = [each for each in program.instructions if not isinstance(each, Alloc | Dealloc | TensorView)]
    if len(work) > MAX_INSTRUCTIONS:
        return False
    memory = _Memory(program, work)
    order = _greedy(memory, _dependencies(memory))
    if memory.peak(order) >= memory.peak(range(len(work))):
        return False
    definitions = [each for each in program.instructions if isinstance(each, Alloc | TensorView)]
    program.instructions = [*definitions, *(work[i] for i in order)]
    tighten_lifetimes(program)
    return True


class _Memory:
    """Which activations each instruction uses, and their sizes."""

    def __init__(self, program: Program, work: Sequence[Instruction]) -> None:
        owners = program.memory()
        self.reads = [{owners[buffer] for buffer in each.reads} for each in work]
        self.writes = [{owners[buffer] for buffer in each.writes} for each in work]
        self.used = [
            [owner for owner in reads | writes if not isinstance(owner, Weight)]
            for reads, writes in zip(self.reads, self.writes, strict=True)
        ]
        self.users: dict[Buffer, int] = defaultdict(int)
        for owner in (owner for owners_used in self.used for owner in owners_used):
            self.users[owner] += 1
        self.sizes = {owner: _size(owner) for owner in self.users}

    def peak(self, order: Iterable[int]) -> int:
        """Return the maximum of the live bytes, if memory is live from its first to its last use."""
        state = _Live(self)
        for i in order:
            state.execute(i)
        return state.peak


class _Live:
    """The live memory while instructions are executed."""

    def __init__(self, memory: _Memory) -> None:
        self.memory = memory
        self.left = dict(memory.users)  # uses to come
        self.live: set[Buffer] = set()
        self.bytes = self.peak = 0

    def effect(self, i: int) -> tuple[int, int]:
        """Return the live bytes during an instruction, and after it."""
        sizes, used = self.memory.sizes, self.memory.used[i]
        during = self.bytes + sum(sizes[owner] for owner in used if owner not in self.live)
        return during, during - sum(sizes[owner] for owner in used if self.left[owner] == 1)

    def execute(self, i: int) -> None:
        """Execute an instruction."""
        during, self.bytes = self.effect(i)
        self.peak = max(self.peak, during)
        for owner in self.memory.used[i]:
            self.left[owner] -= 1
            (self.live.add if self.left[owner] else self.live.discard)(owner)


def _dependencies(memory: _Memory) -> list[set[int]]:
    """Return for each instruction those before it that use the memory it writes, or write the memory it uses."""
    last_write: dict[Buffer, int] = {}
    readers: dict[Buffer, list[int]] = defaultdict(list)
    before: list[set[int]] = []
    for i, (reads, writes) in enumerate(zip(memory.reads, memory.writes, strict=True)):
        needed = {last_write[owner] for owner in reads | writes if owner in last_write}
        needed |= {reader for owner in writes for reader in readers[owner]}
        for owner in writes:
            last_write[owner], readers[owner] = i, []
        for owner in reads:
            readers[owner].append(i)
        before.append(needed - {i})
    return before


def _greedy(memory: _Memory, before: list[set[int]]) -> list[int]:
    """Return an order that always continues with the instruction after which the least is live."""
    after: dict[int, list[int]] = defaultdict(list)
    for i, needed in enumerate(before):
        for other in needed:
            after[other].append(i)
    missing = [len(needed) for needed in before]
    ready = {i for i, count in enumerate(missing) if not count}
    state, order = _Live(memory), []
    while ready:
        best = min(ready, key=lambda i: (max(state.peak, state.effect(i)[0]), state.effect(i)[1], i))
        state.execute(best)
        order.append(best)
        ready.discard(best)
        for i in after[best]:
            missing[i] -= 1
            if not missing[i]:
                ready.add(i)
    return order


def _size(buffer: Buffer) -> int:
    return buffer.type.dtype.itemsize * math.prod(1 if isinstance(axis, str) else axis for axis in buffer.type.shape)
