"""StableHLO read into the same computations and instructions as HLO, from MLIR's own objects.

Source: the StableHLO specification, openxla.org/stablehlo/spec.
"""

from __future__ import annotations

import re
from typing import Any

from mlhood.jaxlab.xla.hlo import Computation, Instruction, Module

_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)(\w+)>")
_KINDS = {"i1": "pred", "i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64"}
_KINDS |= {"ui8": "u8", "ui16": "u16", "ui32": "u32", "ui64": "u64"}
# StableHLO's regions that work on arrays; those of reduce, sort and so on work on single numbers
_REGIONS = {"while": "while", "case": "conditional", "if": "conditional"}
_ENDS = ("func.return", "stablehlo.return")


def read(module: Any, name: str) -> Module:
    """Read a module of StableHLO.

    Args:
        module: What `Lowered.compiler_ir("stablehlo")` gives.
        name: What to call it.

    Returns:
        A computation for each function and for each region of a loop or a condition. Opcodes stand without
        "stablehlo."; a call of a function is "call".
    """
    reader = _Reader()
    for function in module.body.operations:
        if function.operation.name == "func.func":
            reader.block(function.attributes["sym_name"].value, function.regions[0].blocks[0], {})
    return Module(name, reader.computations, "main")


class _Reader:
    def __init__(self) -> None:
        self.computations: dict[str, Computation] = {}

    def block(self, name: str, block: Any, outer: dict[Any, str]) -> None:
        """Read a block; it may read what the blocks around it have made."""
        names = dict(outer)
        lines: dict[str, Instruction] = {}
        for i, argument in enumerate(block.arguments):
            names[argument] = f"arg{i}"
            lines[f"arg{i}"] = Instruction(f"arg{i}", _shape([argument.type]), "parameter", literal=str(i))
        for number, line in enumerate(block.operations):
            one = self.line(line.operation, f"{name}.{number}", names)
            lines[one.name] = one
            names |= dict.fromkeys(line.operation.results, one.name)
        self.computations[name] = Computation(name, lines)

    def line(self, line: Any, name: str, names: dict[Any, str]) -> Instruction:
        """Read one operation, and the regions in it that work on arrays."""
        opcode = line.name.removeprefix("stablehlo.").removeprefix("func.")
        calls: tuple[str, ...] = ()
        if opcode == "call":
            calls = (line.attributes["callee"].value,)
        elif opcode in _REGIONS:
            calls = tuple(f"{name}.{i}" for i in range(len(line.regions)))
            for inner, region in zip(calls, line.regions, strict=True):
                self.block(inner, region.blocks[0], names)
        return Instruction(
            name=name,
            shape=_shape([result.type for result in line.results]),
            opcode="return" if line.name in _ENDS else _REGIONS.get(opcode, opcode),
            operands=tuple(names[operand] for operand in line.operands),
            calls=calls,
            root=line.name in _ENDS,
        )


def _shape(types: list[Any]) -> str:
    """Return types as HLO writes them: tensor<1x64xf32> is f32[1,64]."""
    words = [_TENSOR.sub(_array, str(one)) for one in types]
    return words[0] if len(words) == 1 else f"({', '.join(words)})"


def _array(found: re.Match[str]) -> str:
    return f"{_KINDS.get(found[2], found[2])}[{','.join(found[1].split('x')[:-1])}]"
