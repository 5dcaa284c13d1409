"""The text form of a program, for people: an instruction a line.

    .program "lenet"
    .machine {"name": "NMP 4x8", ...}
    .tensor "image" input int8[1, 1, 32, 32] at 0x0
    .tensor "conv1.weights" constant int8[216] at 0x400 = base64
    .layer "conv1"                      ; what follows belongs to it
    load t0-3.0-7 memory=b0+0x0000 dram=0x0 run=1024
    conv t0-3.0-7 x=b0+0x0000 ...

A semicolon starts a comment. Operands that have a default may be left out.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import MISSING, Field, asdict, fields, replace
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.isa.encoding import INSTRUCTIONS
from mlhood.compiler.backends.nmp.isa.instruction import NmpInstruction, Units
from mlhood.compiler.backends.nmp.machine import Machine, default_machine, machine_from_table
from mlhood.compiler.backends.nmp.program import KINDS, DramTensor, NmpLayer, NmpProgram
from mlhood.errors import CompilerError

_MEMORY = ("memory", "x", "y", "w", "accumulators", "a", "b", "table")  # addresses in a tilelet's memory
_BY_MNEMONIC = {each.mnemonic: each for each in INSTRUCTIONS}
_UNITS = re.compile(r"t(\d[\d,-]*)\.(\d[\d,-]*)")
_TENSOR = re.compile(r'("(?:[^"\\]|\\.)*") (\w+) (u?int\d+)\[([\d, ]*)\] at (\w+)(?: = (\S*))?')
_ELEMENTS = ("int8", "int16", "int32", "uint8")


def instruction_text(instruction: NmpInstruction, machine: Machine) -> str:
    """Return an instruction as a line of text."""
    parts = [instruction.mnemonic]
    for field in fields(instruction):
        value = getattr(instruction, field.name)
        if isinstance(value, Units):
            parts.append(str(value))
        elif value != field.default:
            parts.append(f"{field.name}={_operand_text(field.name, value, machine)}")
    return " ".join(parts)


def _operand_text(name: str, value: Any, machine: Machine) -> str:
    if name in _MEMORY:
        return machine.address_text(value)
    if name == "dram":
        return f"{value:#x}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def disassemble(program: NmpProgram) -> str:
    """Return a program as text, from which `assemble` makes the same program."""
    lines = [f".program {json.dumps(program.name)}", f".machine {json.dumps(asdict(program.machine))}"]
    for tensor in program.tensors.values():
        data = "" if tensor.data is None else f" = {base64.b64encode(tensor.data.tobytes()).decode()}"
        shape = f"{tensor.element}{list(tensor.shape)}"
        lines.append(f".tensor {json.dumps(tensor.name)} {tensor.kind} {shape} at {tensor.address:#x}{data}")
    starts = {layer.first: layer for layer in reversed(program.layers)}
    for number, instruction in enumerate(program.instructions):
        if number in starts:
            layer = starts[number]
            lines.append(f".layer {json.dumps(layer.name)} {json.dumps(layer.slicing)}")
        lines.append(instruction_text(instruction, program.machine))
    return "\n".join(lines) + "\n"


def assemble(text: str) -> NmpProgram:
    """Return the program of a text.

    Raises:
        CompilerError: A line is invalid; the error names it.
    """
    assembler = _Assembler()
    for number, line in enumerate(text.splitlines(), 1):
        statement = _without_comment(line).strip()
        if not statement:
            continue
        try:
            assembler.add(statement)
        except CompilerError as error:
            raise CompilerError(error.what, where=f"line {number}: {statement[:200]}", **_rest(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CompilerError("invalid line", where=f"line {number}: {statement[:200]}", got=error) from error
    return assembler.program()


def _rest(error: CompilerError) -> dict[str, Any]:
    names = {"what to do": "todo"}
    return {names.get(label, label): part for label, part in error.parts.items() if label != "where"}


def _without_comment(line: str) -> str:
    """Return a line up to a semicolon outside of quotes."""
    quoted = False
    for i, character in enumerate(line):
        if character == '"' and (not i or line[i - 1] != "\\"):
            quoted = not quoted
        if character == ";" and not quoted:
            return line[:i]
    return line


class _Assembler:
    """A program, line by line."""

    def __init__(self) -> None:
        self.name, self.machine = "program", default_machine()
        self.tensors: dict[str, DramTensor] = {}
        self.instructions: list[NmpInstruction] = []
        self.layers: list[NmpLayer] = []

    def add(self, statement: str) -> None:
        """Add a line without comment."""
        word, _, rest = statement.partition(" ")
        match word:
            case ".program":
                self.name = _string(rest)
            case ".machine":
                self.machine = machine_from_table(json.loads(rest), "the machine", default_machine())
            case ".tensor":
                self._add_tensor(rest)
            case ".layer":
                self._end_layer()
                name, _, slicing = rest.partition('" "')
                texts = (f'{name}"', f'"{slicing}') if slicing else (rest.strip(), '""')
                self.layers.append(NmpLayer(_string(texts[0]), len(self.instructions), 0, _string(texts[1])))
            case _:
                self.instructions.append(parse_instruction(statement, self.machine))

    def program(self) -> NmpProgram:
        """Return the program, after the last line."""
        self._end_layer()
        return NmpProgram(self.name, self.machine, self.tensors, tuple(self.instructions), tuple(self.layers))

    def _end_layer(self) -> None:
        if self.layers:
            self.layers[-1] = replace(self.layers[-1], end=len(self.instructions))
        elif self.instructions:
            raise CompilerError("instructions before the first layer", todo='begin with .layer "name"')

    def _add_tensor(self, text: str) -> None:
        match = _TENSOR.fullmatch(text)
        if match is None:
            raise CompilerError("invalid tensor", expected='"name" kind element[shape] at address', got=text[:100])
        name, kind, element, shape, address, data = match.groups()
        name, lengths = _string(name), tuple(int(n) for n in shape.split(",") if n.strip())
        if kind not in KINDS or element not in _ELEMENTS or name in self.tensors:
            raise CompilerError("invalid tensor", expected=f"a new name; {', '.join(KINDS)}", got=text[:100])
        tensor = DramTensor(name, kind, element, lengths, int(address, 0))
        if kind == "constant":
            tensor = replace(tensor, data=_decode(data or "", tensor))
        self.tensors[name] = tensor


def _decode(text: str, tensor: DramTensor) -> np.ndarray:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CompilerError("a constant is not base64", got=error) from error
    if len(data) != tensor.bytes:
        raise CompilerError("a constant has another size", expected=f"{tensor.bytes} bytes", got=len(data))
    return np.frombuffer(data, tensor.element).reshape(tensor.shape)


def _string(text: str) -> str:
    value = json.loads(text)
    if not isinstance(value, str):
        raise CompilerError("a name must be in quotes", got=text[:100])
    return value


def parse_instruction(text: str, machine: Machine) -> NmpInstruction:
    """Return the instruction of a line.

    Raises:
        CompilerError: The mnemonic or an operand is unknown, missing or invalid.
    """
    mnemonic, *words = text.split()
    cls = _BY_MNEMONIC.get(mnemonic)
    if cls is None:
        raise CompilerError("unknown instruction", expected=", ".join(_BY_MNEMONIC), got=mnemonic)
    by_name = {field.name: field for field in fields(cls)}
    operands: dict[str, Any] = {}
    for word in words:
        name, mark, value = word.partition("=")
        if not mark and "units" in by_name and "units" not in operands:
            operands["units"] = _parse_units(word)
        elif name not in by_name or name in operands or name == "units":
            expected = ", ".join(by_name) or "no operand"
            raise CompilerError("unknown or repeated operand", expected=expected, got=word)
        else:
            operands[name] = _parse_operand(by_name[name], value, machine)
    missing = [n for n, field in by_name.items() if n not in operands and field.default is MISSING]
    if missing:
        raise CompilerError("an operand is missing", expected=", ".join(missing), got=text[:200])
    return cls(**operands)


def _parse_units(word: str) -> Units:
    match = _UNITS.fullmatch(word)
    if match is None:
        raise CompilerError("invalid tilelets", expected="such as t0-3.0,2", got=word)
    return Units(*(_numbers(part) for part in match.groups()))


def _numbers(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        if not first <= last < 64:
            raise CompilerError("invalid tilelets", expected="numbers from 0 to 63", got=part)
        numbers += range(first, last + 1)
    return tuple(numbers)


def _parse_operand(field: Field, value: str, machine: Machine) -> Any:
    if field.type == "bool":
        return {"true": True, "false": False}[value]
    if field.type == "str":
        return value
    if field.name in _MEMORY:
        blob, _, offset = value.removeprefix("b").partition("+")
        if not value.startswith("b") or int(offset, 0) >= machine.blob_bytes:
            raise CompilerError("invalid address", expected="blob and offset, such as b1+0x0040", got=value)
        return int(blob) * machine.blob_bytes + int(offset, 0)
    return int(value, 0)
