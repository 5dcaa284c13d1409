"""A program as native code: every instruction's kernels in one sequence, every buffer at an address of one arena."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from mlhood.compiler.backends.cpu.machine import CpuSetup, Selection, constant, shape
from mlhood.compiler.backends.cpu.selection import select
from mlhood.compiler.hir.operator import as_tuple, footprint, located
from mlhood.compiler.lir.instructions import Buffer, Compute, Copy, Instruction, Weight
from mlhood.compiler.lir.program import Lifetime, Program
from mlhood.compiler.lir.text import instruction_text
from mlhood.compiler.memory.plan import ALIGNMENT, plan
from mlhood.errors import CompilerError
from mlhood.kernels.native import KernelSequence, NativeCall
from mlhood.kernels.parallel import data_address

_UNUSED = 3  # references to an array: by the program, by a local name, and by the call that counts them
_Alike = tuple[tuple[Buffer | None, ...], Selection | None]  # the buffers of an instruction, and what was selected
MAX_BYTES = 2**32  # of the arena, and of a temporary array of an operator that the interpreter computes


class NativeStep(NamedTuple):
    """An instruction that computes something.

    Args:
        number: Of the instruction in the program.
        instruction: The instruction.
        selection: Its native calls; None if the interpreter computes it.
        first: Number of its first call in the sequence.
    """

    number: int
    instruction: Instruction
    selection: Selection | None
    first: int

    @property
    def last(self) -> int:
        """Number of the call after its last one."""
        return self.first + (len(self.selection.calls) if self.selection else 0)

    @property
    def kernel(self) -> str:
        """What computes it, for reports."""
        if self.selection is None:
            return "copy" if isinstance(self.instruction, Copy) else "interpreter"
        return self.selection.calls[-1].name.split()[0]


class NativeProgram:
    """A program, prepared for execution.

    Args:
        program: A verified program without dynamic axes.
        machine: What it is prepared for.
        buffers: The buffer of each value of the graph by name, if a run is to be observed.
        guard: Bytes between any two buffers, which then share no memory: for tests, which find there what a kernel
            writes out of bounds.
        like: A program for the same machine; the kernels of the instructions that it shares with this one are its own.

    Raises:
        CompilerError: It needs more memory than the limit.
    """

    def __init__(
        self,
        program: Program,
        machine: CpuSetup,
        buffers: Mapping[str, Buffer] | None = None,
        guard: int = 0,
        like: NativeProgram | None = None,
    ) -> None:
        self.program, self.machine, self.buffers, self.guard = program, machine, buffers or {}, guard
        self.steps = _steps(program, machine, like.steps if like else ())
        self.plan = plan(self._lifetimes())
        outputs = sum(weight.bytes for weight in program.outputs.values())
        _check_memory(self.plan.bytes + outputs, program.name)
        self._owners = program.memory()
        self._arena = np.empty(self.plan.bytes + ALIGNMENT, np.uint8)
        self._base = self._arena.ctypes.data + -self._arena.ctypes.data % ALIGNMENT
        self.sequence = KernelSequence(_calls(self.steps), machine.threads, machine.target)
        self._patches: dict[Weight, list[int]] = {}
        self._nonfinite = np.zeros(1, np.int64)
        self._copies: dict[Weight, np.ndarray] = {}
        self._write_addresses()
        self.threads_wanted = machine.threads  # by who runs it; a small program has fewer
        weights = program.weights.values()
        self._inputs, self._outputs = (
            [(weight, self._patches.get(weight, ())) for weight in weights if weight.kind == kind]
            for kind in ("input", "output")
        )
        self.inputs = [(weight.name, weight.type.dtype, shape(weight)) for weight, _ in self._inputs]
        self._result_types = {weight: (shape(weight), weight.type.dtype) for weight, _ in self._outputs}
        self._results: dict[Weight, np.ndarray] = {}  # of the last run
        self.segments = tuple(self._merge_steps())

    def _lifetimes(self) -> list[Lifetime]:
        lifetimes = self.program.lifetimes()
        for step in self.steps:
            for name, size in (step.selection.workspace if step.selection else {}).items():
                lifetimes.append(Lifetime(_workspace(step, name), size, step.number, step.number))
        if self.guard:
            end = len(self.program.instructions)
            lifetimes = [Lifetime(buffer.name, buffer.bytes + self.guard, 0, end) for buffer in lifetimes]
        return lifetimes

    @property
    def arena(self) -> np.ndarray:
        """The memory of all activations and workspaces: uint8, aligned to a cache line."""
        start = self._base - self._arena.ctypes.data
        return self._arena[start : start + self.plan.bytes]

    # -- addresses

    def _write_addresses(self) -> None:
        for step in self.steps:
            for i, call in enumerate(step.selection.calls if step.selection else ()):
                self._write_call(step, step.first + i, call)

    def _write_call(self, step: NativeStep, number: int, call: NativeCall) -> None:
        operands = step.selection.operands if step.selection else {}
        for name in call.operands:
            word = self.sequence.word(number, name)
            if name in operands:
                owner = self._owners[operands[name]]
                if isinstance(owner, Weight) and owner.kind != "constant":
                    self._patches.setdefault(owner, []).append(word)
                else:
                    self.sequence.words[word] = self._address(owner)
            elif name == "nonfinite":
                self.sequence.words[word] = self._nonfinite.ctypes.data
            elif (workspace := _workspace(step, name)) in self.plan.offsets:
                self.sequence.words[word] = self._base + self.plan.offsets[workspace]

    def _address(self, owner: Buffer) -> int:
        if isinstance(owner, Weight) and owner.data is not None:
            if owner.data.flags.c_contiguous:
                return owner.data.ctypes.data
            # such as the view that an Expand gives; kernels read the elements one after another
            copy = self._copies.setdefault(owner, np.ascontiguousarray(owner.data))
            return copy.ctypes.data
        return self._base + self.plan.offsets[owner.name]

    def _merge_steps(self) -> Iterator[tuple[int, int] | NativeStep]:
        """Yield ranges of calls that run in one native call, and steps that the interpreter computes in between."""
        first = 0
        for step in self.steps:
            if step.selection is None:
                if first < step.first:
                    yield first, step.first
                yield step
                first = step.first
        if first < len(self.sequence.calls):
            yield first, len(self.sequence.calls)

    # -- execution

    def run(
        self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """Run the program once; not from two threads at a time.

        Args:
            inputs: A contiguous array for each input, of its type.
            outputs: Memory for outputs, by the names of their buffers; by default it is allocated.

        Returns:
            The outputs by name, as new arrays; invalid if `is_invalid` is true afterwards.
        """
        arrays = self.bind(inputs, outputs or {})
        for segment in self.segments:
            if isinstance(segment, NativeStep):
                self.interpret(segment, arrays)
            else:
                self.sequence.run(*segment)
        return {name: arrays[weight] for name, weight in self.program.outputs.items()}

    @property
    def is_invalid(self) -> bool:
        """Whether a number in the last run was not finite where the program needs finite ones to be exact."""
        return self._nonfinite[0] != 0

    def bind(
        self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> dict[Weight, np.ndarray]:
        """Return arrays for inputs and outputs, whose addresses are written into the argument blocks.

        An output of the last run that nobody holds any more is used again.
        """
        arrays, words = {}, self.sequence.words
        self._nonfinite[0] = 0
        for weight, places in self._inputs:
            arrays[weight] = array = inputs[weight.name]
            address = data_address(array)
            for place in places:
                words[place] = address
        for weight, places in self._outputs:
            array = outputs.get(weight.name, self._results.get(weight))
            if array is None or (weight.name not in outputs and sys.getrefcount(array) > _UNUSED):
                # memory that is not new: the system would fill new pages with zeros first
                self._results[weight] = array = np.empty(*self._result_types[weight])
            arrays[weight] = array
            address = data_address(array)
            for place in places:
                words[place] = address
        return arrays

    def run_step(self, step: NativeStep, arrays: Mapping[Weight, np.ndarray]) -> None:
        """Run one step; those before it must have run."""
        if step.selection is None:
            self.interpret(step, arrays)
        else:
            self.sequence.run(step.first, step.last)

    def interpret(self, step: NativeStep, arrays: Mapping[Weight, np.ndarray]) -> None:
        """Compute a step with NumPy, by the operator's reference semantics."""
        if isinstance(step.instruction, Copy):
            self.array(step.instruction.target, arrays)[...] = self.array(step.instruction.source, arrays)
        elif isinstance(step.instruction, Compute):
            results = _evaluate(step.instruction, lambda buffer: self.array(buffer, arrays))
            for buffer, result in zip(step.instruction.results, results, strict=True):
                self.array(buffer, arrays)[...] = result

    def array(self, buffer: Buffer, arrays: Mapping[Weight, np.ndarray]) -> np.ndarray:
        """Return a buffer as an array, which is valid until another buffer takes over its memory."""
        owner = self._owners[buffer]
        if isinstance(owner, Weight):
            array = arrays[owner] if owner.data is None else owner.data
            if array.shape == buffer.type.shape and array.dtype == buffer.type.dtype:
                return array
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        else:
            start = self.plan.offsets[owner.name]
            flat = self.arena[start : start + buffer.bytes]
        return flat.view(buffer.type.dtype).reshape(shape(buffer))


def _steps(program: Program, machine: CpuSetup, known: Iterable[NativeStep]) -> tuple[NativeStep, ...]:
    """Return the steps of a program; those of instructions with a known step have its native calls."""
    selected = {id(step.instruction): step.selection for step in known}
    steps: list[NativeStep] = []
    alike: dict[Hashable, _Alike] = {}
    count = 0
    for number, instruction in enumerate(program.instructions):
        if isinstance(instruction, Compute | Copy):
            key = id(instruction)
            selection = selected[key] if key in selected else _select_once(instruction, machine, alike)
            steps.append(NativeStep(number, instruction, selection, count))
            count = steps[-1].last
    return tuple(steps)


def _select_once(instruction: Instruction, machine: CpuSetup, alike: dict[Hashable, _Alike]) -> Selection | None:
    """Return the selection of an instruction; it has the calls of an earlier one that differs in buffers only."""
    if not isinstance(instruction, Compute) or any(constant(buffer) is not None for buffer in instruction.reads):
        return select(instruction, machine)
    buffers = (*instruction.results, *instruction.inputs)
    operands = [b and (b.type, buffers.index(b)) for b in buffers]
    key = type(instruction.operator), repr(instruction.operator), len(instruction.results), *operands
    if key not in alike:
        alike[key] = buffers, select(instruction, machine)
    others, selection = alike[key]
    if selection is None or others is buffers:
        return selection
    return replace(selection, operands={name: buffers[others.index(b)] for name, b in selection.operands.items()})


def _calls(steps: Iterable[NativeStep]) -> list[NativeCall]:
    return [call for step in steps if step.selection for call in step.selection.calls]


def _workspace(step: NativeStep, name: str) -> str:
    return f"{step.number}: {name}"


def _evaluate(instruction: Compute, array: Callable[[Buffer], np.ndarray]) -> tuple[np.ndarray, ...]:
    types = tuple(None if buffer is None else buffer.type for buffer in instruction.inputs)
    inputs = [None if buffer is None else array(buffer) for buffer in instruction.inputs]
    where = instruction_text(instruction)
    _check_memory(footprint(instruction.operator, types, [b.type for b in instruction.results]), where)
    with located(where), np.errstate(all="ignore"):
        return as_tuple(instruction.operator.evaluate_typed(types, *inputs))


def _check_memory(needed: int, where: str) -> None:
    if needed > MAX_BYTES:
        raise CompilerError(
            "the program needs more memory than the limit",
            where=where,
            expected=f"{MAX_BYTES:,} bytes at most",
            got=f"{needed:,} bytes",
            todo="run a smaller batch or a smaller model",
        )
