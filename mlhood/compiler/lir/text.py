"""The text form of a program: deterministic, and parsed back by `mlhood.compiler.lir.parse`.

    function "lenet"
    declare {
      input %image : float32[1, 1, 32, 32]
      constant %conv1.weight : float32[6, 1, 5, 5] = sha256:51c08bb9c1a2f2d3
      output %logits : float32[1, 10]
    }
    program {
      alloc %conv1 : float32[1, 6, 28, 28]
      convolution @out %conv1, @in %image, @in %conv1.weight {strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]}
      tensorview %flat : float32[1, 4704] = %conv1
      copy @out %logits, @in %flat
      dealloc %conv1
    }

Names, types, attributes and constants are written as in the text of a graph, see `mlhood.compiler.hir.text`. An output
whose buffer has another name is written `output "name" = %buffer : type`. An operator without its own instruction
is called: `call Erf @out %y, @in %x`.
"""

from __future__ import annotations

import json

from mlhood.compiler.hir.text import attributes_text, content_text, quote_name, type_text
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
)
from mlhood.compiler.lir.program import Program


def to_text(program: Program) -> str:
    """Return the text of a program."""
    names = {buffer: name for name, buffer in program.outputs.items()}
    declarations = [f"  {_weight(weight, names)}" for weight in program.weights.values()]
    body = [f"  {instruction_text(instruction)}" for instruction in program.instructions]
    lines = [f"function {json.dumps(program.name)}", "declare {", *declarations, "}", "program {", *body, "}"]
    return "\n".join(lines) + "\n"


def instruction_text(instruction: Instruction) -> str:
    """Return the text of an instruction, on one line."""
    match instruction:
        case Alloc(buffer):
            return f"alloc {_declaration(buffer)}"
        case Dealloc(buffer):
            return f"dealloc {_reference(buffer)}"
        case TensorView(buffer, source):
            return f"tensorview {_declaration(buffer)} = {_reference(source)}"
        case Copy(target, source):
            return f"copy @out {_reference(target)}, @in {_reference(source)}"
        case Compute():
            return _compute(instruction)
    raise TypeError(f"no text form for {type(instruction).__name__}")


def _compute(instruction: Compute) -> str:
    operator = instruction.operator
    opcode = f"call {operator.name}" if instruction.call else OPCODES[operator.name]
    operands = ", ".join(f"{access} {_reference(buffer)}" for access, buffer in instruction.operands)
    return f"{opcode} {operands}{attributes_text(operator)}"


def _weight(weight: Weight, output_names: dict[Weight, str]) -> str:
    if weight.data is not None:
        return f"constant {_declaration(weight)} = {content_text(weight.data)}"
    name = output_names.get(weight, weight.name)
    return f"{weight.kind} " + ("" if name == weight.name else f"{json.dumps(name)} = ") + _declaration(weight)


def _declaration(buffer: Buffer) -> str:
    return f"{_reference(buffer)} : {type_text(buffer.type)}"


def _reference(buffer: Buffer | None) -> str:
    return "none" if buffer is None else f"%{quote_name(buffer.name)}"
