"""The binary code of a program.

    "NMP1"   uint32 length of the header   header: JSON   constants, in the order of their declaration   instructions

The header has the machine, the tensors and the layers. An instruction is a word of 32 bits, with the opcode in its
lowest byte and its number of words above, then its operands in the order of the class's fields: tilelets as two masks
of 64 bits, addresses in DRAM and multipliers as 64 bits, all others as 32, little-endian.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, fields
from functools import cache
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.isa.elementwise import Add, Dense, Rescale, Table
from mlhood.compiler.backends.nmp.isa.instruction import Barrier, Load, NmpInstruction, Store, Units, Wait
from mlhood.compiler.backends.nmp.isa.windowed import LANES, POOLS, Convolve, Depthwise, Pool
from mlhood.compiler.backends.nmp.machine import machine_from_table
from mlhood.compiler.backends.nmp.program import KINDS, DramTensor, NmpLayer, NmpProgram
from mlhood.errors import CompilerError

INSTRUCTIONS: tuple[type[NmpInstruction], ...] = (
    Load,
    Store,
    Convolve,
    Depthwise,
    Dense,
    Pool,
    Add,
    Rescale,
    Table,
    Wait,
    Barrier,
)


MAGIC = b"NMP1"
MAX_HEADER = 2**26
MAX_TENSORS = 2**16
_WIDE = ("dram", "multiplier")
_CHOICES = {"lanes": LANES, "kind": POOLS}
_ELEMENTS = ("int8", "int16", "int32", "uint8")
_BY_OPCODE = {each.opcode: each for each in INSTRUCTIONS}


@cache
def _format(cls: type[NmpInstruction]) -> struct.Struct:
    """Return the layout of an instruction's words, the first included."""
    codes = {"Units": "QQ"} | dict.fromkeys(("int", "bool", "str"), "i")
    return struct.Struct("<I" + "".join("q" if f.name in _WIDE else codes[str(f.type)] for f in fields(cls)))


def encode(program: NmpProgram) -> bytes:
    """Return a program's binary code.

    Raises:
        CompilerError: An operand does not fit its field.
    """
    header = {
        "name": program.name,
        "machine": asdict(program.machine),
        "tensors": [
            {"name": t.name, "kind": t.kind, "element": t.element, "shape": list(t.shape), "address": t.address}
            for t in program.tensors.values()
        ],
        "layers": [[layer.name, layer.first, layer.end, layer.slicing] for layer in program.layers],
        "instructions": len(program.instructions),
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    constants = [np.ascontiguousarray(t.data).tobytes() for t in program.of_kind("constant")]
    code = [encode_instruction(instruction, i) for i, instruction in enumerate(program.instructions)]
    return b"".join([MAGIC, struct.pack("<I", len(text)), text, *constants, *code])


def encode_instruction(instruction: NmpInstruction, number: int = 0) -> bytes:
    """Return the words of an instruction; `number` is for messages."""
    layout, values = _format(type(instruction)), []
    for name, value in instruction.operands.items():
        if isinstance(value, Units):
            values += [sum(1 << i for i in value.tiles), sum(1 << i for i in value.tilelets)]
        else:
            values.append(_CHOICES[name].index(value) if name in _CHOICES else value)
    try:
        return layout.pack(instruction.opcode | layout.size // 4 << 8, *values)
    except struct.error as error:
        where = f"instruction {number}: {instruction.mnemonic}"
        raise CompilerError("an operand does not fit its field", where=where, got=error) from error


def decode(data: bytes) -> NmpProgram:
    """Return the program of a binary code.

    Raises:
        CompilerError: The code is truncated or invalid; the error names the byte, or the instruction.
    """
    header, start = _read_header(data)
    try:
        machine = machine_from_table(header["machine"], "the header's machine")
        tensors, start = _tensors(header["tensors"], data, start)
        layers = tuple(
            NmpLayer(_text(name), _natural(first), _natural(end), _text(text))
            for name, first, end, text in header["layers"]
        )
        name, count = _text(header["name"]), _natural(header["instructions"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _invalid("the header is invalid", 8, error) from error
    instructions = []
    while start < len(data):
        instruction, start = _decode_instruction(data, start, len(instructions))
        instructions.append(instruction)
    if len(instructions) != count:
        raise _invalid("the code has another number of instructions", start, len(instructions), f"{count}")
    _check_layers(layers, count)
    return NmpProgram(name, machine, tensors, tuple(instructions), layers)


def _read_header(data: bytes) -> tuple[dict[str, Any], int]:
    if data[:4] != MAGIC or len(data) < 8:
        raise _invalid("this is no program of the neural processor", 0, repr(data[:4]), repr(MAGIC))
    (length,) = struct.unpack_from("<I", data, 4)
    if length > min(MAX_HEADER, len(data) - 8):
        raise _invalid("the header is truncated or too long", 4, length, f"at most {min(MAX_HEADER, len(data) - 8)}")
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise _invalid("the header is not JSON", 8, error) from error
    if not isinstance(header, dict):
        raise _invalid("the header is invalid", 8, type(header).__name__, "an object")
    return header, 8 + length


def _tensors(rows: list[dict[str, Any]], data: bytes, start: int) -> tuple[dict[str, DramTensor], int]:
    if len(rows) > MAX_TENSORS:
        raise _invalid("too many tensors", 8, len(rows), f"at most {MAX_TENSORS}")
    tensors: dict[str, DramTensor] = {}
    for row in rows:
        name, shape = _text(row["name"]), tuple(_natural(n) for n in row["shape"])
        if row["kind"] not in KINDS or row["element"] not in _ELEMENTS or name in tensors:
            raise _invalid("a tensor is invalid", 8, str(row)[:200])
        tensor = DramTensor(name, row["kind"], row["element"], shape, _natural(row["address"]))
        if tensor.kind == "constant":
            if tensor.bytes > len(data) - start:
                raise _invalid("the constants are truncated", start, f"{len(data) - start} bytes", f"{tensor.bytes}")
            array = np.frombuffer(data, tensor.element, tensor.bytes // np.dtype(tensor.element).itemsize, start)
            tensor = DramTensor(name, "constant", tensor.element, shape, tensor.address, array.reshape(shape))
            start += tensor.bytes
        tensors[name] = tensor
    return tensors, start


def _decode_instruction(data: bytes, start: int, number: int) -> tuple[NmpInstruction, int]:
    cls = _BY_OPCODE.get(data[start])
    if cls is None:
        raise _invalid("unknown opcode", start, data[start], ", ".join(map(str, _BY_OPCODE)), number)
    layout = _format(cls)
    if len(data) - start < layout.size:
        raise _invalid(f"a {cls.mnemonic} is truncated", start, f"{len(data) - start} bytes", f"{layout.size}", number)
    word, *values = layout.unpack_from(data, start)
    if word >> 8 != layout.size // 4:
        raise _invalid(f"a {cls.mnemonic} has another length", start, word >> 8, f"{layout.size // 4} words", number)
    operands, rest = {}, iter(values)
    try:
        for field in fields(cls):
            value = next(rest)
            if field.type == "Units":
                operands[field.name] = Units(_bits(value), _bits(next(rest)))
            elif field.name in _CHOICES:
                operands[field.name] = _CHOICES[field.name][_natural(value)]
            else:
                operands[field.name] = bool(_flag(value)) if field.type == "bool" else value
    except (ValueError, IndexError, CompilerError) as error:
        raise _invalid(f"an operand of a {cls.mnemonic} is invalid", start, error, None, number) from error
    return cls(**operands), start + layout.size


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(64) if mask >> i & 1)


def _flag(value: int) -> int:
    if value not in (0, 1):
        raise ValueError(f"expected 0 or 1, got {value}")
    return value


def _natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**48:
        raise ValueError(f"expected an integer of 0 or more, got {str(value)[:40]!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 1000:
        raise ValueError(f"expected a text, got {str(value)[:40]!r}")
    return value


def _check_layers(layers: tuple[NmpLayer, ...], count: int) -> None:
    end = 0
    for layer in layers:
        if layer.first != end or not layer.first <= layer.end <= count:
            raise _invalid("the layers are not consecutive parts of the program", 8, layer.name)
        end = layer.end


def _invalid(what: str, offset: int, got: object, expected: str | None = None, number: int | None = None):
    where = f"byte {offset}" if number is None else f"instruction {number} at byte {offset}"
    return CompilerError(f"invalid binary code: {what}", where=where, expected=expected, got=got)
