"""StableHLO converted from MLIR's Python objects into the same computations and instructions as HLO.

Source: the StableHLO specification, openxla.org/stablehlo/spec.
"""

from __future__ import annotations

import re
from typing import Any

from mlhood.jaxlab.xla.hlo import Computation, HloInstruction, Module

_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)(\w+)>")
_ELEMENT_TYPES = {"i1": "pred", "i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64"}
_ELEMENT_TYPES |= {"ui8": "u8", "ui16": "u16", "ui32": "u32", "ui64": "u64"}
# operations with regions on arrays; the regions of reduce, sort and so on are on scalars
_REGIONS = {"while": "while", "case": "conditional", "if": "conditional"}
_TERMINATORS = ("func.return", "stablehlo.return")


def convert(module: Any, name: str) -> Module:
    """Convert a StableHLO module.

    Args:
        module: What `Lowered.compiler_ir("stablehlo")` returns.
        name: The new module's name.

    Returns:
        A computation for each function and for each region of a loop or a conditional. Opcodes have no prefix
        "stablehlo."; a call of a function is "call".
    """
    converter = _Converter()
    for function in module.body.operations:
        if function.operation.name == "func.func":
            converter.block(function.attributes["sym_name"].value, function.regions[0].blocks[0], {})
    return Module(name, converter.computations, "main")


class _Converter:
    def __init__(self) -> None:
        self.computations: dict[str, Computation] = {}

    def block(self, name: str, block: Any, outer: dict[Any, str]) -> None:
        """Convert a block; it may use values of the enclosing blocks."""
        names = dict(outer)
        instructions: dict[str, HloInstruction] = {}
        for i, argument in enumerate(block.arguments):
            names[argument] = f"arg{i}"
            instructions[f"arg{i}"] = HloInstruction(f"arg{i}", _shape([argument.type]), "parameter", literal=str(i))
        for i, op in enumerate(block.operations):
            instruction = self.operation(op.operation, f"{name}.{i}", names)
            instructions[instruction.name] = instruction
            names |= dict.fromkeys(op.operation.results, instruction.name)
        self.computations[name] = Computation(name, instructions)

    def operation(self, op: Any, name: str, names: dict[Any, str]) -> HloInstruction:
        """Convert an operation, and those of its regions that are on arrays."""
        opcode = op.name.removeprefix("stablehlo.").removeprefix("func.")
        calls: tuple[str, ...] = ()
        if opcode == "call":
            calls = (op.attributes["callee"].value,)
        elif opcode in _REGIONS:
            calls = tuple(f"{name}.{i}" for i in range(len(op.regions)))
            for computation, region in zip(calls, op.regions, strict=True):
                self.block(computation, region.blocks[0], names)
        return HloInstruction(
            name=name,
            shape=_shape([result.type for result in op.results]),
            opcode="return" if op.name in _TERMINATORS else _REGIONS.get(opcode, opcode),
            operands=tuple(names[operand] for operand in op.operands),
            calls=calls,
            root=op.name in _TERMINATORS,
        )


def _shape(types: list[Any]) -> str:
    """Return types in HLO's syntax: tensor<1x64xf32> is f32[1,64]."""
    shapes = [_TENSOR.sub(_array, str(mlir_type)) for mlir_type in types]
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def _array(match: re.Match[str]) -> str:
    return f"{_ELEMENT_TYPES.get(match[2], match[2])}[{','.join(match[1].split('x')[:-1])}]"
