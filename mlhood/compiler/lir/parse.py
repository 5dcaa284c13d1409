"""From the text form back to the program; the grammar is that of `mlhood.compiler.lir.text`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from mlhood.compiler.hir.parse import LineParser, statements
from mlhood.compiler.hir.text import digest
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.lir.instructions import OPERATOR_OF, Access, Alloc, Buffer, Compute, Copy, Dealloc, TensorView
from mlhood.compiler.lir.program import Program
from mlhood.errors import CompilerError

Section = Literal["", "declare", "program"]

_DECLARATIONS = ("input", "constant", "output")
_ACCESSES: dict[str, Access] = {"@in": "@in", "@out": "@out", "@inout": "@inout"}


def constants_by_digest(program: Program) -> dict[str, np.ndarray]:
    """Return a program's constants by the hashes that identify them in its text."""
    return {digest(weight.data): weight.data for weight in program.weights.values() if weight.data is not None}


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Program:
    """Return the program that a text describes; `verify` checks whether it is valid.

    Args:
        text: The result of `to_text`, or written by hand.
        constants: The arrays that the text identifies by hash, as `constants_by_digest` returns them.

    Raises:
        CompilerError: The syntax is invalid, or an instruction, operator, buffer or constant is unknown. The error
            names the line, and the column where the syntax is invalid.
    """
    parser = _Parser(constants or {})
    for line_number, line in statements(text):
        _ProgramLine(line, line_number, parser).parse()
    if parser.section:
        where = f"line {len(text.splitlines())}"
        raise CompilerError("the text ends in a section", where=where, expected="'}'", got=parser.section)
    return parser.program


class _Parser:
    """The program so far, its buffers by name, and the section that is open."""

    def __init__(self, constants: Mapping[str, np.ndarray]) -> None:
        self.constants = constants
        self.program = Program()
        self.buffers: dict[str, Buffer] = {}
        self.section: Section = ""


class _ProgramLine(LineParser):
    """Parses a line and adds its declaration or instruction to the program."""

    subject = "a program"

    def __init__(self, line: str, line_number: int, parser: _Parser) -> None:
        super().__init__(line, line_number, parser.constants)
        self.parser = parser
        self.program = parser.program

    def _statement(self) -> None:
        if self.parser.section and self._accept("}"):
            self.parser.section = ""
        elif not self.parser.section:
            self._outside()
        elif self.parser.section == "declare":
            self._weight()
        else:
            self._instruction()

    def _outside(self) -> None:
        match self._peek().text:
            case "function":
                self.next += 1
                self.program.name = self._string()
            case "declare" | "program" as section:
                self.next += 1
                self._mark("{")
                self.parser.section = section
            case _:
                raise self._syntax_error("function, declare or program")

    def _weight(self) -> None:
        kind = self._peek().text
        if kind not in _DECLARATIONS:
            raise self._syntax_error(", ".join(_DECLARATIONS))
        self.next += 1
        output = None
        if kind == "output" and self._peek().kind == "string":
            output = self._string()
            self._mark("=")
        name, type = self._new_buffer()
        if kind == "input":
            weight = self.program.declare_input(name, type)
        elif kind == "output":
            weight = self.program.declare_output(name, type, output)
        else:
            self._mark("=")
            weight = self.program.declare_constant(name, self._content(name, type), type.quantization)
        if weight.type != type:
            raise CompilerError("the constant has another type", where=self.where, expected=weight.type, got=type)
        self.parser.buffers[name] = weight

    def _instruction(self) -> None:
        opcode = self._take("word")
        add = self.program.instructions.append
        match opcode:
            case "alloc":
                add(Alloc(self._declared(Buffer(*self._new_buffer()))))
            case "dealloc":
                add(Dealloc(self._buffer()))
            case "tensorview":
                buffer = Buffer(*self._new_buffer())
                self._mark("=")
                add(TensorView(buffer, self._buffer()))
                self._declared(buffer)
            case "copy":
                add(self._copy())
            case "call":
                add(self._compute(self._take("word"), call=True))
            case _ if opcode in OPERATOR_OF:
                add(self._compute(OPERATOR_OF[opcode], call=False))
            case _:
                self.next -= 1
                raise self._syntax_error("an instruction")

    def _copy(self) -> Copy:
        operands = self._operands()
        match operands:
            case [("@out", Buffer() as target), ("@in", Buffer() as source)]:
                return Copy(target, source)
        got = ", ".join(access for access, _ in operands)
        raise CompilerError("invalid operands of a copy", where=self.where, expected="@out, @in", got=got)

    def _compute(self, name: str, *, call: bool) -> Compute:
        operands = self._operands()
        operator = self._operator(name, self._attributes())
        results = tuple(buffer for access, buffer in operands if access != "@in" and buffer is not None)
        inputs = tuple(buffer for access, buffer in operands if access != "@out")
        accesses = [access for access, _ in operands]
        if "@inout" in accesses and (accesses.count("@inout") > 1 or "@out" in accesses):
            expected = "one @inout, and no @out beside it"
            raise CompilerError("invalid operands", where=self.where, expected=expected, got=", ".join(accesses))
        return Compute(operator, results, inputs, call)

    def _operands(self) -> list[tuple[Access, Buffer | None]]:
        operands = [self._operand()]
        while self._accept(","):
            operands.append(self._operand())
        return operands

    def _operand(self) -> tuple[Access, Buffer | None]:
        text = self._peek().text
        access = _ACCESSES.get(text)
        if access is None:
            raise self._syntax_error(" or ".join(_ACCESSES))
        self.next += 1
        if access == "@in" and self._is("word", "none"):
            self.next += 1
            return "@in", None
        return access, self._buffer()

    def _new_buffer(self) -> tuple[str, TensorType]:
        column = self._peek().column
        name, type = self._declaration()
        if name in self.parser.buffers:
            where = f"{self.where}, column {column}"
            raise CompilerError("the name of a buffer is taken", where=where, expected="another name", got=name)
        return name, type

    def _declared(self, buffer: Buffer) -> Buffer:
        self.parser.buffers[buffer.name] = buffer
        return buffer

    def _buffer(self) -> Buffer:
        token = self._peek()
        name = self._name()
        if name in self.parser.buffers:
            return self.parser.buffers[name]
        raise CompilerError(
            "unknown buffer",
            where=f"{self.where}, column {token.column}",
            expected="a buffer that a line before declares, allocates or views",
            got=token.text,
        )
