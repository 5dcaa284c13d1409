"""The oracle of the LIR: execute a verified program with NumPy, instruction by instruction, on real memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlhood.compiler.hir.inputs import bind_inputs
from mlhood.compiler.hir.operator import as_tuple, footprint, located
from mlhood.compiler.lir.instructions import Alloc, Buffer, Compute, Copy, Dealloc, Instruction, TensorView
from mlhood.compiler.lir.program import Program
from mlhood.compiler.lir.text import instruction_text
from mlhood.compiler.lir.verify import verify
from mlhood.errors import CompilerError

# What fills memory that is allocated or freed: as a floating-point number it is not a number, as an integer -1 or 255.
_POISON = 0xFF

# Limit on a single array, so that a tiny model file cannot exhaust the machine's memory.
MAX_ARRAY_BYTES = 2**32

Observer = Callable[[Buffer, np.ndarray], None]


class Executor:
    """A program, prepared for execution.

    Memory is filled with NaN when it is allocated and when it is freed, so that an instruction which reads memory that
    another buffer has taken over shows in the results.

    Args:
        program: A program without dynamic axes; it is verified.
        offsets: Where each allocated buffer starts in one arena, in bytes, by name: a memory plan. By default each has
            separate memory.
        limit: Maximum size in bytes of an array, be it a buffer or a temporary of an operator.

    Raises:
        CompilerError: The program is invalid, has dynamic axes or exceeds the limit; an offset is missing or invalid.
    """

    def __init__(
        self, program: Program, offsets: Mapping[str, int] | None = None, limit: int = MAX_ARRAY_BYTES
    ) -> None:
        verify(program)
        self.program = program
        self.offsets = offsets
        self.arena_bytes = 0 if offsets is None else _arena_bytes(program, offsets)
        for number, instruction in enumerate(program.instructions):
            _check_memory(number, instruction, limit)

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Run the program once.

        Args:
            inputs: An array for each input, by name, of the declared element type and shape.
            observe: Called with each buffer that an instruction has written, and its array.

        Returns:
            The outputs by name.

        Raises:
            CompilerError: An input is missing, unknown or of another type, or an operator fails on these inputs.
        """
        arrays = self._weights(inputs)
        arena = np.full(self.arena_bytes, _POISON, np.uint8)
        with np.errstate(all="ignore"):
            for number, instruction in enumerate(self.program.instructions):
                self._execute(number, instruction, arrays, arena)
                if observe is not None:
                    for buffer in instruction.writes:
                        observe(buffer, arrays[buffer])
        return {name: arrays[weight] for name, weight in self.program.outputs.items()}

    def _weights(self, inputs: Mapping[str, Any]) -> dict[Buffer, np.ndarray]:
        weights = self.program.weights
        types = {name: weight.type for name, weight in weights.items() if weight.kind == "input"}
        given = bind_inputs(types, inputs, f"program {self.program.name!r}")
        arrays: dict[Buffer, np.ndarray] = {}
        for name, weight in weights.items():
            array = given[name] if weight.kind == "input" else weight.data
            arrays[weight] = _typed(_poisoned(weight.bytes), weight) if array is None else _read_only(array)
        return arrays

    def _execute(
        self, number: int, instruction: Instruction, arrays: dict[Buffer, np.ndarray], arena: np.ndarray
    ) -> None:
        match instruction:
            case Alloc(buffer):
                arrays[buffer] = _typed(self._allocate(buffer, arena), buffer)
            case Dealloc(buffer):
                _bytes_of(arrays.pop(buffer))[:] = _POISON
            case TensorView(buffer, source):
                arrays[buffer] = _typed(_bytes_of(arrays[source]), buffer)
            case Copy(target, source):
                arrays[target][...] = arrays[source]
            case Compute():
                results = _compute(number, instruction, arrays)
                for buffer, result in zip(instruction.results, results, strict=True):
                    arrays[buffer][...] = result

    def _allocate(self, buffer: Buffer, arena: np.ndarray) -> np.ndarray:
        if self.offsets is None:
            return _poisoned(buffer.bytes)
        start = self.offsets[buffer.name]
        memory = arena[start : start + buffer.bytes]
        memory[:] = _POISON
        return memory


def execute(program: Program, offsets: Mapping[str, int] | None = None, /, **inputs: Any) -> dict[str, np.ndarray]:
    """Run a program once; see `Executor`."""
    return Executor(program, offsets).run(inputs)


def _compute(number: int, instruction: Compute, arrays: Mapping[Buffer, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return an operator's results by its reference semantics, with the types of the buffers that they are for."""
    where = f"instruction {number}: {instruction_text(instruction)}"
    types = tuple(None if buffer is None else buffer.type for buffer in instruction.inputs)
    inputs = [None if buffer is None else arrays[buffer] for buffer in instruction.inputs]
    with located(where):
        results = as_tuple(instruction.operator.evaluate_typed(types, *inputs))
    for buffer, result in zip(instruction.results, results, strict=True):
        if result.dtype != buffer.type.dtype or result.shape != buffer.type.shape:
            expected, got = f"{buffer.type.element}{list(buffer.type.shape)}", f"{result.dtype}{list(result.shape)}"
            raise CompilerError(
                "the operator's result does not match its type", where=where, expected=expected, got=got
            )
    return results


def _check_memory(number: int, instruction: Instruction, limit: int) -> None:
    needed = max((buffer.bytes for buffer in instruction.buffers), default=0)
    if isinstance(instruction, Compute):
        inputs = [None if buffer is None else buffer.type for buffer in instruction.inputs]
        needed = footprint(instruction.operator, inputs, [buffer.type for buffer in instruction.results])
    if needed > limit:
        raise CompilerError(
            "the instruction needs more memory than the limit",
            where=f"instruction {number}: {instruction_text(instruction)}",
            expected=f"{limit:,} bytes at most",
            got=f"{needed:,} bytes",
            todo="run a smaller batch or a smaller model, or raise the limit: Executor(program, limit=...)",
        )


def _arena_bytes(program: Program, offsets: Mapping[str, int]) -> int:
    lifetimes = program.lifetimes()
    for lifetime in lifetimes:
        offset = offsets.get(lifetime.name)
        if not isinstance(offset, int | np.integer) or offset < 0:
            raise CompilerError(
                "the memory plan has no valid offset for a buffer",
                where=f"buffer {lifetime.name!r}",
                expected="a number of bytes, 0 or more",
                got="none" if offset is None else offset,
            )
    return max((offsets[lifetime.name] + lifetime.bytes for lifetime in lifetimes), default=0)


def _poisoned(size: int) -> np.ndarray:
    return np.full(size, _POISON, np.uint8)


def _typed(memory: np.ndarray, buffer: Buffer) -> np.ndarray:
    return memory.view(buffer.type.dtype).reshape([int(axis) for axis in buffer.type.shape])


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return an array in C order and the machine's byte order; no instruction may write it."""
    view = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape).view()
    view.flags.writeable = False
    return view
