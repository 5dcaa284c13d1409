"""The invariants of every program, which hold after lowering and after each pass."""

from __future__ import annotations

from mlhood.compiler.hir.lengths import product
from mlhood.compiler.hir.operator import infer_output_types
from mlhood.compiler.hir.text import type_text
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.lir.instructions import (
    OPCODES,
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
from mlhood.compiler.lir.text import instruction_text
from mlhood.errors import CompilerError


def verify(program: Program) -> None:
    """Check a program, in time linear in its size.

    Rules:
        1. Names of buffers are unique and not empty, types are valid, and a constant's array has its type.
        2. A buffer is declared, or allocated or defined as a view before an instruction names it.
        3. An activation is deallocated exactly once, and no instruction names it, or a view of it, afterwards.
        4. A view has as many bytes as its source, where no axis is dynamic.
        5. Only outputs and activations are written, and every output is.
        6. Memory is written before it is read.
        7. The operands of a copy have one type; those of another instruction have the types that its operator's type
           rule states.
        8. A result overlaps no other result, and an input only if the operator may work in place: it is elementwise,
           and both have the same shape and size of elements.

    Raises:
        CompilerError: A rule is violated; the error names the instruction by its number, counted from 0, and its text.
    """
    checker = _Checker(program)
    for number, instruction in enumerate(program.instructions):
        checker.check(number, instruction)
    checker.check_end()


class _Checker:
    """The state of all buffers between two instructions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.owners: dict[Buffer, Buffer] = {}  # of the memory, as in Program.memory
        self.names: set[str] = set()
        self.live: set[Buffer] = set()
        self.written: set[Buffer] = set()
        self.freed: set[Buffer] = set()
        self.where = f"program {program.name!r}"
        for weight in program.weights.values():
            self.where = f"{weight.kind} {weight.name!r}"
            self._define(weight, weight)
            self._check_constant(weight)

    def check(self, number: int, instruction: Instruction) -> None:
        """Check the next instruction."""
        self.where = f"instruction {number}: {_text(instruction)}"
        match instruction:
            case Alloc(buffer):
                if isinstance(buffer, Weight):
                    raise self._error("a weight is allocated", expected="an activation", got=buffer.kind)
                self._define(buffer, buffer)
            case TensorView(buffer, source):
                self._check_live(source)
                self._define(buffer, self.owners[source])
                self._check_view(buffer, source)
            case Dealloc(buffer):
                self._dealloc(buffer)
            case _:
                self._execute(instruction)

    def check_end(self) -> None:
        """Check what must hold after the last instruction."""
        self.where = f"program {self.program.name!r}"
        activations = self.live - {*self.program.weights.values()}
        if activations:
            names = ", ".join(sorted(buffer.name for buffer in activations))
            raise self._error("an activation is never deallocated", expected="a dealloc of each", got=names)
        if unwritten := [name for name, weight in self.program.outputs.items() if weight not in self.written]:
            raise self._error("an output is never written", expected="a write of each", got=", ".join(unwritten))

    def _define(self, buffer: Buffer, owner: Buffer) -> None:
        if not buffer.name or buffer.name in self.names:  # rule 1
            raise self._error("the names of buffers must be unique and not empty", got=repr(buffer.name))
        if violations := buffer.type.violations():
            raise self._error("the type of a buffer is invalid", got="; ".join(violations))
        self.names.add(buffer.name)
        self.owners[buffer] = owner
        if owner is buffer:
            self.live.add(buffer)

    def _check_constant(self, weight: Weight) -> None:
        if weight.kind != "output":
            self.written.add(weight)
        if weight.kind != "constant":
            return
        data = weight.data
        actual = None if data is None else TensorType(data.dtype.name, data.shape, weight.type.quantization)
        if actual != weight.type:
            got = "no array" if actual is None else type_text(actual)
            raise self._error("the array is not of the declared type", expected=type_text(weight.type), got=got)

    def _check_view(self, buffer: Buffer, source: Buffer) -> None:
        expected, actual = _bytes(source.type), _bytes(buffer.type)
        if actual != expected and isinstance(actual, int) and isinstance(expected, int):  # rule 4
            raise self._error(
                "a view must have as many bytes as its source", expected=f"{expected} bytes", got=f"{actual} bytes"
            )

    def _dealloc(self, buffer: Buffer) -> None:
        self._check_live(buffer)
        if isinstance(buffer, Weight) or self.owners[buffer] is not buffer:
            kind = buffer.kind if isinstance(buffer, Weight) else "a view"
            raise self._error("only what is allocated can be deallocated", expected="an activation", got=kind)
        self.live.discard(buffer)
        self.freed.add(buffer)

    def _execute(self, instruction: Instruction) -> None:
        for buffer in instruction.buffers:
            self._check_live(buffer)
        for buffer in instruction.reads:
            if self.owners[buffer] not in self.written:  # rule 6
                todo = "write it in an instruction before this one"
                raise self._error("a buffer is read before it is written", got=f"%{buffer.name}", todo=todo)
        for buffer in instruction.writes:
            owner = self.owners[buffer]
            if isinstance(owner, Weight) and owner.kind != "output":  # rule 5
                expected = "an activation or an output"
                raise self._error(
                    f"the {owner.kind} %{owner.name} is written", expected=expected, got=f"%{buffer.name}"
                )
        if isinstance(instruction, Copy):
            self._check_types((instruction.source.type,), (instruction.target.type,))
        if isinstance(instruction, Compute):
            self._check_compute(instruction)
        self.written |= {self.owners[buffer] for buffer in instruction.writes}

    def _check_live(self, buffer: Buffer) -> None:
        owner = self.owners.get(buffer)
        if owner is None:  # rule 2
            raise self._error("a buffer is used before it is allocated", got=f"%{buffer.name}")
        if owner not in self.live:  # rule 3
            raise self._error("a buffer is used after its memory was deallocated", got=f"%{buffer.name}")

    def _check_compute(self, instruction: Compute) -> None:
        operator = instruction.operator
        if not instruction.call and operator.name not in OPCODES:
            raise self._error("the operator has no instruction", expected="a call", got=operator.name)
        types = [None if buffer is None else buffer.type for buffer in instruction.inputs]
        try:
            expected = infer_output_types(operator, types, self.where)
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:  # in a text, by hand
            raise self._error("invalid attributes of the operator", got=error) from error
        self._check_types(expected, tuple(buffer.type for buffer in instruction.results))
        owners = [self.owners[buffer] for buffer in instruction.results]
        if len(set(owners)) < len(owners):  # rule 8
            raise self._error("two results are in the same memory", got=", ".join(f"%{each.name}" for each in owners))
        for result in instruction.results:
            for buffer in instruction.reads:
                self._check_overlap(instruction, result, buffer)

    def _check_overlap(self, instruction: Compute, result: Buffer, buffer: Buffer) -> None:
        if self.owners[result] is not self.owners[buffer]:
            return
        if len(instruction.results) > 1 or not may_overwrite(instruction.operator, result.type, buffer.type):
            raise self._error(
                "the instruction writes into the memory of an input",
                expected="separate memory, unless the operator is elementwise and keeps shape and size of elements",
                got=f"%{result.name} and %{buffer.name}",
            )

    def _check_types(self, expected: tuple[TensorType, ...], actual: tuple[TensorType, ...]) -> None:
        if actual != expected:  # rule 7
            texts = [", ".join(map(type_text, types)) for types in (expected, actual)]
            raise self._error("what is written has another type", expected=texts[0], got=texts[1])

    def _error(self, what: str, **parts) -> CompilerError:
        return CompilerError(what, where=self.where, **parts)


def _text(instruction: Instruction) -> str:
    if isinstance(instruction, Compute) and not instruction.call and instruction.operator.name not in OPCODES:
        return instruction.operator.name
    return instruction_text(instruction)


def _bytes(type: TensorType) -> int | str:
    return product((type.dtype.itemsize, *type.shape))
