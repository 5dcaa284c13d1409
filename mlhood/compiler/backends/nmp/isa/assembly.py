"""The text form of a program: an instruction a line. What follows a word with a point is JSON.

    .program "lenet"
    .machine {"name": "NMP 4x8", ...}
    .tensor {"name": "image", "kind": "input", "element": "int8", "shape": [1, 1, 32, 32], "address": 0}
    .layer ["conv1", "4x28 pixels, ..."]
    load t0-3.0-7 memory=b0+0x0000 dram=0x0 run=1024
    conv t0-3.0-7 x=b0+0x0000 ...

The data of a constant are in base64. Operands that have a default may be left out.
"""

from __future__ import annotations

import base64
import json
from dataclasses import MISSING, Field, asdict, fields, replace
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.isa.computations import Add, Convolve, Dense, Depthwise, Pool, Rescale
from mlhood.compiler.backends.nmp.isa.instruction import Barrier, Load, NmpInstruction, Store, Units, Wait
from mlhood.compiler.backends.nmp.machine import Dram, Energy, Machine, default_machine
from mlhood.compiler.backends.nmp.program import DramTensor, NmpLayer, NmpProgram
from mlhood.errors import CompilerError

INSTRUCTIONS: dict[str, type[NmpInstruction]] = {
    each.mnemonic: each for each in (Load, Store, Convolve, Depthwise, Dense, Pool, Add, Rescale, Wait, Barrier)
}
_MEMORY = ("memory", "x", "y", "w", "accumulators", "a", "b")  # addresses in a tilelet's memory


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
        row = {name: value for name, value in vars(tensor).items() if value is not None}
        if tensor.data is not None:
            row["data"] = base64.b64encode(tensor.data.tobytes()).decode()
        lines.append(f".tensor {json.dumps(row)}")
    starts = {layer.first: layer for layer in reversed(program.layers)}
    for number, instruction in enumerate(program.instructions):
        if number in starts:
            lines.append(f".layer {json.dumps([starts[number].name, starts[number].slicing])}")
        lines.append(instruction_text(instruction, program.machine))
    return "\n".join(lines) + "\n"


def assemble(text: str) -> NmpProgram:
    """Return the program of a text.

    Raises:
        CompilerError: A line is invalid; the error names it.
    """
    name, machine, tensors = "program", default_machine(), dict[str, DramTensor]()
    instructions: list[NmpInstruction] = []
    layers: list[NmpLayer] = []
    for number, line in enumerate(text.splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        try:
            match word:
                case "":
                    continue
                case ".program":
                    name = json.loads(rest)
                case ".machine":
                    table = json.loads(rest)
                    table |= {"dram": Dram(**table["dram"]), "energy": Energy(**table["energy"])}
                    machine = Machine(**table)
                case ".tensor":
                    tensor = _tensor(json.loads(rest))
                    tensors[tensor.name] = tensor
                case ".layer":
                    title, slicing = json.loads(rest)
                    layers.append(NmpLayer(title, len(instructions), len(instructions), slicing))
                case _:
                    instructions.append(parse_instruction(line, machine))
                    layers[-1] = replace(layers[-1], end=len(instructions))
        except (CompilerError, ValueError, KeyError, TypeError, IndexError) as error:
            raise CompilerError("invalid line", where=f"line {number}: {line[:200]}", got=error) from error
    return NmpProgram(name, machine, tensors, tuple(instructions), tuple(layers))


def _tensor(row: dict[str, Any]) -> DramTensor:
    data = row.pop("data", None)
    row["shape"] = tuple(row["shape"])
    tensor = DramTensor(**row)
    if data is None:
        return tensor
    array = np.frombuffer(base64.b64decode(data, validate=True), tensor.element)
    return replace(tensor, data=array.reshape(tensor.shape))


def parse_instruction(text: str, machine: Machine) -> NmpInstruction:
    """Return the instruction of a line.

    Raises:
        CompilerError: The mnemonic or an operand is unknown, missing or invalid.
    """
    mnemonic, *words = text.split()
    if mnemonic not in INSTRUCTIONS:
        raise CompilerError("unknown instruction", expected=", ".join(INSTRUCTIONS), got=mnemonic)
    by_name = {field.name: field for field in fields(INSTRUCTIONS[mnemonic])}
    operands: dict[str, Any] = {}
    for word in words:
        name, mark, value = word.partition("=")
        name = name if mark else "units"
        if name not in by_name or name in operands:
            expected = ", ".join(by_name) or "no operand"
            raise CompilerError("unknown or repeated operand", expected=expected, got=word)
        operands[name] = _parse_operand(by_name[name], value or word, machine)
    missing = [name for name, field in by_name.items() if name not in operands and field.default is MISSING]
    if missing:
        raise CompilerError("an operand is missing", expected=", ".join(missing), got=text[:200])
    return INSTRUCTIONS[mnemonic](**operands)


def _parse_operand(field: Field, value: str, machine: Machine) -> Any:
    if field.type == "Units":
        tiles, tilelets = value.removeprefix("t").split(".")
        return Units(_numbers(tiles), _numbers(tilelets))
    if field.type == "bool":
        return {"true": True, "false": False}[value]
    if field.type == "str":
        return value
    if field.name in _MEMORY:
        blob, offset = value.removeprefix("b").split("+")
        return int(blob) * machine.blob_bytes + int(offset, 0)
    return int(value, 0)


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a text such as 0-3,7."""
    parts = [part.partition("-") for part in text.split(",")]
    return tuple(n for low, _, high in parts for n in range(int(low), int(high or low) + 1))
